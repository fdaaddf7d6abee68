"""The tables of docs/howto/moving.md against the installed FastMCP: everything that it offers is in them."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.process import ROOT

PAGE = (ROOT / "docs" / "howto" / "moving.md").read_text(encoding="utf-8")
FEATURES = PAGE[PAGE.index("## Feature by feature") :]
SIGNATURES = {
    "FastMCP": ("server/server.py", "FastMCP.__init__"),
    "Client": ("client/client.py", "Client.__init__"),
    "http_app": ("server/mixins/transport.py", "TransportMixin.http_app"),
    "tool": ("server/providers/local_provider/decorators/tools.py", "ToolDecoratorMixin.tool"),
    "resource": (
        "server/providers/local_provider/decorators/resources.py",
        "ResourceDecoratorMixin.resource",
    ),
    "prompt": ("server/providers/local_provider/decorators/prompts.py", "PromptDecoratorMixin.prompt"),
}
"""Functions whose parameters are settings, with the files that they are in."""
KINDS = ("Middleware", "Transform", "Provider", "Verifier", "Proxy", "Transport", "SamplingHandler", "OAuth")
"""How the names of classes end that an author or an operator chooses."""
INTERNAL = {
    "AuthProvider",
    "BaseLoggingMiddleware",
    "BaseSearchTransform",
    "ClientTransport",
    "DevSessionMiddleware",
    "FastMCPServerMiddleware",
    "HostOriginGuardMiddleware",
    "RequestContextMiddleware",
    "RequireAuthMiddleware",
    "SandboxProvider",
    "StreamingASGITransport",
}
"""Classes of these kinds that only FastMCP itself uses."""


@pytest.fixture(scope="module")
def package() -> Path:
    """The folder of the installed FastMCP."""
    spec = importlib.util.find_spec("fastmcp")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def members(file: Path, name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the methods and properties of a class."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (
                each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def public(kind: str, files: Iterable[Path]) -> set[str]:
    """Return the public names that files define at their top level."""
    pattern = re.compile(rf"^{kind} ([A-Za-z]\w*)", re.MULTILINE)
    return {name for file in files for name in pattern.findall(file.read_text(encoding="utf-8"))}


def classes(files: Iterable[Path]) -> set[str]:
    """Return the public classes of files."""
    return public("class", files)


def missing(names: set[str]) -> list[str]:
    """Return the names that the tables do not have."""
    return sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", FEATURES))


@pytest.mark.parametrize("function", SIGNATURES)
def test_every_setting_is_in_the_tables(package: Path, function: str) -> None:
    file, qualified = SIGNATURES[function]
    owner, _, name = qualified.partition(".")
    *_, definition = (each for each in members(package / file, owner) if each.name == name)
    settings = {each.arg for each in (*definition.args.args, *definition.args.kwonlyargs)}
    settings -= {"self", "name_or_fn", "uri", "transport"}
    assert len(settings) > 5
    assert missing(settings) == []


@pytest.mark.parametrize(
    ("file", "owner", "prefix"),
    [
        ("server/context.py", "Context", "ctx."),
        ("server/server.py", "FastMCP", ""),
        ("server/mixins/transport.py", "TransportMixin", ""),
        ("client/client.py", "Client", ""),
        ("client/mixins/tools.py", "ClientToolsMixin", ""),
        ("client/mixins/resources.py", "ClientResourcesMixin", ""),
        ("client/mixins/prompts.py", "ClientPromptsMixin", ""),
        ("client/mixins/skills.py", "ClientSkillsMixin", ""),
    ],
)
def test_every_method_and_property_is_in_the_tables(
    package: Path, file: str, owner: str, prefix: str
) -> None:
    names = {each.name for each in members(package / file, owner)}
    names = {prefix + name for name in names if not name.startswith("_") and not name.endswith("_mcp")}
    assert len(names) > 1
    assert missing(names) == []


def test_every_class_of_a_kind_is_in_the_tables(package: Path) -> None:
    names = {name for name in classes(package.rglob("*.py")) if name.endswith(KINDS)}
    assert len(names) > 80
    assert missing(names - INTERNAL) == []


def test_every_command_is_in_the_tables(package: Path) -> None:
    source = "".join((package / "cli" / file).read_text() for file in ("cli.py", "install/__init__.py"))
    names = set(re.findall(r'command, name="([\w-]+)"\)', source))
    names |= set(re.findall(r"^@(?:\w+_)?app\.command\n(?:async )?def (\w+)", source, re.MULTILINE))
    assert {"run", "call", "goose", "prepare"} <= names
    assert missing(names) == []


def test_every_extra_and_every_helper_of_tests_is_in_the_tables(package: Path) -> None:
    extras = {folder.name for folder in (package / "contrib").iterdir() if (folder / "__init__.py").exists()}
    helpers = public(r"(?:async )?def", [package / "utilities" / "tests.py"])
    others = classes([*(package / "apps").glob("*.py"), package / "resources" / "types.py"])
    assert min(map(len, (extras, helpers, others))) > 2
    assert missing(extras | helpers | others) == []
