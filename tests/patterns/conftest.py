"""The server of the patterns on a real socket, and a client for each dialect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from antiphon import Server
from tests.patterns.tooling import DIALECTS, make, plainly
from tests.promises.tooling import speaker
from tests.support.serving import Address, serving
from tests.support.speakers import Speaker

PATIENCE = 60.0


@contextmanager
def in_a_thread(server: Server) -> Iterator[Address]:
    """Serve a server in a thread with its own event loop, shared by all tests of a module."""
    found: list[Address] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        try:
            async with serving(server) as address:
                found.append(address)
                ready.set()
                await asyncio.to_thread(over.wait)
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        assert found, "the server did not start"
        yield found[0]
    finally:
        over.set()
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    """The address of the server."""
    with in_a_thread(make(store="memory:")) as where:
        yield where


@pytest.fixture(params=DIALECTS)
async def client(request: pytest.FixtureRequest, address: Address) -> Speaker:
    """A client of each dialect that does not accept tasks."""
    return await plainly(request.param, address.port)


@pytest.fixture(params=DIALECTS)
async def patient(request: pytest.FixtureRequest, address: Address) -> Speaker:
    """A client of each dialect that accepts tasks."""
    return await speaker(request.param, address.port)
