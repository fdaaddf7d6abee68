"""Finds what a program puts around its server where it serves it: ASGI middleware, and other ASGI apps.

Whoever takes the server out of such a program leaves that behind, and it may be what authenticates callers.
Reads the source, because a program serves in a function that nobody calls when the file is imported. It must
not know how the server is served.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["APPS", "GUARDS", "HARMLESS", "guards_server"]

APPS = ("streamable_http_app", "sse_app", "http_app")
"""The methods of other libraries that return an ASGI app of a server."""
GUARDS = ("middleware", "auth", "token_verifier", "auth_server_provider")
"""The options of these methods, and of those that run a server, by which a program authenticates callers."""
HARMLESS = frozenset(
    {
        "CORSMiddleware",
        "GZipMiddleware",
        "HTTPSRedirectMiddleware",
        "ProxyHeadersMiddleware",
        "RequestContextMiddleware",
        "SessionMiddleware",
        "TrustedHostMiddleware",
    }
)
"""ASGI middleware that authenticates nobody."""
_MAKES = frozenset({*APPS, "asgi"})
_RUNS = frozenset(
    {"run", "run_async", "run_http_async", "run_sse_async", "run_stdio_async", "run_streamable_http_async"}
)
_SERVERS = frozenset({"FastMCP", "MCPServer", "Server"})
"""Classes of servers, whose own middleware goes with them."""
_SERVES = frozenset(
    {"Config", "Host", "Mount", "add_route", "append", "extend", "host", "insert", "mount", "run", "serve"}
)
"""What takes an app and serves it as it is, at an address or at a path."""
_LOOKS = frozenset(
    {"ASGITransport", "AsyncClient", "Client", "TestClient", "isinstance", "len", "print", "repr", "type"}
)
"""What takes an app and does not serve it to others."""
_ASGI_ARGUMENTS = 3
_WORDS = (b"_app", b"asgi", b"middleware", b"auth")
"""One of these is in each program that puts something around its server."""


def guards_server(source: bytes) -> bool:
    """Return whether a program puts something around its server that may authenticate callers."""
    if not any(word in source for word in _WORDS):
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # it was imported, so that it is no Python source
        return False
    nodes = list(ast.walk(tree))
    apps = _Apps(nodes)
    return any(_guards(node, apps) for node in nodes if isinstance(node, ast.Call)) or any(
        map(_adds_guard, _run_as_program(nodes))
    )


class _Apps:
    """The expressions of a program that are an ASGI app with its server, by the names that they have."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._names: set[str] = set()
        found = -1
        while found != len(self._names):
            found = len(self._names)
            for node in nodes:
                self._names.update(self._named_by(node))
        self.are_made = any(isinstance(node, ast.Call) and self.has(node) for node in nodes)

    def has(self, node: ast.AST | None) -> bool:
        """Return whether an expression is an app."""
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            return name in _MAKES or name in self._names or (name not in _LOOKS and self.are_in(node))
        return isinstance(node, ast.Name | ast.Attribute) and _last_name(node) in self._names

    def are_in(self, call: ast.Call) -> bool:
        """Return whether an argument of a call is an app, or a list with one."""
        return any(
            any(map(self.has, value.elts)) if isinstance(value, ast.List | ast.Tuple) else self.has(value)
            for value in _values(call)
        )

    def _named_by(self, node: ast.AST) -> Iterator[str]:
        """Yield the names that stand for an app because of a statement."""
        if isinstance(node, ast.Assign) and self.has(node.value):
            yield from filter(None, map(_last_name, node.targets))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and self.has(node.value):
            yield _last_name(node.target)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returned = (each for each in ast.walk(node) if isinstance(each, ast.Return))
            if any(self.has(each.value) for each in returned):
                yield node.name
        elif isinstance(node, ast.Call) and _last_name(node.func) == "mount" and self.are_in(node):
            yield _last_name(getattr(node.func, "value", node))


def _guards(call: ast.Call, apps: _Apps) -> bool:
    """Return whether a call puts something around an app, or passes it on to the server that makes one."""
    name = _last_name(call.func)
    options = {each.arg: each.value for each in call.keywords}
    if name in _RUNS | _MAKES:
        given = [options[option] for option in GUARDS if option in options]
        if name in _MAKES:
            given += [each for each in call.args if isinstance(each, ast.List)]
        if not all(map(_is_harmless, given)):
            return True
    if not apps.are_made:
        return False
    if name == "add_middleware":
        first = call.args[0] if call.args else None
        # An instance is middleware of FastMCP, which goes with its server.
        return not isinstance(first, ast.Call) and _last_name(first) not in HARMLESS
    if name == "middleware":  # @app.middleware("http")
        return True
    if name not in _SERVERS and not _is_harmless(options.get("middleware")):
        return True
    if len(call.args) == _ASGI_ARGUMENTS and isinstance(call.func, ast.Name) and apps.has(call.func):
        return True  # an ASGI app of the program calls the other one
    is_passed_on = any(map(apps.has, _values(call)))
    return is_passed_on and name not in _SERVES | _LOOKS | HARMLESS


def _run_as_program(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield what is run only if a file is run as a program: such a block, and the functions that it calls."""
    functions = {
        each.name: each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for block in nodes:
        if isinstance(block, ast.If) and "__name__" in map(_last_name, ast.walk(block.test)):
            for node in ast.walk(block):
                yield node
                if isinstance(node, ast.Call) and (called := functions.get(_last_name(node.func))):
                    yield from ast.walk(called)


def _adds_guard(node: ast.AST) -> bool:
    """Return whether a statement gives a server authentication or middleware."""
    if isinstance(node, ast.Assign):
        is_empty = isinstance(node.value, ast.Constant) and not node.value.value
        return not is_empty and any(
            isinstance(each, ast.Attribute) and each.attr in GUARDS for each in node.targets
        )
    if not isinstance(node, ast.Call) or _last_name(node.func) != "add_middleware" or not node.args:
        return False
    first = node.args[0]
    return _last_name(first.func if isinstance(first, ast.Call) else first) not in HARMLESS


def _is_harmless(value: ast.AST | None) -> bool:
    """Return whether an option is left out or empty, or lists middleware that authenticates nobody."""
    if value is None or (isinstance(value, ast.Constant) and not value.value):
        return True
    if not isinstance(value, ast.List | ast.Tuple):
        return False
    return all(
        isinstance(each, ast.Call) and bool(each.args) and _last_name(each.args[0]) in HARMLESS
        for each in value.elts
    )


def _values(call: ast.Call) -> Iterator[ast.AST]:
    yield from call.args
    yield from (each.value for each in call.keywords)


def _last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name; an empty text for another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
