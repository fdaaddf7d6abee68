"""The names that the tools and prompts of a mounted server get.

Owns the prefix and the length. URIs of resources keep their names, because results refer to them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

from antiphon.errors import DefinitionError

__all__ = [
    "MAX_NAME_CHARACTERS",
    "attributed",
    "check_prefix",
    "free_name",
    "other_prefixes",
    "prefix_for",
    "qualified",
    "shortened",
]

MAX_NAME_CHARACTERS = 59
"""The length of the longest name with a prefix: some hosts refuse tools whose names have 60 characters."""
_MAX_PREFIX_CHARACTERS = 24
_DIGEST_CHARACTERS = 8
_MAX_INSTRUCTIONS_CHARACTERS = 16_384
_PREFIX = re.compile(rf"[A-Za-z0-9_-]{{1,{_MAX_PREFIX_CHARACTERS}}}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def qualified(prefix: str | None, name: str) -> str:
    """Return the name under which a tool or a prompt of a server is offered."""
    return name if prefix is None else shortened(f"{prefix}_{name}", name)


def other_prefixes(own: str | None, prefixes: Iterable[str | None]) -> tuple[str, ...]:
    """Return how names begin that belong to other servers, given the prefix of one and of all.

    Of two prefixes that both fit, the longer one owns a name: `a_b_x` is `x` of `a_b`, and not `b_x` of `a`.
    """
    length = -1 if own is None else len(own)
    return tuple(f"{prefix}_" for prefix in prefixes if prefix is not None and len(prefix) > length)


def shortened(name: str, whole: str) -> str:
    """Return a name that is not too long.

    A longer one ends with a digest of the whole name, so that it stays the same in every process and differs
    from the others.
    """
    if len(name) <= MAX_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: MAX_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, or the name with the first number that makes it different from those taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def attributed(prefix: str | None, instructions: str | None) -> str | None:
    """Return the instructions of a server as those of a gateway, which say for which tools they are."""
    if not instructions:
        return None
    text = instructions[:_MAX_INSTRUCTIONS_CHARACTERS]
    return text if prefix is None else f"For tools whose names begin with {prefix}_:\n{text}"


def check_prefix(prefix: str, owner: str = "mount") -> None:
    """Raise `DefinitionError` if names cannot begin with a prefix. The message names the `owner`."""
    if not _PREFIX.fullmatch(prefix):
        raise DefinitionError(
            f"{owner}({prefix!r}, …): the name becomes a prefix of tool names. Use 1 to "
            f"{_MAX_PREFIX_CHARACTERS} letters, digits, hyphens and underscores."
        )


def prefix_for(server: str) -> str:
    """Return the prefix for a server that a configuration file names, in whatever characters."""
    cleaned = _UNFIT.sub("_", server).strip("_")[:_MAX_PREFIX_CHARACTERS]
    return cleaned or "server"
