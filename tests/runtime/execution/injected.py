"""Dependencies that record what happens to them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator

events: list[str] = []


class Db:
    """A connection that says what happens to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = True
        events.append(f"open {name}")

    def close(self) -> None:
        self.is_open = False
        events.append(f"close {self.name}")

    def __enter__(self) -> str:  # as connections and locks have it
        raise AssertionError("nobody enters what a plain function returned")

    def __exit__(self, *error: object) -> None: ...


def plain() -> Db:
    events.append(f"in a thread: {threading.current_thread() is not threading.main_thread()}")
    return Db("plain")


async def coroutine() -> Db:
    return Db("coroutine")


def generator() -> Iterator[Db]:
    db = Db("generator")
    try:
        yield db
    except BaseException as error:
        events.append(f"generator saw {type(error).__name__}")
        raise
    finally:
        db.close()


async def async_generator() -> AsyncIterator[Db]:
    db = Db("async_generator")
    try:
        yield db
    except BaseException as error:
        events.append(f"async_generator saw {type(error).__name__}")
        raise
    finally:
        db.close()
