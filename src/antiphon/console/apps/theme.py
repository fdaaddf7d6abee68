"""The colours and fonts of the console that an App gets, by the names of the extension's specification."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TOKENS"]

_COLORS = {
    "bg": "background-primary background-disabled",
    "surface": "background-secondary background-ghost",
    "sunken": "background-tertiary",
    "text": "background-inverse text-primary border-inverse ring-inverse",
    "muted": "text-secondary text-tertiary text-disabled text-ghost",
    "line": "border-secondary border-tertiary border-ghost border-disabled",
    "line-strong": "border-primary",
    "accent": "ring-primary ring-secondary",
    "selected": "background-info",
    "bad-bg": "background-danger",
    "warn-bg": "background-warning",
    "hover": "background-success",
    "on-accent": "text-inverse",
    "info": "text-info border-info ring-info",
    "bad": "text-danger border-danger ring-danger",
    "ok": "text-success border-success ring-success",
    "warn": "text-warning border-warning ring-warning",
}
"""The colours of Apps, without `--color-`, by the token of the page's style that fills them."""

TOKENS: Mapping[str, str] = {
    "--font-sans": "--font",
    "--font-mono": "--mono",
    "--border-radius-md": "--radius",
    **{f"--color-{each}": f"--{token}" for token, names in _COLORS.items() for each in names.split()},
}
"""The token of the page's style for each variable of Apps."""
