"""The client as the carrier: the journal travels through the caller as a sealed `requestState`.

The token is bound to the server, the caller, the request and its arguments. A token that was altered, has
expired or is bound to something else does not open. The caller learns only that; the log has the reason.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from antiphon import wall_clock
from antiphon.errors import InternalError, InvalidParams, InvalidRequest, SealError
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question, Sample, place_answers
from antiphon.model.request import CallTool, GetPrompt, ReadResource
from antiphon.model.task import dump_questions, load_questions
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.carriers.seal import Seal, Use
from antiphon.runtime.execution.fingerprints import json_spellings
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.rate_limited_log import RateLimitedLog
from antiphon.runtime.writable import MAX_NESTING, is_nested_deeply

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["REFUSAL", "ClientCarrier", "HeldPlace"]

logger = logging.getLogger("antiphon")

T = TypeVar("T")

HeldPlace: TypeAlias = tuple[str, str, int]
"""Where the run of a call waits: the process, the run, and the number of the round that comes next."""

REFUSAL = (
    "The request state is not valid: make the call again, without it. The state was altered, has expired, "
    "was used before, belongs to another call, or was sealed with a secret that this process of the server "
    "does not have. If you operate the server: its log has the reason. Give all processes the same "
    "ANTIPHON_SECRETS, and keep it when they restart."
)
"""The error for a request state that does not open: the same for every reason, which only the log names."""
STATELESS = (
    "This call has to remember what it did before its question, and its caller does not return the request "
    'state. Send "dev.antiphon/request-state": null in the _meta of the call, and with the answer what came '
    "with the question under this key. Or call the tool as a task, or use a newer protocol version."
)
_CANNOT_OPEN = "Cannot open the request state of request %r: "

_COMPRESSED, _JSON = 1, 2
"""The bits of the first byte of a sealed journal, which says how the rest is packed.

A journal is MessagePack, or JSON if a number does not fit into 64 bits.
"""
_MIN_COMPRESSED_BYTES = 512
_MAX_EXPANSION = 64
"""How many times `Limits.max_state_bytes` a journal may have after decompression."""

_SEALED_NAMES: Mapping[type[Any], str] = {
    CallTool: "CallTool",
    GetPrompt: "GetPrompt",
    ReadResource: "ReadResource",
}
"""The names of request types in sealed tokens.

Tokens that clients hold are bound to these names: they never change.
"""

_entries = msgspec.msgpack.Decoder(dict[str, Any])
_pack = msgspec.msgpack.Encoder().encode
_places = msgspec.msgpack.Decoder(HeldPlace)
_entries_in_json = msgspec.json.Decoder(dict[str, Any])
_pack_as_json = msgspec.json.Encoder().encode


class ClientCarrier:
    """Seals the journals of calls that wait for answers, and opens them again."""

    returns_questions = True
    sheds = True
    anyone_answers = False
    parking = None

    def __init__(
        self,
        seal: Seal,
        server: str,
        limits: Limits,
        *,
        use_once: Callable[..., Awaitable[bool]] | None = None,
    ) -> None:
        self._seal = seal
        self._use_once = use_once
        self._binding_prefix = b"state\0%b\0" % server.encode()
        self._limits = limits
        self._warned = seal.shared
        self._log = RateLimitedLog()

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal in the caller's request state, or a new one; raises `InvalidParams`."""
        if call.request.request_state is None:
            return Journal()
        journal = Journal(self._opened(call, "state", self._unpacked))
        asked, answers = journal.take_asked(), call.request_meta.answers
        if asked and answers:
            # The function may ask something else now, or in another order.
            placed = place_answers(load_questions(asked), answers)
            call.request = msgspec.structs.replace(call.request, input_responses=placed)
        if self._use_once is not None:
            await self._check_first_use(call, self._use_once)
        return journal

    async def open_place(self, call: Call[Any]) -> HeldPlace:
        """Return where the run of a call waits, from the caller's request state; raises `InvalidParams`."""
        place: HeldPlace = self._opened(call, "held", _places.decode)
        if self._use_once is not None:
            await self._check_first_use(call, self._use_once)
        return place

    def seal_place(self, call: Call[Any], place: HeldPlace) -> str:
        """Return a request state that says where the run of a call waits."""
        return self._sealed(call, _pack(place), "held")

    def _opened(self, call: Call[Any], use: Use, read: Callable[[bytes], T]) -> T:
        try:
            return read(self._seal.open(_token(call), use=use, bound_to=self._bindings(call)))
        except (SealError, ValueError, RecursionError, zlib.error) as error:
            raise self._refused(call, error) from None

    async def _check_first_use(self, call: Call[Any], use_once: Callable[..., Awaitable[bool]]) -> None:
        until = int((wall_clock.now() + self._limits.state_lifetime) * 1000)
        if not await use_once(sha256(_token(call).encode()).hexdigest(), until=until):
            raise self._refused(call, SealError("The token has been used before."))

    def _refused(self, call: Call[Any], error: Exception) -> InvalidParams:
        """Log why a request state does not open, and return the error for the caller: it has no reason."""
        if isinstance(error, SealError):  # its texts are few: each has a line, however often another comes
            self._log.warning(_CANNOT_OPEN + str(error), call.id)
        else:
            self._log.warning(_CANNOT_OPEN + "%s", call.id, error)
        return InvalidParams(REFUSAL)

    def confirm(self) -> None:
        """Return `None`: the caller has the journal, and makes the request again if this process is lost."""

    def ask(self, run: Run, key: str, question: Question, check: Check | None) -> None:
        """Return `None`: the caller gets the question as the outcome of its request."""

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Seal the journal into the outcome, if the next round needs it or a state is used once."""
        meta = call.request_meta
        # Answers without keys belong to what the caller was asked, in the order in which it was asked.
        in_order = meta.answers is not None and meta.returns_state and _has_two_of_a_kind(stopped)
        if journal.is_needed or not stopped.questions or self._use_once is not None or in_order:
            if meta.answers is not None:
                journal.note_asked(dump_questions(stopped.questions))
            # Reading the id records it: a round that is sent twice has the same idempotency keys.
            _ = journal.id
            stopped.sealed = self._sealed(call, self._packed(call, journal.entries), "state")
        return stopped

    def _sealed(self, call: Call[Any], data: bytes, use: Use) -> str:
        if not call.request_meta.returns_state:
            raise InvalidRequest(STATELESS)
        if not self._warned:
            self._warned = True
            logger.warning(
                "No secret is configured: only this process can continue a call after a question. "
                "Set ANTIPHON_SECRETS or Server(secrets=…), so that others can, and this one after a restart."
            )
        return self._seal.seal(
            data, use=use, bound_to=self._bindings(call)[0], lifetime=self._limits.state_lifetime
        )

    def _packed(self, call: Call[Any], entries: dict[str, Any]) -> bytes:
        """Return the entries of a journal as bytes; raises `InternalError` if they would not open again."""
        kind = 0
        try:
            raw = _pack(entries)
        except OverflowError:
            kind, raw = _JSON, _pack_as_json(entries)
        size, most = len(raw), self._limits.max_state_bytes
        if size > _MIN_COMPRESSED_BYTES:
            kind, raw = kind | _COMPRESSED, zlib.compress(raw, 6)
        if len(raw) >= most or size > most * _MAX_EXPANSION:
            logger.error(
                "The state of request %r has %d bytes, and %d if it is compressed; the limits are %d and %d. "
                "Let steps return less, for example the id of a stored object, or make the tool a task.",
                call.id,
                size,
                len(raw),
                most * _MAX_EXPANSION,
                most,
            )
            raise InternalError("The state of this call is too large to continue it.")
        if size > MAX_NESTING and is_nested_deeply(entries):  # each level takes at least a byte
            logger.error(
                "The state of request %r is nested more than %d levels deep. Let steps return flat data.",
                call.id,
                MAX_NESTING,
            )
            raise InternalError("The state of this call is nested too deeply to continue it.")
        return bytes((kind,)) + raw

    def _unpacked(self, sealed: bytes) -> dict[str, Any]:
        kind, raw = sealed[0], sealed[1:]
        if kind & _COMPRESSED:
            raw = zlib.decompressobj().decompress(raw, self._limits.max_state_bytes * _MAX_EXPANSION)
        return _entries_in_json.decode(raw) if kind & _JSON else _entries.decode(raw)

    def _bindings(self, call: Call[Any]) -> list[bytes]:
        """Return what tokens are bound to: this server, this caller, and this request with its arguments.

        The first binding is to what the arguments mean. The second one is to how numbers are spelled: older
        versions sealed with it.
        """
        request = call.request
        kind = _SEALED_NAMES[type(request)]
        named = (
            [kind, request.uri] if type(request) is ReadResource else [kind, request.name, request.arguments]
        )
        prefix = b"%b%b\0" % (self._binding_prefix, call.principal.id.encode())
        return [prefix + sha256(each).digest() for each in json_spellings(named)]


def _has_two_of_a_kind(stopped: InputRequired) -> bool:
    """Return whether two questions take the same kind of answer: a person's, or a model's."""
    kinds = {isinstance(question, Sample) for question in stopped.questions.values()}
    return len(kinds) < len(stopped.questions)


def _token(call: Call[Any]) -> str:
    token: str | None = call.request.request_state
    assert token is not None
    return token
