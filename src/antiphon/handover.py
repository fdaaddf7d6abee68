"""Hands the server of a file over to the program that imports the file.

A file may end with `server.run()`. A program that imports the file to serve it by itself, such as `antiphon
run`, takes the server over: `run` does not serve then. This module must not know what a server is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["HandedOver", "hand_over", "taking_over"]

_is_taking_over: ContextVar[bool] = ContextVar("antiphon_is_taking_over", default=False)


class HandedOver(BaseException):
    """Ends the import of a file whose server is taken over. No `except Exception` in the file catches it."""

    def __init__(self, server: Any) -> None:
        super().__init__("The server is served by the program that imports this file.")
        self.server = server


@contextmanager
def taking_over() -> Iterator[None]:
    """Take over the server that is run inside of the block, which `HandedOver` ends."""
    token = _is_taking_over.set(True)
    try:
        yield
    finally:
        _is_taking_over.reset(token)


def hand_over(server: Any) -> None:
    """Raise `HandedOver` if a program takes over the server."""
    if _is_taking_over.get():
        raise HandedOver(server)
