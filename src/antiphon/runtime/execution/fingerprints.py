"""Fingerprints: how a journal remembers which step or question an entry belongs to.

Owns how fingerprints are computed and written. A fingerprint is stored beside its entry and never in it, so
that versions without fingerprints read the same journals. It must not know who keeps the journal.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import msgspec
import pydantic

from antiphon.model.question import Elicit, Question
from antiphon.model.task import question_kind
from antiphon.runtime.authoring.signature import underlying_function

__all__ = [
    "StepPrint",
    "canonical_json",
    "fingerprint_key",
    "is_same_question",
    "json_spellings",
    "question_print",
    "step_print",
    "unfit_key",
    "used_key",
]

_PREFIX = "print:"
"""The prefix of fingerprints in journals. It never changes: logs and request states contain it."""
_KEYED, _CONCURRENT, _RETRIED = "=", "~", "!"
"""The marks of a step with a key of its own, that ran beside others, or that had failed in an earlier run."""
_DIGEST_CHARACTERS = 8
"""How long the digest of a step's arguments is. Request states travel, so it is short."""
_MAX_CACHED_PRINTS = 1024
"""How many fingerprints of questions are cached."""
_OPAQUE = b"\0"
"""Stands for an argument that is not data, such as a connection. Two of them are never compared."""
_BASES: tuple[type[Any], ...] = (str, int, float, dict, list, tuple)

_has_floats = re.compile(rb"\d[.e]").search


def fingerprint_key(key: str) -> str:
    """Return the key of the fingerprint that belongs to an entry of the journal."""
    return _PREFIX + key


def used_key(key: str) -> str:
    """Return the key of the mark that a run has gone on with a recorded answer."""
    return f"{_PREFIX}used:{key}"


def unfit_key(key: str) -> str:
    """Return the key of the mark that an entry did not fit its type in the run that recorded it."""
    return f"{_PREFIX}unfit:{key}"


def canonical_json(value: Any) -> bytes:
    """Return data as JSON, the same for values that mean the same: 4522 and 4522.0, and keys in any order.

    Raises an exception if the value is not data all the way down.
    """
    return json_spellings(value)[0]


def json_spellings(value: Any) -> tuple[bytes, ...]:
    """Return data as canonical JSON and, if that differs, as JSON with its numbers as they are spelled.

    Raises an exception if the value is not data all the way down.
    """
    encoded = _encode(value)
    if not _has_floats(encoded):
        return (encoded,)
    canonical = _encode(_decode(encoded))
    return (encoded,) if canonical == encoded else (canonical, encoded)


class StepPrint(NamedTuple):
    """The fingerprint of a step."""

    digest: str
    """The digest of the arguments."""
    function: str
    """The qualified name of the function, without the functions around it."""
    is_keyed: bool = False
    """Whether the author named the step with `key`."""
    is_concurrent: bool = False
    """Whether the step may have run beside others, so that its place in the journal means nothing."""
    is_retried: bool = False
    """Whether the step failed in an earlier run, so that the steps which followed then may be unused now."""

    @classmethod
    def read(cls, written: str, key: str) -> StepPrint:
        """Read the fingerprint of the step that has this key in the journal."""
        marked, _, function = written.partition(" ")
        digest = marked.lstrip(_KEYED + _CONCURRENT + _RETRIED)
        return cls(
            digest, function or _name_in(key), _KEYED in marked, _CONCURRENT in marked, _RETRIED in marked
        )

    def write(self, key: str) -> str:
        """Return the fingerprint as the journal keeps it, beside the step that has this key."""
        marks = (
            (_KEYED if self.is_keyed else "")
            + (_CONCURRENT if self.is_concurrent else "")
            + (_RETRIED if self.is_retried else "")
        )
        function = "" if self.function == _name_in(key) else f" {self.function}"
        return f"{marks}{self.digest}{function}"

    def matches(self, recorded: StepPrint) -> bool:
        """Return whether the journal recorded this step: the same arguments, and the same function.

        The author of a step with a `key` may rename its function.
        """
        is_named = self.is_keyed or recorded.is_keyed
        return self.digest == recorded.digest and (is_named or self.function == recorded.function)


def step_print(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    is_keyed: bool = False,
    shared: Any = None,
) -> StepPrint:
    """Return the fingerprint of a step. The `shared` object, which belongs to the process, does not count."""
    arguments = [b"%b," % _argument(value, shared) for value in args]
    arguments += [b"%b=%b," % (name.encode(), _argument(kwargs[name], shared)) for name in sorted(kwargs)]
    digest = hashlib.sha256(b"".join(arguments)).hexdigest()
    return StepPrint(digest[:_DIGEST_CHARACTERS], _qualified_name(function), is_keyed)


def question_print(question: Question) -> str:
    """Return the fingerprint of a question: its kind and the fields of its form, but not its wording."""
    fields = question.schema.get("properties", ()) if isinstance(question, Elicit) else ()
    return _form_print(question_kind(question), tuple(fields))


@functools.lru_cache(maxsize=_MAX_CACHED_PRINTS)
def _form_print(kind: str, fields: tuple[str, ...]) -> str:
    return " ".join((kind, *sorted(fields)))


def is_same_question(recorded: str, asked: str) -> bool:
    """Return whether two fingerprints can be of one question: of one kind, with a field in common.

    A new version may add fields and remove others. Whether an answer still fits is checked elsewhere.
    """
    kind, *fields = recorded.split(" ")
    other, *others = asked.split(" ")
    return kind == other and (not fields or not others or not set(fields).isdisjoint(others))


def _name_in(key: str) -> str:
    """Return the name in the key of a step, without the kind and the count."""
    return key.partition(":")[2].rpartition("#")[0] or key.partition(":")[2]


def _qualified_name(function: Callable[..., Any]) -> str:
    target = function if isinstance(function, FunctionType) else underlying_function(function)
    name: str = getattr(target, "__qualname__", None) or type(target).__qualname__
    return name.rpartition("<locals>.")[2]


def _argument(value: Any, shared: Any) -> bytes:
    if value is shared and value is not None:
        return _OPAQUE
    try:
        return canonical_json(value)
    except Exception:  # whatever the type of the object raises: it is not data
        return _OPAQUE


def _as_data(value: Any) -> Any:
    """Return an object that msgspec does not know as data; raises `TypeError` if it is not data."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for base in _BASES:
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} is not data")


def _number(written: str) -> int | float:
    number = float(written)
    return int(number) if number.is_integer() else number


_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_as_data).encode
_decode = msgspec.json.Decoder(float_hook=_number).decode
