"""Loads the `Server` that a target such as `FILE[:NAME]` names.

Imports the author's file. Errors in that file are reported with the author's part of the traceback only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import is_python_file, split_target
from antiphon.errors import AntiphonError, DefinitionError
from antiphon.handover import HandedOver, taking_over
from antiphon.server import Server

__all__ = ["adopt_loaded", "load_server"]

_PACKAGE = Path(__file__).parents[2]
_OTHER_LIBRARIES = ("fastmcp", "mcp")
_PREFERRED_NAMES = ("server", "app", "mcp")


def load_server(
    target: str, tasks: Sequence[str] = (), *, allow_anonymous: bool = False, is_private: bool = False
) -> Server:
    """Load the server from a Python file or a module, and adopt a server of another library.

    `tasks` names the tools of an adopted server that callers can run as tasks. With `allow_anonymous`, an
    adopted server has no authentication. If the process `is_private`, it has none either, but tells a gateway
    that it would have. Raises `CommandError`.
    """
    place, name = split_target(target)
    if Path(place).is_dir() and not Path(place, "__init__.py").exists():
        raise CommandError(
            f"{place} is a directory. Name a Python file in it, for example {Path(place, 'server.py')}."
        )
    load = _import_file if is_python_file(target) or "/" in place else _import_module
    guarded: list[Any] = []
    before = set(sys.modules)
    try:
        with taking_over(), _handing_over(guarded):
            module = load(place)
    except HandedOver as handed_over:
        module = _unfinished_module(handed_over)
        found = handed_over.server if name is None else _find_server(module, place, name)
    else:
        found = _find_server(module, place, name)
    if isinstance(found, Server) and tasks:
        raise CommandError(
            f'--task is for servers of other libraries. In {place}, write @server.tool(task="optional").'
        )
    is_guarded = any(each is found for each in guarded) or _has_guard(module, before)
    if is_guarded and not (allow_anonymous or is_private):
        raise CommandError(
            f"{place} gives its server ASGI middleware or authentication where it runs it or makes an app of "
            "it. Antiphon does not use that, and it may be what authenticates callers. Give the server "
            "itself the authentication. Or run the program as it is, and name its URL to antiphon gateway. "
            "To serve without what is around the server, pass --allow-anonymous.",
            FAILED,
        )
    if not isinstance(found, Server):
        return adopt_loaded(
            found, tasks, allow_anonymous=allow_anonymous, is_private=is_private, is_guarded=is_guarded
        )
    if is_guarded and not allow_anonymous:
        found.engine.authenticates_elsewhere = lambda: True
    return found


def _has_guard(module: ModuleType, before: Collection[str]) -> bool:
    """Return whether a program puts a guard around its server, in its file or in one that it has imported."""
    from antiphon.adoption.guards import guards_server

    file = getattr(module, "__file__", None)
    if file is None:
        return False
    folder = Path(file).resolve().parent
    imported = [getattr(each, "__file__", None) for name, each in sys.modules.items() if name not in before]
    own = {Path(each).resolve() for each in imported if each is not None}
    files = {Path(file).resolve(), *(each for each in own if _is_beside(each, folder))}
    return any(guards_server(each.read_bytes()) for each in files if each.suffix == ".py")


def _is_beside(file: Path, folder: Path) -> bool:
    """Return whether a file is one of the program, and of no package that it has installed."""
    return file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts


def adopt_loaded(
    server: Any, tasks: Sequence[str], *, allow_anonymous: bool, is_private: bool, is_guarded: bool
) -> Server:
    """Return the `Server` for a server of another library; raises `CommandError`.

    `is_guarded` says whether its program has something in front of it that may authenticate callers.
    """
    from antiphon.adoption.adopt import adopt
    from antiphon.adoption.own_authentication import checks_callers

    options: dict[str, Any] = {"authenticate": None} if allow_anonymous or is_private else {}
    try:
        adopted = adopt(server, tasks=tasks, **options)
    except DefinitionError as error:
        raise CommandError(str(error), FAILED) from None
    if is_private and not allow_anonymous:
        adopted.engine.authenticates_elsewhere = lambda: is_guarded or checks_callers(server)
    return adopted


def _import_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.exists():
        raise CommandError(f"There is no file {path}.")
    if path.is_dir() or path.suffix != ".py":
        raise CommandError(f"{path} is not a Python file.")
    path = path.resolve()
    # Like `python FILE`, so that the file can import modules from its own directory.
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"antiphon_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _import_error(str(path), error) from error
    return module


def _handing_over(guarded: list[Any]) -> AbstractContextManager[None]:
    """Hand over the server of another library that is run while a file or a module is imported."""
    from antiphon.adoption.programs import intercepting_run

    async def serve(server: Any) -> None:
        raise HandedOver(server)

    return intercepting_run(serve, guarded=guarded)


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandError(
                f"There is no module {name}. To name a file, write its extension: {name}.py."
            ) from None
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error


def _unfinished_module(handed_over: HandedOver) -> ModuleType:
    """Return the module that ran a server while it was imported, with everything defined before that."""
    module = ModuleType("unfinished")
    for frame, _ in traceback.walk_tb(handed_over.__traceback__):
        if frame.f_code.co_name == "<module>":
            vars(module).update(frame.f_globals)
            break
    return module


def _find_server(module: ModuleType, place: str, name: str | None) -> Any:
    """Return the `Server` in a module, or the server of another library if it has none of ours."""
    if name is not None:
        found = getattr(module, name, None)
        if isinstance(found, Server) or _is_adoptable(found):
            return found
        if found is None:
            raise CommandError(f"There is no Server {name!r} in {place}: the file does not define this name.")
        raise CommandError(f"{name!r} in {place} is not a Server: its type is {type(found).__name__}.")
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if not servers:
        servers = {key: value for key, value in vars(module).items() if _is_adoptable(value)}
    if not servers:
        raise CommandError(
            f"There is no Server in {place}. Create one: from antiphon import Server; "
            f'server = Server("name"). If {place} creates the server in a function, run it as a program: '
            f"antiphon run -- python {place}."
        )
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    for preferred in _PREFERRED_NAMES:
        if preferred in servers:
            return servers[preferred]
    first = next(iter(servers))
    raise CommandError(f"{place} has several servers: {', '.join(servers)}. Name one: {place}:{first}.")


def _is_adoptable(value: Any) -> bool:
    """Return whether a value is a server of another library that can be adopted."""
    if all(base.__module__.partition(".")[0] not in _OTHER_LIBRARIES for base in type(value).__mro__):
        return False
    from antiphon.adoption.adopt import is_adoptable

    return is_adoptable(value)


def _import_error(place: str, error: BaseException) -> CommandError:
    """Return the error to report for an exception that the author's file raised."""
    if isinstance(error, SystemExit):
        return CommandError(f"{place} exited with code {error.code} while it was imported.", FAILED)
    shown = traceback.TracebackException(
        type(error), error, _author_traceback(error.__traceback__), compact=True
    )
    if isinstance(error, AntiphonError | ValueError | TypeError):
        # The author's code passed something wrong. The frames inside the library do not help to find it.
        frames = [frame for frame in shown.stack if not _is_library_frame(frame)]
        shown.stack = traceback.StackSummary.from_list(frames)
    if isinstance(error, DefinitionError) and shown.stack:
        last = shown.stack[-1]
        return CommandError(f"{last.filename}, line {last.lineno}: {error}", FAILED)
    return CommandError(f"Cannot import {place}.", FAILED, details="".join(shown.format()))


def _is_library_frame(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<") or Path(frame.filename).is_relative_to(_PACKAGE)


def _author_traceback(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames of this module and of the import system."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            return trace
        trace = trace.tb_next
    return None
