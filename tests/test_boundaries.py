"""The wire is known in `wire/` alone: no other module names a protocol version or a key of a message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"
VERSION = re.compile(r"\d{4}-\d\d-\d\d|DRAFT-\d{4}-v\d+")
KEY = re.compile(r"_meta|[a-z]+[A-Z][A-Za-z]*|partial-content|[a-z]+/[a-z_/A-Z]+|io\.modelcontextprotocol/.*")

JSON_SCHEMA = {
    *("additionalProperties", "allOf", "anyOf", "enumNames", "exclusiveMaximum", "exclusiveMinimum"),
    *("maxItems", "maxLength", "minItems", "minLength", "oneOf"),
}
"""Keywords of JSON Schema, which tools and forms are described in on every version."""

ALLOWED = {
    # The values that every version shares are written under their own field names.
    "model": None,
    # What the command line prints with --json is in the words of MCP, whichever version the server speaks.
    "cli": {
        "_meta",
        "bytesBefore",
        "createdAt",
        "isError",
        "kB",
        "lastUpdatedAt",
        "seqNr",
        "statusMessage",
        "structuredContent",
        "taskId",
    },
    # Parameters of a question to a model, which travel as the author gives them.
    "runtime/execution/context.py": {"maxTokens", "systemPrompt"},
    # OpenTelemetry's name for the method.
    "runtime/observability/telemetry.py": {"tools/call"},
}


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """The strings in a module, without docstrings and the parts of messages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    prose |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield node.lineno, text


def allowed(name: str, text: str) -> bool:
    if text in JSON_SCHEMA or text.startswith(("application/", "text/", "image/", "audio/", "video/")):
        return True
    for place, words in ALLOWED.items():
        if name == place or name.startswith(f"{place}/"):
            return words is None or text in words
    return False


MODULES = sorted(
    str(path.relative_to(SOURCE))
    for path in SOURCE.rglob("*.py")
    if "wire" not in path.relative_to(SOURCE).parts
)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_outside_of_the_wire_knows_no_version_and_no_key(name: str) -> None:
    found = [
        (line, text)
        for line, text in constants(SOURCE / name)
        if (VERSION.fullmatch(text) or (KEY.fullmatch(text) and not allowed(name, text)))
    ]
    assert not found, f"src/antiphon/{name}: {found}"


def test_the_pattern_finds_what_it_is_for() -> None:
    wire = [text for path in (SOURCE / "wire").rglob("*.py") for _, text in constants(path)]
    assert sum(bool(VERSION.fullmatch(text)) for text in wire) >= 5
    assert {"inputRequests", "requestState", "tasks/result", "partial-content", "_meta"} <= {
        text for text in wire if KEY.fullmatch(text)
    }
