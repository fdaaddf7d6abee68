"""From `FILE[:name]` to the `Server` in it. Runs the author's file, and tells whose fault an error is."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.errors import AntiphonError, DefinitionError
from antiphon.server import Server

__all__ = ["is_file", "load", "split"]

_PACKAGE = Path(__file__).parents[2]
_OTHERS = ("fastmcp", "mcp")
_PREFERRED = ("server", "app", "mcp")
_NAMED = re.compile(r"(?P<place>.{2,}):(?P<name>[A-Za-z_]\w*)\Z")  # two characters, so that C:\ is no name


def split(target: str) -> tuple[str, str | None]:
    """The file or module, and the name of the server in it if one is given."""
    match = _NAMED.match(target)
    return (match["place"], match["name"]) if match else (target, None)


def is_file(target: str) -> bool:
    """Whether a target names a Python file, there or not."""
    return "://" not in target and split(target)[0].endswith(".py")


def load(target: str) -> Server:
    """The server in a Python file or in a module; raises `CommandError`."""
    place, name = split(target)
    if Path(place).is_dir() and not Path(place, "__init__.py").exists():
        raise CommandError(
            f"{place} is a directory: name the Python file in it, {Path(place, 'server.py')} say."
        )
    module = _from_file(Path(place)) if is_file(target) or "/" in place else _from_module(place)
    return _find(module, place, name)


def _from_file(path: Path) -> ModuleType:
    if not path.exists():
        raise CommandError(f"There is no file {path}.")
    if path.is_dir() or path.suffix != ".py":
        raise CommandError(f"{path} is not a Python file.")
    path = path.resolve()
    # As `python FILE` does it, so that the file can import its neighbours.
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
        raise _broken(str(path), error) from error
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandError(
                f"There is no module {name}, and no file of that name. A file is named with its .py."
            ) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _find(module: ModuleType, place: str, name: str | None) -> Server:
    if name is not None:
        found = getattr(module, name, None)
        if isinstance(found, Server):
            return found
        what = "has no such name" if found is None else f"has a value of type {type(found).__name__} there"
        raise CommandError(f"There is no Server {name!r} in {place}: it {what}.")
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if not servers:
        raise CommandError(_none(module, place))
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    for preferred in _PREFERRED:
        if preferred in servers:
            return servers[preferred]
    first = next(iter(servers))
    raise CommandError(
        f"There are several Servers in {place}: {', '.join(servers)}. Say which one: {place}:{first}."
    )


def _none(module: ModuleType, place: str) -> str:
    for name, value in vars(module).items():
        library = type(value).__module__.partition(".")[0]
        if library in _OTHERS and type(value).__name__ in ("FastMCP", "MCPServer", "Server"):
            return (
                f"There is no Server of Antiphon's in {place}: {name} is a {type(value).__name__} of "
                f"{library}. Most of such a file stays as it is; begin with: from antiphon import Server; "
                f'{name} = Server("name"). See docs/howto/moving.md.'
            )
    return f'There is no Server in {place}. Write one: from antiphon import Server; server = Server("name").'


def _broken(place: str, error: BaseException) -> CommandError:
    """The error of the author's, with the part of its traceback that is about their code."""
    if isinstance(error, SystemExit):
        return CommandError(f"{place} ended itself while it was loaded, with code {error.code}.", FAILED)
    told = traceback.TracebackException(type(error), error, _theirs(error.__traceback__), compact=True)
    if isinstance(error, AntiphonError | ValueError | TypeError):
        # What they wrote is wrong, and how we found out is of no use to them.
        told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not _is_ours(frame)])
    if isinstance(error, DefinitionError) and told.stack:
        last = told.stack[-1]
        return CommandError(f"{last.filename}, line {last.lineno}: {error}", FAILED)
    return CommandError(f"{place} could not be loaded.", FAILED, details="".join(told.format()))


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<") or Path(frame.filename).is_relative_to(_PACKAGE)


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where our own frames and those of the import machinery end."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            return trace
        trace = trace.tb_next
    return None
