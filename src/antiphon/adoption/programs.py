"""Intercepts the servers that a program runs: they are passed to this library instead.

Many programs build their server in `main`, so that there is no object to adopt before they run it. This
module replaces the methods that run a server as soon as the program imports its library. It imports no such
library itself, and must not know how an adopted server is served.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any

from antiphon.adoption.guards import APPS, GUARDS, HARMLESS
from antiphon.errors import DefinitionError

__all__ = ["Serve", "intercepting_run"]

Serve = Callable[[Any], Awaitable[None]]
"""Serves a server of another library in place of its own `run`, until the program should end."""

_RUN = ("run_stdio_async", "run_sse_async", "run_streamable_http_async")
_CLASSES: Mapping[str, tuple[str, Sequence[str]]] = {
    "mcp.server.mcpserver.server": ("MCPServer", _RUN),
    "mcp.server.fastmcp.server": ("FastMCP", _RUN),
    "fastmcp.server.server": ("FastMCP", ("run_async", "run_http_async", *_RUN)),
}
"""The classes whose methods run a server, by module."""
_LOW_LEVEL = "mcp.server.lowlevel.server"
_STDIO = "mcp.server.stdio"
_MANAGER = "mcp.server.streamable_http_manager"
_UVICORN = "uvicorn.server"
_MODULES = frozenset({*_CLASSES, _LOW_LEVEL, _STDIO, _MANAGER, _UVICORN})

_STREAM = object()
"""Stands for standard input and output, which the program must not read."""


@contextmanager
def intercepting_run(
    serve: Serve, *, ignores_middleware: bool = True, guarded: list[Any] | None = None
) -> Iterator[None]:
    """Call `serve` with each server that the block runs, also if its library is imported in the block.

    Unless `ignores_middleware`, a server that is run with ASGI middleware raises `DefinitionError`: the
    middleware would not be there, and it may be what authenticates callers. Servers that are run or made into
    an app with something of that kind are added to `guarded`.
    """
    finder = _Finder(serve, ignores_middleware=ignores_middleware, guarded=[] if guarded is None else guarded)
    sys.meta_path.insert(0, finder)
    try:
        for name in _MODULES.intersection(sys.modules):
            finder.replace(sys.modules[name])
        yield
    finally:
        sys.meta_path.remove(finder)
        finder.restore()


class _Finder(importlib.abc.MetaPathFinder):
    """Replaces the methods of a module after it was imported."""

    def __init__(self, serve: Serve, *, ignores_middleware: bool, guarded: list[Any]) -> None:
        self._serve = serve
        self._guarded = guarded
        self._ignores_middleware = ignores_middleware
        self._replaced: list[tuple[Any, str, Any]] = []
        self._apps: list[tuple[Any, Any]] = []
        """The ASGI apps that the program has made, each with its server; the newest is the last one."""
        self._middleware: dict[int, int] = {}
        """How much middleware each of them had then, by id."""
        self._is_served_by_http = False
        self._is_serving = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to import one of the modules; `None` for others."""
        if fullname not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            self.replace(module)

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec

    def replace(self, module: ModuleType) -> None:
        """Replace what runs a server in a module."""
        name = module.__name__
        if name == _STDIO:
            self._set(module, "stdio_server", _stdio_server)
        elif name == _MANAGER:
            manager = module.StreamableHTTPSessionManager
            self._set(manager, "__init__", self._noting_http(manager.__init__))
        elif name == _UVICORN:
            self._set(module.Server, "serve", self._uvicorn_serve(module.Server.serve))
        elif name == _LOW_LEVEL:
            self._set(module.Server, "run", self._low_level_run(module.Server.run))
            self._note_apps(module.Server)
        else:
            class_name, methods = _CLASSES[name]
            owner = getattr(module, class_name)
            for method in methods:
                if hasattr(owner, method):
                    self._set(owner, method, self._run)
            self._note_apps(owner)

    def restore(self) -> None:
        """Put the methods back."""
        for owner, name, before in reversed(self._replaced):
            setattr(owner, name, before)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    async def _serve_once(self, server: Any) -> None:
        self._is_serving = True
        try:
            await self._serve(server)
        finally:
            self._is_serving = False

    @property
    def _run(self) -> Callable[..., Awaitable[None]]:
        async def run(server: Any, *arguments: Any, **options: Any) -> None:
            if self._is_guarded(server, options):
                raise _has_middleware()
            await self._serve_once(server)

        return run

    def _is_guarded(self, server: Any, options: Mapping[str, Any]) -> bool:
        """Return whether something guards a server where it is run or made into an app, if that counts."""
        return self._note_guarded(server) if any(map(_is_guard, map(options.get, GUARDS))) else False

    def _note_guarded(self, server: Any) -> bool:
        self._guarded.append(server)
        return not self._ignores_middleware

    def _note_apps(self, owner: Any) -> None:
        """Remember of which server the apps are that a class makes."""
        for name in APPS:
            if hasattr(owner, name):
                self._set(owner, name, self._noting_app(getattr(owner, name)))

    def _noting_app(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def make_and_note(server: Any, *arguments: Any, **options: Any) -> Any:
            app = make(server, *arguments, **options)
            given = inspect.signature(make).bind_partial(server, *arguments, **options).arguments
            if self._is_guarded(server, {**given, **options}):
                self._is_served_by_http = True
            else:
                self._apps.append((app, server))
                self._middleware[id(app)] = len(getattr(app, "user_middleware", ()))
            return app

        return make_and_note

    def _noting_http(self, initialize: Callable[..., None]) -> Callable[..., None]:
        def initialize_and_note(manager: Any, *arguments: Any, **options: Any) -> None:
            self._is_served_by_http = True
            initialize(manager, *arguments, **options)

        return initialize_and_note

    def _uvicorn_serve(self, run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def run_or_serve(uvicorn: Any, *arguments: Any, **options: Any) -> None:
            app = uvicorn.config.app
            found = next((server for made, server in reversed(self._apps) if made is app), None)
            if self._is_serving or (found is None and not self._apps and not self._is_served_by_http):
                await run(uvicorn, *arguments, **options)  # it serves this library, or something else
            elif found is not None:
                added = getattr(app, "user_middleware", ())
                added = added[: len(added) - self._middleware[id(app)]]  # the newest comes first
                if _is_guard(added) and self._note_guarded(found):
                    raise _has_middleware()
                uvicorn.started = True  # otherwise `uvicorn.run` takes the end for a failure
                await self._serve_once(found)
            else:
                raise DefinitionError(
                    "The program serves MCP inside an ASGI app of its own, which can have other routes and "
                    "middleware, so Antiphon cannot serve in its place. Name the server object: antiphon run "
                    "FILE:NAME. Or run the program as it is, behind a gateway: antiphon gateway URL."
                )

        return run_or_serve

    def _low_level_run(self, run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def run_or_serve(server: Any, read_stream: Any, *arguments: Any, **options: Any) -> None:
            if read_stream is _STREAM:
                await self._serve_once(server)
            else:  # a transport of the program's own
                await run(server, read_stream, *arguments, **options)

        return run_or_serve


def _is_guard(option: Any) -> bool:
    """Return whether an option may authenticate callers, and is not only middleware that does not."""
    if not isinstance(option, list | tuple):
        return bool(option)
    return any(getattr(getattr(each, "cls", None), "__name__", "") not in HARMLESS for each in option)


def _has_middleware() -> DefinitionError:
    return DefinitionError(
        "The program runs its server with ASGI middleware. Antiphon does not use it, and it may be what "
        "authenticates callers. Run the program as it is, behind a gateway: antiphon gateway URL. To serve "
        "without the middleware, pass --allow-anonymous."
    )


@asynccontextmanager
async def _stdio_server(*arguments: Any, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Stands in for the SDK's transport, and leaves standard input and output alone."""
    yield _STREAM, _STREAM
