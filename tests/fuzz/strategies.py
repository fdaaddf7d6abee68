"""Examples that several targets share: JSON, text, header values, and bytes that are almost right."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from tests.robustness.mutation import META, ODD, SNIPPETS, VALID

__all__ = [
    "ANY_TEXT",
    "JSON_VALUES",
    "chunked",
    "damaged",
    "frames",
    "header_bytes",
    "near",
    "replaced",
    "target",
]

T = TypeVar("T")

target = settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")))
"""Marks a target, and sets how many examples one run of it has."""

ANY_TEXT = st.sampled_from([" a", "a ", "a\nb", "\t", "é", "=?base64?x?=", "..", "%2f"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=30
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT
    | st.sampled_from([2**63, 2**64, -(2**70), "2.0", "tools/call", "add", *META]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


def near(*usual: T) -> st.SearchStrategy[T]:
    """One of the usual values. Alternatives are added with `|`."""
    return st.sampled_from(usual)


@st.composite
def frames(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Requests, notifications and responses, some of them with odd members."""
    frame: dict[str, Any] = {"jsonrpc": "2.0", "id": 1}
    if draw(st.integers(0, 3)) == 0:
        frame["id"] = draw(near("a", "", None, 2**63, -(2**64), 1.5, True) | JSON_VALUES)
    frame.update(json.loads(json.dumps(draw(st.sampled_from(VALID)))))
    if draw(st.integers(0, 9)) == 0:
        del frame["method"]
        frame[draw(near("result", "error"))] = draw(JSON_VALUES)
    for _ in range(draw(st.integers(0, 2))):
        replaced(draw, frame)
    return frame


def replaced(draw: Callable[[Any], Any], frame: dict[str, Any]) -> None:
    """Replace, remove or add one member anywhere in a frame, in place."""
    holders: list[Any] = [frame]
    for holder in holders:
        inner = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in inner if isinstance(value, dict | list) and value]
    holder = draw(st.sampled_from([*holders, *holders[1:], *holders[1:]]))  # the envelope less often
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return
    key = draw(st.sampled_from(keys))
    what = draw(near("replace", "replace", "remove", "add"))
    if what == "remove":
        del holder[key]
    elif what == "add" and isinstance(holder, dict):
        holder[draw(near("stream", "task", "_meta", "result", "id", "params") | ANY_TEXT)] = draw(JSON_VALUES)
    else:
        holder[key] = json.loads(json.dumps(draw(st.sampled_from(ODD) | JSON_VALUES)))


@st.composite
def damaged(draw: Callable[[Any], Any], whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which parts are cut out, doubled, changed or inserted, or none."""
    data = bytes(draw(whole))
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        put = draw(st.sampled_from(SNIPPETS) | st.binary(max_size=4))
        data = draw(
            near(
                data[:start],
                data[:start] + data[end:],
                data[:end] + data[start:],
                data[:start] + put + data[start:],
                data[:start] + put + data[end:],
            )
        )
    return data


def header_bytes(*usual: bytes) -> st.SearchStrategy[bytes]:
    """Header values: usual ones, damaged ones, and any bytes that HTTP allows in a header."""
    allowed = [byte for byte in range(256) if byte >= 32 or byte == 9]
    anything = st.lists(st.sampled_from(allowed), max_size=12).map(bytes)
    if not usual:
        return anything
    return st.sampled_from(usual) | damaged(st.sampled_from(usual)) | anything


@st.composite
def chunked(draw: Callable[[Any], Any], whole: st.SearchStrategy[bytes]) -> Sequence[bytes]:
    """Bytes as the chunks in which a network may deliver them."""
    data = draw(whole)
    if draw(st.integers(0, 3)) == 0:
        return [bytes([byte]) for byte in data]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
