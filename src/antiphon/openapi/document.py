"""Reads an OpenAPI document: from text or a file, its version, its references and its servers.

Nothing is fetched: a reference to another document is refused. It must not know what an operation is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from antiphon.errors import DefinitionError
from antiphon.printable import is_web_url, printable, redacted_url

__all__ = ["MAX_DOCUMENT_BYTES", "Document", "load"]

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
"""The size of the largest document that is read."""
_MAX_REFERENCES = 20
"""How many references may follow one another."""


class Document:
    """An OpenAPI document of version 3.0 or later."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        version = root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            found = f"its version is {printable(str(version or root.get('swagger')), 40)!r}"
            raise DefinitionError(
                f"The document is not OpenAPI 3: {found}. Convert it to OpenAPI 3.0 or 3.1 first."
            )
        self.root = root
        self.is_3_0 = version.startswith("3.0")
        """Whether schemas are those of OpenAPI 3.0, which differ from JSON Schema."""
        info = root.get("info")
        self.info: Mapping[str, Any] = info if isinstance(info, Mapping) else {}

    def resolve(self, value: Any) -> Mapping[str, Any]:
        """Follow the references of a parameter, a body or a response to the mapping that it stands for.

        Raises `DefinitionError` for a reference that leads nowhere, out of the document, or in a circle.
        """
        for _ in range(_MAX_REFERENCES):
            if not isinstance(value, Mapping):
                raise DefinitionError(f"a {type(value).__name__} stands where the document needs an object")
            reference = value.get("$ref")
            if not isinstance(reference, str):
                return value
            value = self.at(reference)
        raise DefinitionError(f"more than {_MAX_REFERENCES} references follow one another")

    def at(self, reference: str) -> Any:
        """Return the part of the document that a reference names; raises `DefinitionError`."""
        shown = printable(redacted_url(reference), 200)
        if not reference.startswith("#"):
            raise DefinitionError(
                f"it refers to another document, {shown!r}, and nothing is fetched. Bundle the documents "
                "into one first"
            )
        found: Any = self.root
        if reference not in ("#", "#/"):
            for part in reference.removeprefix("#").removeprefix("/").split("/"):
                key = unquote(part).replace("~1", "/").replace("~0", "~")
                if isinstance(found, list) and key.isdecimal() and len(key) < 9 and int(key) < len(found):
                    found = found[int(key)]
                elif isinstance(found, Mapping) and key in found:
                    found = found[key]
                else:
                    raise DefinitionError(f"the reference {shown!r} leads nowhere")
        return found

    def server_url(self, *owners: Mapping[str, Any]) -> str | None:
        """Return the address of the API from the `servers` of the first owner that has some, or `None`."""
        for owner in (*owners, self.root):
            servers = owner.get("servers")
            if isinstance(servers, list) and servers and isinstance(servers[0], Mapping):
                url = _filled(servers[0])
                return url if is_web_url(url) else None
        return None


def load(source: Mapping[str, Any] | str | os.PathLike[str]) -> Document:
    """Return the document in a mapping, in JSON or YAML text, or in a file; raises `DefinitionError`."""
    if isinstance(source, Mapping):
        return Document(source)
    if isinstance(source, str) and (is_web_url(source) or "\n" in source or source.lstrip()[:1] == "{"):
        if is_web_url(source):
            raise DefinitionError(
                f"{redacted_url(source)!r} is a URL, and nothing is fetched. Download the document, and pass "
                "it as a mapping, as text or as the path of a file."
            )
        return Document(_parsed(source.encode("utf-8", "replace"), "The document"))
    if not isinstance(source, str | os.PathLike):
        raise DefinitionError(
            f"A {type(source).__name__} is not an OpenAPI document. Pass a mapping, JSON or YAML text, or "
            "the path of a file."
        )
    path = Path(source)
    label = f"The file {printable(str(path), 200)!r}"
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise DefinitionError(f"{label} has more than {MAX_DOCUMENT_BYTES} bytes.")
        return Document(_parsed(path.read_bytes(), label))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DefinitionError(f"{label} cannot be read: {reason}.") from None


def _parsed(text: bytes, label: str) -> Mapping[str, Any]:
    if len(text) > MAX_DOCUMENT_BYTES:
        raise DefinitionError(f"{label} has more than {MAX_DOCUMENT_BYTES} bytes.")
    is_json = text.lstrip()[:1] == b"{"
    try:
        root = msgspec.json.decode(text) if is_json else _parsed_yaml(text, label)
    except msgspec.DecodeError as error:
        raise DefinitionError(f"{label} is not JSON: {error}.") from None
    except RecursionError:
        raise DefinitionError(f"{label} is nested too deeply.") from None
    if not isinstance(root, Mapping):
        raise DefinitionError(f"{label} is not an OpenAPI document: it has no fields.")
    return root


def _parsed_yaml(text: bytes, label: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise DefinitionError(
            f"{label} is not JSON, and YAML needs PyYAML. Install it with: pip install pyyaml"
        ) from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Reads dates as text, as JSON has them."""

        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        loader = Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise DefinitionError(f"{label} is not YAML: {printable(str(error), 300)}.") from None


def _filled(server: Mapping[str, Any]) -> str:
    """Return the URL of a server, with the defaults of its variables."""
    url = str(server.get("url", ""))
    variables = server.get("variables")
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        if isinstance(variable, Mapping):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    return url
