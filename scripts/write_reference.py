"""Writes docs/reference/api/*.md from the signatures and docstrings of the public API.

`make reference` does it; with `--check` it only says whether they are up to date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import antiphon
import antiphon.client
import antiphon.errors
import antiphon.testing
from antiphon.runtime.authoring import options

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference" / "api"
WIDTH = 100
NOTE = "<!-- Made from the docstrings by `make reference`; changes belong there. -->"


def pages() -> dict[str, str]:
    """Every page, by its name."""
    public = {name: getattr(antiphon, name) for name in antiphon.__all__}
    errors = [antiphon.errors.AntiphonError, *_errors()]
    apart = {"Server", "Context", "Limits", "Client", "Stream", "shed_after", "BearerTokens", "Principal"}
    values = [value for name, value in sorted(public.items()) if name not in apart and value not in errors]
    options_of = [options.ToolOptions, options.ResourceOptions, options.PromptOptions]
    server = [public[name] for name in ("Server", "Limits", "BearerTokens", "Principal", "shed_after")]
    client = [public["Client"], antiphon.client.TaskHandle, public["Stream"]]
    testing = [getattr(antiphon.testing, name) for name in antiphon.testing.__all__]
    return {
        "server": _page("Server", "What an author makes a server of.", [*server, *options_of]),
        "context": _page("Context", "What a function may know, say, ask and do.", [public["Context"]]),
        "client": _page("Client", "What calls a server.", client),
        "values": _page("Values", "What functions take and return, and what clients get.", values),
        "errors": _page("Errors", _tree(), errors),
        "testing": _page("antiphon.testing", "Testing tools without a server process.", testing),
    }


def main() -> int:
    """Write the pages, or with `--check` say which are out of date."""
    made = {TARGET / f"{name}.md": text for name, text in pages().items()}
    if "--check" in sys.argv:
        stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: make reference")
        return int(bool(stale))
    TARGET.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text)
    return 0


def _page(title: str, intro: str, members: list[Any]) -> str:
    parts = [f"# {title}", NOTE, intro, *(_member(member) for member in members)]
    return "\n\n".join(parts) + "\n"


def _member(member: Any) -> str:
    if not inspect.isclass(member):
        return "\n\n".join([f"## {member.__name__}", _signature(member.__name__, member), _doc(member)])
    parts = [f"## {member.__name__}", *_made(member), _doc(member)]
    fields = _fields(member)
    if fields:
        rows = [f"| `{name}` | `{kind}` | {text} |" for name, kind, text in fields]
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]))
    for name, value in vars(member).items():
        if name.startswith("_") or (dataclasses.is_dataclass(member) and name in member.__dataclass_fields__):
            continue
        if isinstance(value, property):
            kind = value.fget.__annotations__.get("return", "Any") if value.fget else "Any"
            parts.append(f"### {member.__name__}.{name}\n\n`{kind}`. {_doc(value)}")
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if function.__name__ != name:
                parts.append(f"### {member.__name__}.{name}\n\nThe same as `{function.__name__}`.")
                continue
            shown = f"{member.__name__}.{name}"
            parts.append(f"### {shown}\n\n{_signature(name, function)}\n\n{_doc(function)}".rstrip())
    return "\n\n".join(part for part in parts if part)


def _made(member: type[Any]) -> list[str]:
    """How one is made, if that is for the user to do."""
    if (
        issubclass(member, dict)
        or dataclasses.is_dataclass(member)
        or "__init__" not in vars(member)
        or not inspect.isfunction(member.__init__)
    ):
        return []
    if member.__name__ in ("Context", "TaskHandle", "Stream"):
        return []
    return [_signature(member.__name__, member.__init__)]


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    parameters = [_parameter(each) for each in _without_self(found)]
    gives = found.return_annotation
    ends = "" if gives is inspect.Signature.empty or name[0].isupper() else f" -> {gives}"
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    marked = _marked(found, parameters)
    line = f"{prefix}{name}({', '.join(marked)}){ends}"
    if len(line) > WIDTH:
        line = f"{prefix}{name}(\n" + "".join(f"    {each},\n" for each in marked) + f"){ends}"
    return f"```py\n{line}\n```"


def _parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    text = f"{stars}{each.name}" + ("" if each.annotation is each.empty else f": {each.annotation}")
    if each.default is each.empty:
        return text
    default = repr(each.default)
    return f"{text} = {'…' if default.startswith('<') else default}"


def _without_self(found: inspect.Signature) -> list[inspect.Parameter]:
    return [each for each in found.parameters.values() if each.name not in ("self", "cls")]


def _marked(found: inspect.Signature, parameters: list[str]) -> list[str]:
    """The parameters, with the marks for those that have no name, or nothing but one."""
    marked: list[str] = []
    kinds = [each.kind for each in _without_self(found)]
    for number, (kind, text) in enumerate(zip(kinds, parameters, strict=True)):
        before = kinds[number - 1] if number else None
        if before is inspect.Parameter.POSITIONAL_ONLY and kind is not before:
            marked.append("/")
        if kind is inspect.Parameter.KEYWORD_ONLY and before not in (kind, inspect.Parameter.VAR_POSITIONAL):
            marked.append("*")
        marked.append(text)
    return marked


def _doc(member: Any) -> str:
    return inspect.cleandoc(member.__doc__ or "")


def _fields(member: type[Any]) -> list[tuple[str, str, str]]:
    """The annotated names of a class that is made of them, with what is said of each below it."""
    if not (
        dataclasses.is_dataclass(member)
        or hasattr(member, "__struct_fields__")
        or hasattr(member, "__total__")
    ):
        return []
    found = []
    for base in reversed(member.__mro__ if not hasattr(member, "__total__") else _written(member)):
        if base.__module__.partition(".")[0] != "antiphon":
            continue
        found += _annotated(base)
    return found


def _written(member: type[Any]) -> list[type[Any]]:
    """A TypedDict, and those it was written on top of, which Python forgets."""
    return [member, options._Common]


def _annotated(base: Any) -> list[tuple[str, str, str]]:
    if not inspect.isclass(base):
        return []
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
    assert isinstance(tree, ast.ClassDef)
    found: list[tuple[str, str, str]] = []
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, kind = statement.target.id, ast.unparse(statement.annotation)
        if name.startswith("_") or "ClassVar" in kind:
            continue
        said = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            said = " ".join(str(following.value.value).split())
        if (default := _default(statement.value)) is not None:
            said = f"{said} Default: `{default}`.".strip()
        found.append((name, kind.replace("|", "\\|"), said.replace("|", "\\|")))
    return found


def _default(value: ast.expr | None) -> str | None:
    """What stands after the equals sign, if it is one that a user can see."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        made = given.get("default_factory")
        return given.get("default", f"{made}()" if made else None)
    return None if value is None else ast.unparse(value)


def _errors() -> list[type[Any]]:
    """All errors, each after the one it is a kind of."""
    every = [getattr(antiphon.errors, name) for name in antiphon.errors.__all__]

    def below(parent: type[Any]) -> list[type[Any]]:
        return [each for child in every if child.__bases__[0] is parent for each in (child, *below(child))]

    return below(antiphon.errors.AntiphonError)


def _tree() -> str:
    drawn = (antiphon.errors.__doc__ or "").partition("\n\n")[2]
    said, _, tree = drawn.partition("\n\n")
    return f"{said}\n\n```text\n{textwrap.dedent(tree).rstrip()}\n```"


if __name__ == "__main__":
    sys.exit(main())
