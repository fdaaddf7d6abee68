"""A server offers the protocol versions that its author names, and refuses requests of all others."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Client, Server
from antiphon.errors import DefinitionError, UnsupportedVersion
from antiphon.wire.versions import VERSIONS
from tests.support.serving import serving
from tests.support.speakers import DRAFT, LEGACY, MODERN, Bare, Modern, Session


def greeter(protocols: Any) -> Server:
    server = Server("greeter", protocols=protocols, secrets=["a secret of at least so many bytes"])

    @server.tool
    async def greet() -> str:
        return "Hello"

    return server


@pytest.mark.parametrize("version", [row.name for row in VERSIONS])
async def test_a_server_that_offers_one_version_is_called_in_it_and_in_no_other(version: str) -> None:
    async with serving(greeter([version])) as address:
        async with Client(address.url, protocol=version) as client:
            assert (await client.call("greet")).text == "Hello"
        other = MODERN if version != MODERN else LEGACY
        with pytest.raises(UnsupportedVersion, match=version):
            async with Client(address.url, protocol=other):
                pass


async def test_without_the_draft_a_request_has_to_name_its_version() -> None:
    async with serving(greeter([MODERN, LEGACY])) as address:
        refused = await Bare(address.port).call("greet")
        assert refused.status == 400
        assert refused.error["code"] == -32022
        assert refused.error["data"]["supported"] == [MODERN, LEGACY]
        assert (await Modern(address.port).call("greet")).text == "Hello"


async def test_a_client_finds_the_newest_version_that_is_offered() -> None:
    async with serving(greeter([LEGACY, "2025-06-18"])) as address, Client(address.url) as client:
        assert client.version == LEGACY


async def test_a_session_of_a_version_that_is_no_longer_offered_is_told_so() -> None:
    async with serving(greeter([LEGACY, "2025-06-18"])) as address:
        session = Session(address.port)
        await session.open("2025-06-18")
    async with serving(greeter([LEGACY])) as address:
        session.port = address.port
        del session.headers["mcp-protocol-version"]
        refused = await session.call("greet")
        assert refused.error["code"] == -32022


@pytest.mark.parametrize(
    ("protocols", "problem"),
    [
        (["1999-01-01"], "'1999-01-01', which is not one of 2026-07-28"),
        ([], "is empty"),
        (DRAFT, r"is a list: write protocols=\['DRAFT-2026-v1'\]"),
    ],
)
async def test_versions_that_cannot_be_offered_are_an_error_before_the_server_listens(
    protocols: Any, problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        greeter(protocols).asgi()
