"""Opens the store that a command names. Does not know what the command does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from antiphon.store.contract import Store

__all__ = ["named_store", "open_named_store", "opened_store"]


def named_store(url: str, *, create: bool = False) -> Store:
    """Return the store that a URL names, not yet opened.

    Raises `CommandError` for an invalid URL, for a store in memory, and for a file that does not exist,
    unless the command may `create` it.
    """
    try:
        store = open_store(url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if url.startswith("memory:"):
        raise CommandError(
            "Tasks in the memory of a server are visible to that server only. Use the server's URL."
        )
    path = Path(url.partition(":///")[2])
    if url.startswith("sqlite:") and not create and not path.exists():
        raise CommandError(f"There is no store at {path}.")
    return store


async def open_named_store(store: Store) -> None:
    """Open a store. Raises `CommandError`."""
    try:
        await store.open()
    except StoreUnavailable as error:
        raise CommandError(f"Cannot open the store: {error}", UNREACHABLE) from None


@asynccontextmanager
async def opened_store(url: str, *, create: bool = False) -> AsyncIterator[Store]:
    """Open the store that a URL names, until the block ends. Raises `CommandError`."""
    store = named_store(url, create=create)
    await open_named_store(store)
    try:
        yield store
    finally:
        await store.close()
