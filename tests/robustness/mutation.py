"""Bodies that are almost requests, from a seeded generator, and the errors that each may get."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.speakers import CLIENT, KEY, LEGACY, MODERN

META = {KEY + "protocolVersion": MODERN, KEY + "clientInfo": CLIENT, KEY + "clientCapabilities": {}}
VALID: list[dict[str, Any]] = [
    {"method": "ping"},
    {"method": "tools/list", "params": {}},
    {"method": "tools/list", "params": {"cursor": "1"}},
    {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
    {
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"progressToken": 1}},
    },
    {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}},
    {
        "method": "tools/call",
        "params": {
            "name": "add",
            "arguments": {"a": 1, "b": 2},
            "_meta": {**META, KEY + "logLevel": "info", "progressToken": "p"},
        },
    },
    {"method": "resources/read", "params": {"uri": "u://x"}},
    {"method": "resources/templates/list"},
    {"method": "resources/subscribe", "params": {"uri": "u://x"}},
    {"method": "prompts/get", "params": {"name": "prompt", "arguments": {"name": "x"}}},
    {
        "method": "completion/complete",
        "params": {
            "ref": {"type": "ref/prompt", "name": "prompt"},
            "argument": {"name": "name", "value": ""},
        },
    },
    {"method": "initialize", "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}},
    {"method": "logging/setLevel", "params": {"level": "info"}},
    {"method": "server/discover", "params": {"_meta": META}},
    {"method": "notifications/cancelled", "params": {"requestId": 1}},
]
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, -(2**64), 10**40, "", "x", "\0", "\u2028", "☃" * 10,
    [], [[]], {}, {"": ""}, [None] * 5, {"_meta": {}}, {"jsonrpc": "2.0"}, "2.0", MODERN, "__proto__",
    "x" * 5000,
]  # fmt: skip
SNIPPETS = [
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"NaN",
    b"Infinity",
    b"1e999",
    b"{",
    b"}",
    b"[",
    b'"',
    b",",
    b":",
    b"\\",
    b"\r\n",
]


def bodies(seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` bodies, the same ones for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        frame = {"jsonrpc": "2.0", "id": number, **json.loads(json.dumps(chance.choice(VALID)))}
        kind = chance.random()
        if kind < 0.05:
            yield chance.randbytes(chance.randrange(200))
        elif kind < 0.1:
            yield json.dumps(chance.choice([*ODD, [frame], [frame, frame]])).encode()
        elif kind < 0.55:
            for _ in range(chance.randrange(1, 4)):
                _change(frame, chance)
            yield json.dumps(frame).encode()
        else:
            yield _damage(json.dumps(frame).encode(), chance)


def _change(frame: dict[str, Any], chance: random.Random) -> None:
    """Replace or remove a random part of a frame."""
    holders: list[Any] = [frame]
    for holder in holders:
        inner = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in inner if isinstance(value, dict | list)]
    holder = chance.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return
    key = chance.choice(keys)
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = json.loads(json.dumps(chance.choice(ODD)))


def _damage(body: bytes, chance: random.Random) -> bytes:
    """Cut, repeat, flip or insert bytes."""
    start = chance.randrange(len(body))
    end = min(len(body), start + chance.randrange(1, 12))
    how = chance.randrange(5)
    if how == 0:
        return body[:start]
    if how == 1:
        return body[:start] + body[end:]
    if how == 2:
        return body[:end] + body[start:]
    if how == 3:
        return body[:start] + bytes([body[start] ^ (1 << chance.randrange(8))]) + body[start + 1 :]
    return body[:start] + chance.choice(SNIPPETS) + body[start:]


def expected(body: bytes) -> set[int]:
    """Return the error codes that a body may get; 0 stands for a result or a notification."""
    try:
        text = body.decode()
    except UnicodeDecodeError:  # the name of a member that nobody reads is not looked at
        return {-32700} | expected(body.decode("utf-8", "replace").encode())
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {-32700}
    if b"\\ud" in body.lower() or b"1e999" in body.lower():
        return {0, -32700, -32600, -32601, -32602, -32002, -32020, -32022}  # JSON to some, and not to others
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return {-32600}
    if not isinstance(value.get("method", ""), str):
        return {-32600}
    positional = isinstance(value.get("params"), list)
    if "id" in value and (type(value["id"]) not in (int, str) or not _fits(value["id"])):
        return {-32600, -32602} if positional else {-32600}
    if "method" not in value:
        return {-32600, -32602} if positional else {-32600}
    if "params" in value and not isinstance(value["params"], dict):
        return {-32602} if positional else {-32600}
    return {0, -32601, -32602, -32002, -32020, -32022}


def _fits(number: int | str) -> bool:
    return isinstance(number, str) or -(2**63) <= number < 2**63


def _no_constant(name: str) -> Any:
    raise ValueError(name)
