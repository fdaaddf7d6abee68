"""An issuer of access tokens, as an author configures it."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.authorization.urls import problem_of_url, shown_url
from antiphon.errors import DefinitionError

__all__ = ["Issuer"]


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server whose tokens a server accepts, for `IssuedTokens`.

    Raises `DefinitionError` if a URL is invalid.
    """

    url: str
    """The issuer, letter by letter as its metadata and its tokens have it; a final slash counts."""
    jwks_uri: str | None = None
    """The URL of the issuer's keys. By default, the issuer's metadata names it."""
    client_id: str | None = None
    """The id with which this server introspects tokens that are not JWTs. Needs `client_secret` too."""
    client_secret: str | None = field(default=None, repr=False)
    """The secret that belongs to `client_id`."""
    introspection_endpoint: str | None = None
    """The URL that introspects tokens. By default, the issuer's metadata names it."""

    def __post_init__(self) -> None:
        for name in ("url", "jwks_uri", "introspection_endpoint"):
            url = getattr(self, name)
            if url is None and name != "url":
                continue
            if problem := problem_of_url(url, query=name != "url"):
                raise DefinitionError(
                    f"Issuer: {name}={shown_url(url)!r} {problem}. Use the URL of the issuer, with https."
                )
        if (self.client_id is None) != (self.client_secret is None):
            raise DefinitionError("Issuer: pass client_id and client_secret together, or neither.")
        if self.introspection_endpoint is not None and self.client_id is None:
            raise DefinitionError("Issuer: introspection_endpoint needs client_id and client_secret.")

    @property
    def introspects(self) -> bool:
        """Whether tokens that are not JWTs are introspected at this issuer."""
        return self.client_id is not None
