"""The tables of docs/howto/moving.md: every name of ours that they have exists."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any, get_type_hints

import typer

import antiphon
from antiphon.cli.commands import app
from antiphon.runtime.authoring.options import ResourceOptions, ToolOptions
from tests.test_moving_features import FEATURES

OWNERS: dict[str, Any] = {
    "ctx": antiphon.Context,
    "server": antiphon.Server,
    "Server": antiphon.Server,
    "client": antiphon.Client,
    "Limits": antiphon.Limits,
    "OAuth": antiphon.OAuth,
    "Image": antiphon.Image,
    "Audio": antiphon.Audio,
}
"""The classes of the objects that the tables name."""
KEYWORDS: dict[str, set[str]] = {
    "Server": set(inspect.signature(antiphon.Server).parameters),
    "Client": set(inspect.signature(antiphon.Client).parameters),
    "OAuth": set(inspect.signature(antiphon.OAuth).parameters),
    "@server.tool": set(get_type_hints(ToolOptions)),
    "@server.resource": set(get_type_hints(ResourceOptions)),
}
"""The keywords of the calls that the tables show."""
MODULES = [antiphon, *map(import_module, ("antiphon.agents", "antiphon.middleware", "antiphon.testing"))]
STANDARD_LIBRARY = {"AsyncExitStack", "Literal"}
ROWS = [line for line in FEATURES.splitlines() if line.startswith("| ") and " | " in line]
CELLS = [row.rsplit(" | ", 1)[1] for row in ROWS]
CODE = [code for cell in CELLS for code in re.findall(r"`([^`]+)`", cell)]


def test_every_attribute_exists() -> None:
    named = {found for code in CODE for found in re.findall(rf"\b({'|'.join(OWNERS)})\.(\w+)", code)}
    assert len(named) > 40
    assert [f"{owner}.{name}" for owner, name in sorted(named) if not hasattr(OWNERS[owner], name)] == []


def test_every_keyword_exists() -> None:
    named = {
        (function, keyword)
        for code in CODE
        for function in KEYWORDS
        if code.startswith(f"{function}(")
        for keyword in re.findall(r"(\w+)=…", code)
    }
    assert len(named) > 25
    assert [each for each in sorted(named) if each[1] not in KEYWORDS[each[0]]] == []


def test_every_command_exists() -> None:
    named = {found for code in CODE for found in re.findall(r"^antiphon ([a-z][\w-]*)", code)}
    assert len(named) > 8
    assert sorted(named - set(typer.main.get_command(app).commands)) == []  # type: ignore[attr-defined]


def test_every_class_and_function_exists() -> None:
    named = {code for code in CODE if re.fullmatch(r"[A-Z]\w+|[a-z]+_[a-z_]+", code)} - STANDARD_LIBRARY
    assert len(named) > 15
    assert [name for name in sorted(named) if not any(hasattr(module, name) for module in MODULES)] == []
