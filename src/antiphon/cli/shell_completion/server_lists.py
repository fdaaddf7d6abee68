"""The lists of the server on the line, from the cache or from the server, and the login for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from antiphon.cli.exit_codes import CommandError
from antiphon.cli.shell_completion.list_cache import ListCache, ListKind, Offer
from antiphon.cli.targets import Target

__all__ = ["ServerLists", "with_login"]


class ServerLists:
    """The lists of one server, and the values that it suggests. Errors of the connection are raised."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._cache = ListCache(target)

    def get(self, kind: ListKind) -> list[Offer]:
        """Return a list of the server."""
        cached = self._cache.get(kind)
        if cached is not None:
            return cached
        from antiphon.cli.shell_completion.requests import fetch_list

        found = fetch_list(self._target, kind)
        self._cache.put(kind, found)
        return found

    def values(self, owner: str, argument: str, typed: str, others: Mapping[str, str]) -> Sequence[str]:
        """Return the values that the server suggests for an argument of a prompt or a template."""
        from antiphon.cli.shell_completion.requests import suggested_values

        return suggested_values(self._target, owner, argument, typed, others)


def with_login(target: Target) -> Target:
    """Return a target that sends the token of a stored login. Raises `CommandError` if the token has expired.

    A press of Tab never refreshes a token: it may be given up before the new token is stored.
    """
    if not target.uses_login:
        return target
    from antiphon.client.oauth.logins import FileLogins

    login = FileLogins().find(str(target.endpoint))
    if login is None or login.proof_key is not None or login.expires_within(target.timeout):
        raise CommandError("The login cannot be used for completion.")
    return replace(target, headers={**target.headers, "Authorization": login.header})
