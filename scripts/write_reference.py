"""Writes docs/reference/api/*.md from the signatures and docstrings of the public API.

`make reference` runs it. With `--check` it writes nothing, and fails if a page is out of date.

The reference lists a class's methods, properties and fields, and the attributes that have a docstring below
their assignment. An attribute that only the library uses has a comment in place of a docstring.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import antiphon
import antiphon.agents
import antiphon.client
import antiphon.errors
import antiphon.middleware
import antiphon.testing
from antiphon import authentication
from antiphon.agents import model_tools
from antiphon.client import callbacks
from antiphon.client.inbox.requests import InboxClient
from antiphon.gateway.options import MountOptions
from antiphon.model import capabilities, catalog, identity, notification, outcome, question, task, ui
from antiphon.openapi import options as api_options
from antiphon.openapi.factories import ApiFactories
from antiphon.runtime import middleware
from antiphon.runtime.authoring import options
from antiphon.runtime.execution.call_context import CallContext
from antiphon.runtime.execution.waiting_context import WaitingContext
from antiphon.server_switches import ServerSwitches
from antiphon.testing import calls

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference" / "api"
WIDTH = 100
NOTE = "<!-- Made from the docstrings by `make reference`; changes belong there. -->"

CREATED_BY_THE_LIBRARY = {
    "Context",
    "HttpRequest",
    "InboxChanges",
    "InboxItem",
    "ModelTools",
    "Stream",
    "TaskHandle",
}
"""Classes that users never construct: the reference shows no constructor."""
PLUMBING = {
    "Console.attach",
    "HttpResponse.send",
    "Server.engine",
    "TaskHandle.drive",
    "TaskStatus.visible_state",
    "ToolDefinition.execution_for",
    "UiSettings.to_meta",
}
"""Members for transports, gateways and the library itself. Authors and callers have no use for them."""

PARTS = (ApiFactories, CallContext, WaitingContext, InboxClient, ServerSwitches)
"""Classes with some of the methods of a public class, which inherits from them."""


@dataclasses.dataclass(frozen=True)
class Alias:
    """A type alias. Python does not keep its name and its docstring, so the module's source is read."""

    module: ModuleType
    name: str


def members() -> dict[str, list[Any]]:
    """Return what is public, by the page that has it."""
    public = {name: getattr(antiphon, name) for name in antiphon.__all__}
    errors = [antiphon.errors.AntiphonError, *_errors()]
    server = [
        public["Server"],
        options.ToolOptions,
        options.ResourceOptions,
        options.UiOptions,
        options.CspOptions,
        options.PromptOptions,
        MountOptions,
        api_options.OpenAPIOptions,
        api_options.FastAPIOptions,
        api_options.OperationFilter,
        api_options.Operation,
        public["Limits"],
        Alias(authentication, "Authenticate"),
        public["BearerTokens"],
        public["Console"],
        public["IssuedTokens"],
        public["Issuer"],
        public["Principal"],
        public["HttpRequest"],
        public["HttpResponse"],
        public["Depends"],
        public["shed_after"],
        public["adopt"],
    ]
    around = [
        Alias(middleware, "Middleware"),
        Alias(middleware, "CallNext"),
        antiphon.middleware.IncomingRequest,
        antiphon.middleware.RateLimit,
        antiphon.middleware.AuditLog,
    ]
    client = [
        public["Client"],
        public["ClientGroup"],
        antiphon.client.TaskHandle,
        antiphon.client.InboxItem,
        antiphon.client.InboxChanges,
        antiphon.client.InboxChange,
        antiphon.client.TaskStatus,
        public["OAuth"],
        public["IdTokenExchange"],
        public["FileLogins"],
        public["KeyringLogins"],
        public["MemoryLogins"],
        public["Stream"],
        public["Segment"],
        Alias(callbacks, "ElicitCallback"),
        antiphon.client.Elicitation,
        Alias(callbacks, "SampleCallback"),
        Alias(callbacks, "Roots"),
        Alias(callbacks, "RequestHandler"),
    ]
    returned = [
        capabilities.ServerCapabilities,
        catalog.PromptArgument,
        catalog.PromptDefinition,
        catalog.ResourceDefinition,
        catalog.TemplateDefinition,
        catalog.ToolDefinition,
        identity.Implementation,
        notification.ListChanged,
        notification.Log,
        notification.Progress,
        notification.ResourceUpdated,
        outcome.PromptResult,
        outcome.ReadResult,
        question.ElicitResult,
        question.Root,
        question.SampleResult,
        task.Fault,
        ui.UiCsp,
        ui.UiSettings,
    ]
    testing = [
        antiphon.testing.rehearse,
        antiphon.testing.check_replay,
        Alias(calls, "Answers"),
        antiphon.testing.Rehearsal,
        antiphon.testing.AskedQuestion,
        antiphon.testing.Clock,
        antiphon.testing.assert_tools_match,
        antiphon.testing.record,
        antiphon.testing.replay,
        antiphon.testing.replay_history,
        antiphon.testing.ReplayedHistory,
    ]
    agents = [
        antiphon.agents.openai_tools,
        antiphon.agents.anthropic_tools,
        antiphon.agents.ModelToolOptions,
        antiphon.agents.ModelTools,
        antiphon.agents.ToolUse,
        Alias(model_tools, "SegmentCallback"),
        antiphon.agents.openai_sampler,
        antiphon.agents.anthropic_sampler,
    ]
    elsewhere = [public["Context"], *server, *client, *errors]
    values = [*(value for value in public.values() if value not in elsewhere), *returned]
    values.sort(key=lambda value: str(value.__name__))
    return {
        "server": server,
        "context": [public["Context"]],
        "middleware": around,
        "client": client,
        "values": values,
        "errors": errors,
        "agents": agents,
        "testing": testing,
    }


def functions() -> dict[str, Any]:
    """Return each public function, class and method by its name, with the function that is its own.

    It is `None` for a class that only holds values, and for a type.
    """
    found: dict[str, Any] = {}
    for member in (each for page in members().values() for each in page):
        if isinstance(member, Alias):
            found[member.name] = None
        elif not inspect.isclass(member):
            found[member.__name__] = member
        else:
            made = vars(member).get("__init__")
            found[member.__name__] = made if inspect.isfunction(made) and not _is_generated(made) else None
            found |= {f"{member.__name__}.{name}": function for name, function in _methods(member).items()}
    return found


def pages() -> dict[str, str]:
    """Return every page, by its name."""
    titles = {
        "server": ("Server", "Create a server, register functions, and run it."),
        "context": ("Context", "The call that a function handles."),
        "middleware": ("antiphon.middleware", "Code around every request of a server."),
        "client": ("Client", "Call tools, read resources, and follow tasks and streams."),
        "values": ("Values", "Values that functions take and return, and that clients receive."),
        "errors": ("Errors", _tree()),
        "agents": ("antiphon.agents", "Give the tools of servers to models."),
        "testing": ("antiphon.testing", "Test tools without a server process."),
    }
    return {name: _page(*titles[name], found) for name, found in members().items()}


def main() -> int:
    """Write the pages, or with `--check` print the ones that are out of date."""
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
    if isinstance(member, Alias):
        return _alias(member)
    if not inspect.isclass(member):
        return "\n\n".join([f"## {member.__name__}", _signature(member.__name__, member), _doc(member)])
    parts = [f"## {member.__name__}", *_constructor(member), _doc(member)]
    fields = _fields(member)
    if fields:
        rows = [f"| `{name}` | `{kind}` | {text} |" for name, kind, text in fields]
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]))
    for name, value in _public(member).items():
        shown = f"{member.__name__}.{name}"
        if isinstance(value, property):
            kind = value.fget.__annotations__.get("return", "Any") if value.fget else "Any"
            parts.append(f"### {shown}\n\n`{kind}`. {_doc(value)}")
        elif (function := _function(value)) is not None:
            if function.__name__ != name:
                parts.append(f"### {shown}\n\nThe same as `{function.__name__}`.")
                continue
            parts.append(f"### {shown}\n\n{_signature(name, function)}\n\n{_doc(function)}".rstrip())
    return "\n\n".join(part for part in parts if part)


def _public(member: type[Any]) -> dict[str, Any]:
    """Return the attributes of a class that its section shows, and fields of a dataclass elsewhere."""
    is_dataclass = dataclasses.is_dataclass(member)
    return {
        name: value
        for name, value in _attributes(member).items()
        if not name.startswith("_")
        and f"{member.__name__}.{name}" not in PLUMBING
        and not (is_dataclass and name in member.__dataclass_fields__)
    }


def _methods(member: type[Any]) -> dict[str, Any]:
    """Return the functions of a class's methods and properties, by their names."""
    found = {
        name: value.fget if isinstance(value, property) else _function(value)
        for name, value in _public(member).items()
    }
    return {name: function for name, function in found.items() if function is not None}


def _function(value: Any) -> Any:
    """Return the function of a method; `None` for another attribute."""
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) else None


def _is_generated(function: Any) -> bool:
    """Return whether no source has a function: a dataclass made it."""
    return not Path(function.__code__.co_filename).exists()


def _attributes(member: type[Any]) -> dict[str, Any]:
    """Return the attributes of a class, followed by those of the parts that it is made of."""
    found = dict(vars(member))
    for part in (base for base in member.__mro__[1:] if base in PARTS):
        found |= {name: value for name, value in vars(part).items() if name not in found}
    return found


def _alias(alias: Alias) -> str:
    """Return the section of a type alias."""
    body = ast.parse(inspect.getsource(alias.module)).body
    for statement, following in pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or ast.unparse(statement.target) != alias.name:
            continue
        assert statement.value is not None
        source = _double_quoted(ast.unparse(statement))
        return f"## {alias.name}\n\n```py\n{source}\n```\n\n{_string(following)}".rstrip()
    raise LookupError(f"{alias.module.__name__} has no type alias {alias.name}.")


def _double_quoted(source: str) -> str:
    """Return source with the quotes that ruff wants; `ast.unparse` writes single ones."""
    return source if '"' in source else source.replace("'", '"')


def _constructor(member: type[Any]) -> list[str]:
    """Return the constructor's signature, if users construct the class."""
    if (
        issubclass(member, dict)
        or dataclasses.is_dataclass(member)
        or "__init__" not in vars(member)
        or not inspect.isfunction(member.__init__)
    ):
        return []
    if member.__name__ in CREATED_BY_THE_LIBRARY:
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
    default = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", repr(each.default))
    if isinstance(each.default, antiphon.Principal | dict):
        default = "…"
    return f"{text} = {'…' if default.startswith('<') else default}"


def _without_self(found: inspect.Signature) -> list[inspect.Parameter]:
    return [each for each in found.parameters.values() if each.name not in ("self", "cls")]


def _marked(found: inspect.Signature, parameters: list[str]) -> list[str]:
    """Return the parameters, with `/` and `*` between positional-only, ordinary and keyword-only ones."""
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
    """Return a docstring, with its examples as blocks of code."""
    paragraphs = inspect.cleandoc(member.__doc__ or "").split("\n\n")
    return "\n\n".join(
        textwrap.indent(each, "    ") if each.startswith("async with ") else each for each in paragraphs
    )


def _fields(member: type[Any]) -> list[tuple[str, str, str]]:
    """Return the fields of a class: name, type and docstring."""
    if not (
        dataclasses.is_dataclass(member)
        or hasattr(member, "__struct_fields__")
        or hasattr(member, "__total__")
    ):
        return _documented(member)
    found = []
    for base in reversed(member.__mro__ if not hasattr(member, "__total__") else _written(member)):
        if base.__module__.partition(".")[0] != "antiphon":
            continue
        found += _annotated(base)
    return found


def _written(member: type[Any]) -> list[type[Any]]:
    """Return a TypedDict and its bases, which Python does not keep.

    The options of `Server` are left out: the reference has them at `Server`.
    """
    names = [base.id for base in _source(member).bases if isinstance(base, ast.Name)]
    left_out = ("TypedDict", "ServerOptions")
    bases = [vars(sys.modules[member.__module__])[name] for name in names if name not in left_out]
    return [member, *(each for base in reversed(bases) for each in _written(base))]


def _documented(member: type[Any]) -> list[tuple[str, str, str]]:
    """Return the attributes that have a docstring, in the class or in its constructor."""
    tree = _source(member)
    bodies = [tree.body]
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            bodies.append(statement.body)
    found: list[tuple[str, str, str]] = []
    for body in bodies:
        for statement, following in pairwise(body):
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or not (text := _string(following)):
                continue
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            name = ast.unparse(target).removeprefix("self.")
            if not name.startswith("_"):
                kind = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
                kind = kind.removeprefix("ClassVar[").removesuffix("]") if "ClassVar" in kind else kind
                kind = kind or _parameter_type(member, name)
                found.append((name, kind.replace("|", "\\|"), text.replace("|", "\\|")))
    return found


def _parameter_type(member: type[Any], name: str) -> str:
    """Return the type of the constructor's parameter that an attribute is named after."""
    parameter = inspect.signature(member).parameters.get(name)
    return "Any" if parameter is None or parameter.annotation is parameter.empty else parameter.annotation


def _source(member: type[Any]) -> ast.ClassDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(member))).body
    assert isinstance(tree, ast.ClassDef)
    return tree


def _string(statement: ast.stmt | None) -> str:
    """Return the text of a docstring, on one line; empty if the statement is no docstring."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _annotated(base: Any) -> list[tuple[str, str, str]]:
    if not inspect.isclass(base):
        return []
    tree = _source(base)
    found: list[tuple[str, str, str]] = []
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, kind = statement.target.id, ast.unparse(statement.annotation)
        if name.startswith("_") or "ClassVar" in kind:
            continue
        text = _string(following)
        if (default := _default(statement.value)) is not None:
            text = f"{text} Default: `{default}`.".strip()
        found.append((name, kind.replace("|", "\\|"), text.replace("|", "\\|")))
    return found


def _default(value: ast.expr | None) -> str | None:
    """Return the default value of a field as source code, or `None` if the field has none."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        made = given.get("default_factory")
        return given.get("default", f"{made}()" if made else None)
    return None if value is None else ast.unparse(value)


def _errors() -> list[type[Any]]:
    """Return all errors, each below its base class."""
    every = [getattr(antiphon.errors, name) for name in antiphon.errors.__all__]

    def below(parent: type[Any]) -> list[type[Any]]:
        return [each for child in every if child.__bases__[0] is parent for each in (child, *below(child))]

    return below(antiphon.errors.AntiphonError)


def _tree() -> str:
    """Return the introduction and the tree from the docstring of the module of errors."""
    text = (antiphon.errors.__doc__ or "").partition("\n\n")[2]
    introduction, _, tree = text.partition("\n\n")
    return f"{introduction}\n\n```text\n{textwrap.dedent(tree).rstrip()}\n```"


if __name__ == "__main__":
    sys.exit(main())
