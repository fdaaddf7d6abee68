"""The names of tools as the APIs of models accept them.

MCP allows more characters and longer names than the APIs do. Pure: the same tools get the same names in
every process, so that a conversation can be continued elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["MAX_NAME_CHARACTERS", "api_names"]

MAX_NAME_CHARACTERS = 64
_DIGEST_CHARACTERS = 8
_ACCEPTED = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]+")


def api_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name that each tool has in an API, by the name of the tool. No two are equal.

    A name that the API accepts stays as it is. In other names, a run of characters that the API refuses
    becomes an underscore. A name that is still too long, or equal to another, ends with a digest.
    """
    cleaned = {name: _UNFIT.sub("_", name) for name in names}
    uses = Counter(cleaned.values())
    found = {name: name for name in cleaned if _ACCEPTED.fullmatch(name)}
    taken = set(found)
    for name, clean in cleaned.items():
        if name in found:
            continue
        chosen = clean if _ACCEPTED.fullmatch(clean) and uses[clean] == 1 else _with_digest(clean, name)
        while chosen in taken:
            chosen = _with_digest(clean, f"{chosen} {name}")
        taken.add(chosen)
        found[name] = chosen
    return found


def _with_digest(clean: str, name: str) -> str:
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{clean[: MAX_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"
