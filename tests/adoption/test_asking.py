"""Servers of peers that ask everything there is to ask, adopted: callers of every version can answer."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Client, adopt
from tests.interop.test_asking_servers import PEERS, Person, check_endings
from tests.support.polling import DEADLINE

VERSIONS = ("2026-07-28", "2025-11-25", "2024-11-05")
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")


@pytest.fixture(scope="module", params=["mcp", "fastmcp"])
def peer(request: pytest.FixtureRequest) -> Any:
    spec = importlib.util.spec_from_file_location(request.param, PEERS / f"{request.param}_asking.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.server


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture(params=VERSIONS)
async def client(peer: Any, person: Person, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with Client(
        adopt(peer),
        protocol=request.param,
        elicit=person.elicit,
        sample=person.sample,
        roots=person.roots,
        timeout=DEADLINE,
    ) as connected:
        yield connected


async def test_a_call_ends_as_it_should(client: Client, person: Person, subtests: pytest.Subtests) -> None:
    await check_endings(client, person, subtests)


async def test_prompts_and_resources_ask_too(client: Client, person: Person) -> None:
    filled = await client.prompt("story")
    read = await client.read("story://London")
    assert filled.messages[0].content.text == "Tell of Ada."  # type: ignore[union-attr]
    assert read.contents[0].text == "Ada in London"  # type: ignore[union-attr]
    assert person.asked == ["Name?", "Name?"]
