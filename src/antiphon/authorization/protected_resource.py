"""The server as a protected resource: its metadata document, and the challenges that refer callers to it.

https://datatracker.ietf.org/doc/html/rfc9728. It must not know how tokens are verified.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from antiphon.authorization.urls import well_known_url

__all__ = ["ProtectedResource"]

_NAME = "oauth-protected-resource"
_UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""Characters that a description in a challenge cannot have. https://www.rfc-editor.org/rfc/rfc6750#section-3"""
_WELL_KNOWN = f"/.well-known/{_NAME}"


class ProtectedResource:
    """The public URL of a server, the issuers of its tokens, and the scopes that every request needs.

    `scope_prefix` is put before each scope in the metadata and in challenges, for issuers whose scopes have
    another name in a token than in a request for one.
    """

    def __init__(
        self,
        url: str,
        issuers: Sequence[str],
        scopes: tuple[str, ...],
        *,
        scope_prefix: str = "",
        metadata_url: str | None = None,
    ) -> None:
        self.url = url
        self.scopes = scopes
        self._issuers = tuple(issuers)
        self._scope_prefix = scope_prefix
        self._is_configured = metadata_url is not None
        self.metadata_url = metadata_url or well_known_url(url, _NAME)
        """The URL of the metadata document, as challenges name it."""

    def metadata(self) -> dict[str, Any]:
        """Return the metadata document."""
        document: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": list(self._issuers),
            "bearer_methods_supported": ["header"],
        }
        if self.scopes:
            document["scopes_supported"] = self._requested(self.scopes)
        return document

    def paths(self, endpoint: str) -> tuple[str, ...]:
        """Return the paths of the metadata document in an app whose endpoint has this path."""
        suffixes = ("", endpoint.rstrip("/"), urlsplit(self.url).path.rstrip("/"))
        return tuple(dict.fromkeys(f"{_WELL_KNOWN}{suffix}" for suffix in suffixes))

    def note_mount(self, root: str) -> None:
        """Let challenges name the document inside the mount of an app that is mounted at the path `root`.

        The well-known address of the host belongs to the app around it. A path that is not in the public URL
        is ignored: a proxy may have made it up.
        """
        parts = urlsplit(self.url)
        if not self._is_configured and f"{parts.path}/".startswith(f"{root.rstrip('/')}/"):
            self._is_configured = True
            self.metadata_url = f"{parts.scheme}://{parts.netloc}{root.rstrip('/')}{_WELL_KNOWN}"

    def challenge(
        self, error: str | None = None, description: str = "", scopes: Sequence[str] | None = None
    ) -> str:
        """Return the `WWW-Authenticate` header of a refusal. `scopes` are those of the operation."""
        needed = self._requested(self.scopes if scopes is None else scopes)
        fields = {
            "error": error,
            "error_description": _UNQUOTABLE.sub("?", description),
            "scope": " ".join(needed),
            "resource_metadata": self.metadata_url,
        }
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)

    def _requested(self, scopes: Sequence[str]) -> list[str]:
        return [f"{self._scope_prefix}{scope}" for scope in scopes]
