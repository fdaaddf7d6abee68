"""Snapshots of a server's lists: a test fails if a tool, a resource or a prompt has changed, and says how.

Owns the file format: JSON, in a stable order, without the version of the server or of any library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from antiphon.client import Client
from antiphon.printable import printable

__all__ = ["are_updated", "assert_tools_match"]

are_updated = False
"""Whether snapshots are written in place of compared. The option `--antiphon-update-snapshots` sets it."""

_MAX_SHOWN_CHANGES = 30
_MAX_VALUE_CHARACTERS = 120
_KINDS = {"tools": "tool", "resources": "resource", "templates": "template", "prompts": "prompt"}


async def assert_tools_match(client: Client, file: str | Path, *, update: bool | None = None) -> None:
    """Compare the tools, resources, templates and prompts of a server with those in a file.

    With `update`, or the option `--antiphon-update-snapshots` of pytest, writes the file. Otherwise raises
    `AssertionError`, which names the differences, and if there is no such file.
    """
    __tracebackhide__ = True
    path = Path(file)
    current = await _lists_of(client)
    saved = await asyncio.to_thread(_read, path)
    if are_updated if update is None else update:
        if saved != current:
            await asyncio.to_thread(_write, path, current)
    elif saved is None:
        raise AssertionError(
            f"There is no snapshot {path}: write it with pytest --antiphon-update-snapshots."
        )
    elif changes := [*_changes(saved, current)]:
        shown = [f"  {printable(change, 400)}" for change in changes[:_MAX_SHOWN_CHANGES]]
        if len(changes) > len(shown):
            shown.append(f"  … and {len(changes) - len(shown)} more changes")
        raise AssertionError(
            f"The server is not as in the snapshot {path}:\n{chr(10).join(shown)}\n"
            "If this is as it should be, run pytest with --antiphon-update-snapshots."
        )


async def _lists_of(client: Client) -> dict[str, dict[str, Any]]:
    """Return what a server offers, as it is on the wire, by kind and by name or URI."""
    offers, lists = client.offers, dict[str, dict[str, Any]]()
    if offers.tools:
        lists["tools"] = {each.name: each for each in await client.tools()}
    if offers.resources:
        lists["resources"] = {each.uri: each for each in await client.resources()}
        lists["templates"] = {each.uri_template: each for each in await client.templates()}
    if offers.prompts:
        lists["prompts"] = {each.name: each for each in await client.prompts()}
    encoded = msgspec.json.encode({kind: found for kind, found in lists.items() if found})
    return msgspec.json.decode(encoded, type=dict[str, dict[str, Any]])


def _read(path: Path) -> dict[str, Any] | None:
    """Return a snapshot; `None` if there is none. Raises `AssertionError` for a file that is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise AssertionError(f"{path} is not a snapshot: {error}. Delete it, and write it again.") from None


def _write(path: Path, lists: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(lists, order="sorted"), indent=2) + b"\n")


def _changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference between two snapshots."""
    for kind, label in _KINDS.items():
        before, after = saved.get(kind, {}), current.get(kind, {})
        for name in sorted({*before, *after}):
            if name not in after:
                yield f"{label} {name}: removed"
            elif name not in before:
                yield f"{label} {name}: added"
            else:
                yield from (f"{label} {name}: {line}" for line in _differences(before[name], after[name], ""))


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield f"{path} was {_excerpt(before)}, and is {_excerpt(after)}"
        return
    for key in sorted({*before, *after}):
        inner = f"{path}.{key}" if path else key
        if key not in after:
            yield f"{inner} was {_excerpt(before[key])}, and is not there"
        elif key not in before:
            yield f"{inner} was not there, and is {_excerpt(after[key])}"
        else:
            yield from _differences(before[key], after[key], inner)


def _excerpt(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"
