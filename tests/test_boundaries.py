"""The wire is known in `wire/` alone: no other module names a protocol version or a key of a message."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"
VERSION = re.compile(r"\d{4}-\d\d-\d\d|DRAFT-\d{4}-v\d+")
KEY = re.compile(r"_meta|[a-z]+[A-Z][A-Za-z]*|partial-content|[a-z]+/[a-z_/A-Z]+|io\.modelcontextprotocol/.*")

JSON_SCHEMA = {
    *("additionalProperties", "allOf", "anyOf", "dependentRequired", "dependentSchemas", "enumNames"),
    *("exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "minItems", "minLength", "oneOf"),
    *("patternProperties", "prefixItems", "propertyNames", "unevaluatedProperties"),
}
"""Keywords of JSON Schema, which tools and forms are described in on every version."""

ALLOWED = {
    # OpenTelemetry's name for a protocol.
    "cli/run/otel.py": {"http/protobuf"},
    # The values that every version shares are written under their own field names.
    "model": None,
    # The console and its page speak an API of their own.
    "console": None,
    # OpenAPI documents and their schemas have keywords of their own.
    "openapi": None,
    # What the command line prints with --json is in the words of MCP, whichever version the server speaks. It
    # writes the files of hosts, and names a protocol of OpenTelemetry.
    "cli": {
        "_meta",
        "answeredBy",
        "askedAt",
        "asksOthers",
        "bytesBefore",
        "createdAt",
        "hasMore",
        "http/protobuf",
        "isError",
        "isNew",
        "kB",
        "lastUpdatedAt",
        "mcpServers",
        "resourceTemplates",
        "seqNr",
        "statusMessage",
        "structuredContent",
        "taskId",
    },
    # Servers of other libraries are called in the words of the protocol, which these libraries take.
    "adoption": {
        "_meta",
        "clientInfo",
        "completion/complete",
        "inputRequests",
        "inputResponses",
        "io.modelcontextprotocol/",
        "progressToken",
        "prompts/get",
        "prompts/list",
        "protocolVersion",
        "requestState",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "resultType",
        "structuredContent",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "ttlMs",
        "websiteUrl",
    },
    # Other frameworks pass messages to their extensions as the one version with tasks has them.
    "extensions": {
        "_meta",
        "inputRequests",
        "inputResponses",
        "requestState",
        "requiredCapabilities",
        "resultType",
        "tasks/cancel",
        "tasks/get",
        "tasks/update",
        "tools/call",
    },
    # The reasons why a model stopped, which a `sample` callback returns in the words of the protocol.
    "agents": {"endTurn", "maxTokens", "stopSequence", "toolUse"},
    # Parameters of a question, which are read as the server sends them.
    "client/callbacks.py": {"_meta"},
    # Parameters of a question to a model, which travel as the author gives them.
    "runtime/execution/context.py": {"maxTokens", "systemPrompt"},
}


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """The strings in a module, without docstrings and the parts of messages."""
    gc.disable()  # Python 3.11 fails to build a tree during which the collector runs code that builds another
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()
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


@functools.cache
def strings() -> list[tuple[str, int, str]]:
    """The strings of each module outside of the wire: in which module, on which line, and what."""
    modules = {path.relative_to(SOURCE): path for path in sorted(SOURCE.rglob("*.py"))}
    return [
        (str(name), line, text)
        for name, path in modules.items()
        if "wire" not in name.parts
        for line, text in constants(path)
    ]


def test_no_module_outside_of_the_wire_knows_a_version() -> None:
    found = [
        f"src/antiphon/{name}:{line}: {text}" for name, line, text in strings() if VERSION.fullmatch(text)
    ]
    assert not found, "\n".join(found)


def test_no_module_outside_of_the_wire_knows_a_key() -> None:
    found = [
        f"src/antiphon/{name}:{line}: {text}"
        for name, line, text in strings()
        if KEY.fullmatch(text) and not allowed(name, text)
    ]
    assert not found, "\n".join(found)


def test_every_word_that_is_allowed_somewhere_is_written_there() -> None:
    for place, words in ALLOWED.items():
        written = {text for name, _, text in strings() if name == place or name.startswith(f"{place}/")}
        assert written, place
        assert not (words or set()) - written, place


def test_the_patterns_find_what_they_are_for() -> None:
    wire = [text for path in (SOURCE / "wire").rglob("*.py") for _, text in constants(path)]
    assert sum(bool(VERSION.fullmatch(text)) for text in wire) >= 5
    assert {"inputRequests", "requestState", "tasks/result", "partial-content", "_meta"} <= {
        text for text in wire if KEY.fullmatch(text)
    }
