"""Finds the targets: the functions of the modules `test_…` of this folder that Hypothesis gives examples."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["load", "names"]


def names() -> Sequence[str]:
    """Return the names of all targets, as `module.function`, without importing them."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(_gives(wrap) for wrap in node.decorator_list):
                found.append(f"{path.stem}.{node.name}")
    return found


def _gives(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "given"


def load(name: str) -> Callable[[], Any]:
    """Import a target."""
    module, _, function = name.partition(".")
    loaded: Callable[[], Any] = getattr(import_module(f"tests.fuzz.{module}"), function)
    return loaded
