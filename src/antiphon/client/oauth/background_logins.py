"""The limit on logins that a program has not caused. It knows no tokens and no issuers."""

from __future__ import annotations

import asyncio

from antiphon.transport.client.authorization import Authorizing

__all__ = ["BackgroundLogins"]

FIRST_PAUSE_SECONDS = 300.0
_LONGEST_PAUSE_SECONDS = 4 * 3600.0


class BackgroundLogins:
    """Says when work that the program does not wait for may ask a person.

    The server decides how often such work is refused, and its issuer may end each login at once. So a person
    is asked once. After a login that succeeded they may be asked again, each time after a longer pause; after
    one that failed, not before the program itself has logged in.
    """

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE_SECONDS
        self._allowed_at: dict[Authorizing, float] = {}

    def begin(self, kind: Authorizing) -> bool:
        """Return whether a person may be asked now."""
        if asyncio.get_running_loop().time() < self._allowed_at.get(kind, 0.0):
            return False
        self._allowed_at[kind] = float("inf")
        return True

    def succeed(self, kind: Authorizing) -> None:
        """Allow the next login after a pause."""
        self._allowed_at[kind] = asyncio.get_running_loop().time() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def reset(self) -> None:
        """Allow the next login at once."""
        self._pause = FIRST_PAUSE_SECONDS
        self._allowed_at.clear()
