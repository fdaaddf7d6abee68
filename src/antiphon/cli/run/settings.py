"""What `antiphon run` was told, in a shape that travels to worker processes in their environment.

And the words that options choose from, here because this costs nothing to import.
"""

from __future__ import annotations

import logging
import os
from typing import Literal

import msgspec

__all__ = ["Level", "Otherwise", "Settings", "words"]

Level = Literal["debug", "info", "warning", "error"]
Otherwise = Literal["accept", "decline", "cancel"]
"""What `antiphon call` does with a question that nothing else answers."""

_VARIABLE = "ANTIPHON_RUN"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Settings(msgspec.Struct, frozen=True):
    """What to serve and how; where to listen is known to the parent process alone."""

    target: str
    path: str = "/mcp"
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] | None = None
    log_level: Level = "info"
    access_log: bool = False
    store: str | None = None
    works: bool = True
    """Whether to run tasks, or only to serve."""

    def hand_down(self) -> None:
        """Put them where processes started from here find them."""
        os.environ[_VARIABLE] = msgspec.json.encode(self).decode()

    @classmethod
    def inherited(cls) -> Settings:
        """What the parent process handed down."""
        return msgspec.json.decode(os.environ[_VARIABLE], type=cls)

    def configure_logging(self) -> None:
        """Log to the standard error, unless the author's file has set up logging of its own."""
        level = self.log_level.upper()
        logging.basicConfig(level=level, format=_FORMAT)
        # One line for each call is for those who ask for it.
        shown = self.access_log or self.log_level == "debug"
        logging.getLogger("antiphon.calls").setLevel(level if shown else "WARNING")
        # What uvicorn says of its own life is noise next to the line that we print ourselves.
        logging.getLogger("uvicorn.error").setLevel(level if self.log_level != "info" else "WARNING")


def words(text: str | None) -> tuple[str, ...] | None:
    """A list that is written with commas; none if nothing is written."""
    found = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    return found or None
