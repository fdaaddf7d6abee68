"""`adopt`: finds out which library a server was written with, and offers its tools in a `Server`.

Imports none of these libraries: a server is known by the names of its classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import DefinitionError

if TYPE_CHECKING:
    from antiphon.adoption.seam import Seam
    from antiphon.server import Server

__all__ = ["adopt", "is_adoptable"]


def adopt(server: Any, *, tasks: Sequence[str] = (), **options: Any) -> Server:
    """Return a `Server` that serves a server of the official SDK or of FastMCP.

    `server` is a `FastMCP` or a low-level `Server` of `mcp` 1.x, an `MCPServer` or a low-level `Server` of
    `mcp` 2.x, or a `FastMCP` of fastmcp 2, 3 or 4. It keeps its tools, resources, prompts, middleware,
    dependencies and lifespan. `tasks` names the tools that callers can run as tasks. `options` are those of
    `Server`; the name, the version and the instructions are those of the server unless you pass others, and
    so is the authentication, if it verifies tokens. `authenticate=None` serves it without its own
    authentication. Raises `DefinitionError` if the library of the server is unknown, and if the server issues
    tokens itself and you do not pass `authenticate`.
    """
    from antiphon.adoption.own_authentication import own_authentication
    from antiphon.adoption.provider import AdoptedProvider
    from antiphon.server import Server

    if isinstance(tasks, str):
        raise DefinitionError(f"adopt(): tasks is a list: write tasks=[{tasks!r}].")
    seam = _seam(server)
    info = seam.info
    given: dict[str, Any] = {
        "name": info.name,
        "version": info.version,
        "title": info.title,
        "description": info.description,
        "website_url": info.website_url,
        "icons": info.icons,
        "instructions": seam.instructions,
        **options,
    }
    if "authenticate" not in options:
        given["authenticate"] = own_authentication(server)
    adopted = Server(given.pop("name"), **given)
    adopted.engine.add_provider(AdoptedProvider(adopted.engine, seam, tasks))
    return adopted


def is_adoptable(value: Any) -> bool:
    """Return whether a value is a server that `adopt` can serve. Imports nothing."""
    return _low_level(value) is not None


_SERVERS = {
    ("mcp.server.lowlevel.server", "Server"): None,
    ("mcp.server.fastmcp.server", "FastMCP"): "_mcp_server",
    ("mcp.server.mcpserver.server", "MCPServer"): "_lowlevel_server",
    ("fastmcp.server.server", "FastMCP"): "_mcp_server",
}
"""The classes of servers by module and name, with the attribute that has their low-level server."""


def _low_level(server: Any) -> tuple[Any, bool] | None:
    """Return the low-level server, and whether FastMCP has it; `None` if the value is not a known server."""
    for base in type(server).__mro__:
        key = (base.__module__, base.__name__)
        if key in _SERVERS:
            attribute = _SERVERS[key]
            found = server if attribute is None else getattr(server, attribute)
            return found, type(found).__module__.startswith("fastmcp.")
    return None


def _seam(server: Any) -> Seam[Any]:
    found = _low_level(server)
    if found is None:
        raise DefinitionError(
            f"adopt() cannot serve a {type(server).__name__}. Pass a FastMCP, an MCPServer, or a low-level "
            "Server of mcp."
        )
    low_level, is_fastmcp = found
    if hasattr(low_level, "get_request_handler"):
        from antiphon.adoption.mcp2 import Mcp2Seam

        return Mcp2Seam(low_level, is_fastmcp=is_fastmcp)
    from antiphon.adoption.mcp1 import Mcp1Seam

    return Mcp1Seam(low_level, server if is_fastmcp else None)
