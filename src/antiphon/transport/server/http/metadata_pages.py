"""The pages with the metadata of a protected resource, which tell clients where to get a token.

Anybody may read them, also a web page of another site: they hold nothing that is secret.
https://datatracker.ietf.org/doc/html/rfc9728#section-3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.transport.server.http.router import HttpRequest, HttpResponse, Routes

if TYPE_CHECKING:
    from antiphon.authorization.protected_resource import ProtectedResource

__all__ = ["metadata_routes"]

_CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, OPTIONS",
    "access-control-allow-headers": "*",
    "access-control-max-age": "86400",
}
_HEADERS = {**_CORS, "cache-control": "public, max-age=300"}


def metadata_routes(resource: ProtectedResource | None, endpoint: str) -> Routes:
    """Return the metadata of a server, as pages beside its endpoint; no pages without a resource."""

    async def metadata(request: HttpRequest) -> HttpResponse:
        assert resource is not None
        return HttpResponse(resource.metadata(), headers=_HEADERS)

    async def preflight(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204, headers=_CORS)

    routes = Routes()
    for path in () if resource is None else resource.paths(endpoint):
        routes.add(path, ["GET"], metadata)
        routes.add(path, ["OPTIONS"], preflight)
    return routes
