"""The pytest plugin: fixtures for a server of the project, its client, its clock, and snapshots of its lists.

Pytest imports this module at the start of every test run of every project that has Antiphon installed. So it
imports the library, and plugins of others, only where a test uses a fixture.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.server import Server
    from antiphon.testing.clock import Clock

__all__: list[str] = []

_UPDATE_OPTION = "--antiphon-update-snapshots"
_ASYNCIO_FIXTURES = "antiphon_asyncio_fixtures"
_LOOP_SCOPES: tuple[Literal["function", "class", "module", "package", "session"], ...] = (
    "function",
    "class",
    "module",
    "package",
    "session",
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options of the plugin, and let Python import the library as it always does."""
    _do_not_rewrite_library(pluginmanager.rewrite_hook)
    group = parser.getgroup("antiphon", "Antiphon")
    group.addoption(
        "--antiphon-server", metavar="FILE", help="the server of the fixture antiphon_server: FILE[:NAME]"
    )
    group.addoption(_UPDATE_OPTION, action="store_true", help="write the snapshots of tools anew")
    parser.addini("antiphon_server", "the server of the fixture antiphon_server: FILE[:NAME]", default="")


def _do_not_rewrite_library(hook: object) -> None:
    """Take the library from the packages whose assertions pytest rewrites.

    Pytest adds every package that has a plugin. It would compile all modules of the library again, also for
    projects that use no fixture.
    """
    getattr(hook, "_must_rewrite", set[str]()).discard("antiphon")
    getattr(hook, "_marked_for_rewrite_cache", dict[str, bool]()).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Set whether snapshots are written."""
    if config.getoption(_UPDATE_OPTION):
        from antiphon.testing import snapshots

        snapshots.are_updated = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Compare snapshots again: another run of pytest in this process may not write them."""
    if config.getoption(_UPDATE_OPTION):
        from antiphon.testing import snapshots

        snapshots.are_updated = False


@pytest.fixture(scope="session")
def antiphon_server(pytestconfig: pytest.Config) -> Server:
    """The server under test: define a fixture of this name, or set `antiphon_server` to a file."""
    given, configured = pytestconfig.getoption("--antiphon-server"), pytestconfig.getini("antiphon_server")
    if not given and not configured:
        raise pytest.UsageError(
            "There is no server to test: define a fixture `antiphon_server`, or name the file of the server: "
            "`antiphon_server = server.py` in the settings of pytest, or --antiphon-server server.py."
        )
    from antiphon.cli.exit_codes import CommandError
    from antiphon.cli.run.load import load_server

    target = str(given or configured)
    if not given and target.partition(":")[0].endswith(".py"):
        target = str(pytestconfig.rootpath / target)
    try:
        return load_server(target, is_private=True)
    except CommandError as error:
        raise pytest.UsageError(f"Cannot load {target}: {error.message}\n{error.details}".rstrip()) from None


@pytest.fixture
def antiphon_client_options() -> Mapping[str, Any]:
    """The options of `antiphon_client`. Define a fixture of this name to change them."""
    return {}


@pytest.fixture
def antiphon_client(request: pytest.FixtureRequest) -> Client:
    """A client that is connected to `antiphon_server`, for a test that pytest-asyncio or anyio runs."""
    marker = request.node.get_closest_marker("asyncio")
    if marker is not None and "pytest_asyncio" in sys.modules:
        if not request.config.pluginmanager.hasplugin(_ASYNCIO_FIXTURES):
            request.config.pluginmanager.register(_asyncio_fixtures(), _ASYNCIO_FIXTURES)
        default = request.config.getini("asyncio_default_test_loop_scope")
        name = f"_antiphon_client_{marker.kwargs.get('loop_scope') or default}"
    elif "anyio_backend" in request.fixturenames:
        if request.getfixturevalue("anyio_backend_name") != "asyncio":
            pytest.fail(
                "Antiphon runs on asyncio: let the fixture anyio_backend return 'asyncio'.", pytrace=False
            )
        name = "_antiphon_client_anyio"
    else:
        pytest.fail(
            "The fixture antiphon_client is for async tests: mark the test with pytest.mark.asyncio or "
            "pytest.mark.anyio, or set asyncio_mode = auto.",
            pytrace=False,
        )
    client: Client = request.getfixturevalue(name)
    return client


@pytest.fixture
def antiphon_clock(antiphon_server: Server) -> Iterator[Clock]:
    """A clock that moves the time of `antiphon_server`."""
    from antiphon.testing.clock import Clock

    with Clock(antiphon_server) as clock:
        yield clock


@pytest.fixture
def antiphon_tools_snapshot(request: pytest.FixtureRequest) -> Callable[..., Awaitable[None]]:
    """A function that compares the lists of a server with a file beside the test: `await …(client)`."""
    from antiphon.testing.snapshots import assert_tools_match

    folder = Path(request.path).parent
    classes = [] if request.cls is None else request.cls.__qualname__.split(".")
    parts = (request.path.stem, *classes, request.node.name)
    name = ".".join(re.sub(r"\W+", "-", part).strip("-") for part in parts)

    async def compare(client: Client, file: str | None = None) -> None:
        __tracebackhide__ = True
        await assert_tools_match(client, folder / (file or f"snapshots/{name}.json"))

    return compare


def _client_fixture() -> Callable[..., AsyncIterator[Client]]:
    """Return the function of a fixture; each fixture needs its own, because pytest-asyncio writes to it."""

    async def connected(
        antiphon_server: Server, antiphon_client_options: Mapping[str, Any]
    ) -> AsyncIterator[Client]:
        import asyncio

        from antiphon.client import Client

        client = Client(antiphon_server, **antiphon_client_options)
        opened, ended = asyncio.Event(), asyncio.Event()

        # The fixture may end in another task than it began in, and a lifespan must end in the same task.
        async def stay_connected() -> None:
            async with client:
                opened.set()
                await ended.wait()

        connection = asyncio.create_task(stay_connected())
        opening = asyncio.create_task(opened.wait())
        await asyncio.wait({connection, opening}, return_when=asyncio.FIRST_COMPLETED)
        opening.cancel()
        if connection.done():
            connection.result()
        yield client
        ended.set()
        await connection

    return connected


_anyio_client = pytest.fixture(_client_fixture(), name="_antiphon_client_anyio")


def _asyncio_fixtures() -> ModuleType:
    """Return a plugin with the same client for each scope that the event loop of a test can have.

    It is registered when a test needs it: a project that does not use it may have any pytest-asyncio.
    """
    import pytest_asyncio

    fixtures = ModuleType(_ASYNCIO_FIXTURES)
    for scope in _LOOP_SCOPES:
        name = f"_antiphon_client_{scope}"
        vars(fixtures)[name] = pytest_asyncio.fixture(_client_fixture(), name=name, loop_scope=scope)
    return fixtures
