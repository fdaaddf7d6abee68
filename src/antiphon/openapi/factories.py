"""The class methods of `Server` that create one from an OpenAPI document or a FastAPI app.

Everything else of the package is loaded when one of them is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    from antiphon.openapi.options import FastAPIOptions, OpenAPIOptions

__all__ = ["ApiFactories"]


class ApiFactories:
    """Class methods of `Server` for APIs that are described by OpenAPI."""

    @classmethod
    def from_openapi(
        cls, document: Mapping[str, Any] | str | os.PathLike[str], /, **options: Unpack[OpenAPIOptions]
    ) -> Self:
        """Create a server whose tools are the operations of an HTTP API.

        `document` is the OpenAPI document of the API, in version 3.0 or 3.1: a mapping, JSON or YAML text, or
        the path of a file. YAML needs PyYAML. See `OpenAPIOptions` for the options; those of `Server` are
        options too. Raises `DefinitionError`.
        """
        from antiphon.openapi.build import server_for_document

        return server_for_document(cls, document, options)

    @classmethod
    def from_fastapi(cls, app: Any, /, **options: Unpack[FastAPIOptions]) -> Self:
        """Create a server whose tools are the operations of a FastAPI app, which runs in this process.

        Calls need no connection. See `FastAPIOptions` for the options; those of `Server` are options too.
        Raises `DefinitionError`.
        """
        from antiphon.openapi.build import server_for_app

        return server_for_app(cls, app, options)
