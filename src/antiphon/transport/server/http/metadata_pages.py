"""The pages with the metadata of a protected resource, which tell clients where to get a token.

Anybody may read them, also a web page of another site: they hold nothing that is secret.
https://datatracker.ietf.org/doc/html/rfc9728#section-3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.transport.server.http.cors import FOR_EVERYBODY
from antiphon.transport.server.http.router import HttpRequest, HttpResponse, Routes

if TYPE_CHECKING:
    from antiphon.authorization.protected_resource import ProtectedResource

__all__ = ["MetadataPages", "metadata_pages"]

_HEADERS = {**FOR_EVERYBODY, "cache-control": "public, max-age=300"}


class MetadataPages:
    """The metadata of a server, at its well-known addresses beside the endpoint."""

    def __init__(self, resource: ProtectedResource, endpoint: str) -> None:
        self.endpoint = endpoint
        self._resource = resource
        self.routes = Routes()
        for path in resource.paths(endpoint):
            self.routes.add(path, ["GET"], self._metadata)
            self.routes.add(path, ["OPTIONS"], self._preflight)

    def note_mount(self, root: str) -> None:
        """Note that the app is mounted at a path: challenges name the document inside the mount."""
        self._resource.note_mount(root)

    async def _metadata(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(self._resource.metadata(), headers=_HEADERS)

    async def _preflight(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204, headers=FOR_EVERYBODY)


def metadata_pages(resource: ProtectedResource | None, endpoint: str) -> MetadataPages | None:
    """Return the pages of a server, or `None` if its callers need no tokens of an issuer."""
    return None if resource is None else MetadataPages(resource, endpoint)
