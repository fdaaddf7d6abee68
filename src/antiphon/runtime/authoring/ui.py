"""MCP Apps: the pages of a server that hosts show, and the options of tools that refer to them.

Owns the check of these options, and how the HTML of an App becomes the contents of a resource. It must not
know which clients show Apps.
"""

from __future__ import annotations

import base64
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from antiphon.errors import DefinitionError
from antiphon.model.content import BlobContents, Contents, TextContents
from antiphon.model.ui import (
    APP_MIME_TYPE,
    CSP_FIELDS,
    PERMISSIONS,
    TOOL_UI_KEY,
    UI_SCHEME,
    VISIBILITIES,
    UiCsp,
    UiSettings,
    problem_of_domain,
)
from antiphon.runtime.authoring.options import CspOptions
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.uri_template import UriTemplate
from antiphon.runtime.execution.executor import ThreadExecutor

__all__ = ["UiResource", "UiSource", "meta_with_ui"]

UiSource: TypeAlias = Callable[..., Any] | Path | str
"""The HTML of an App: a function that returns it, the path of a file, or the text itself."""


class UiResource(Resource):
    """A resource whose contents are the HTML of an App."""

    __slots__ = ("_contents_meta",)

    def __init__(
        self,
        source: UiSource,
        threads: ThreadExecutor,
        uri: str,
        *,
        csp: CspOptions | None = None,
        permissions: Sequence[str] = (),
        domain: str | None = None,
        prefers_border: bool | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        _check_uri(uri)
        label = f"The App {uri!r}"
        settings = UiSettings(
            csp=_read_csp(label, csp),
            permissions=_chosen(f"{label}: permissions", permissions, PERMISSIONS),
            domain=_checked_domain(label, domain),
            prefers_border=_checked_border(label, prefers_border),
        )
        ui = settings.to_meta()
        # Hosts read the settings from the contents. Those in the list are for hosts that review Apps first.
        self._contents_meta = {"ui": ui} if ui else None
        super().__init__(
            _function_of(label, source),
            threads,
            uri,
            name=name or _name_of(source, uri),
            mime_type=APP_MIME_TYPE,
            meta=_joined(label, meta, ui, "csp=, permissions=, domain= or prefers_border="),
            **options,
        )

    def _contents(self, value: Any, uri: str) -> Iterable[Contents]:
        if isinstance(value, str):
            return [TextContents(uri, value, APP_MIME_TYPE, self._contents_meta)]
        if isinstance(value, bytes | bytearray):
            encoded = base64.b64encode(value).decode()
            return [BlobContents(uri, encoded, APP_MIME_TYPE, self._contents_meta)]
        raise TypeError(
            f"The function of the App {self.uri!r} returned {type(value).__name__}: return the HTML as text."
        )


def meta_with_ui(
    label: str, meta: Mapping[str, Any] | None, ui: str | None, visibility: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the `_meta` of a tool with its App and its visibility; raises `DefinitionError`."""
    value: dict[str, Any] = {}
    if ui is not None:
        _check_uri(ui, label)
        if UriTemplate.is_template(ui):
            raise DefinitionError(
                f"{label}: ui={ui!r} is a URI template, whose variables no host can fill in. "
                "Name one address."
            )
        value[TOOL_UI_KEY] = ui
    if visibility is not None:
        chosen = _chosen(f"{label}: visibility", visibility, VISIBILITIES)
        if not chosen:
            raise DefinitionError(
                f"{label}: visibility is empty, so nobody could call the tool. "
                'Use ["model"], ["app"] or both.'
            )
        value["visibility"] = list(chosen)
    return _joined(label, meta, value, "ui= and visibility=")


def _joined(
    label: str, meta: Mapping[str, Any] | None, ui: dict[str, Any], options: str
) -> dict[str, Any] | None:
    if meta is not None and "ui" in meta:
        raise DefinitionError(f'{label}: the "ui" of the metadata is made from options. Pass {options}.')
    return {**(meta or {}), **({"ui": ui} if ui else {})} or None


def _check_uri(uri: Any, label: str | None = None) -> None:
    """Raise `DefinitionError` unless the address of an App begins as the specification says."""
    if isinstance(uri, str) and uri.startswith(UI_SCHEME) and len(uri) > len(UI_SCHEME):
        return
    where = f"{label}: ui={uri!r}" if label else f"{uri!r}"
    raise DefinitionError(
        f"{where} is not the address of an App. It begins with ui://, as in ui://weather/view."
    )


def _read_csp(label: str, csp: Any) -> UiCsp:
    if csp is None:
        return UiCsp()
    if not isinstance(csp, Mapping):
        raise DefinitionError(f'{label}: csp={csp!r} is no mapping. Write {{"connect_domains": […]}}.')
    for name in csp:
        if name not in CSP_FIELDS:
            raise _unknown(f"{label}: csp", name, CSP_FIELDS)
    return UiCsp(**{name: _checked_domains(f"{label}: csp[{name!r}]", csp[name], name) for name in csp})


def _checked_domains(label: str, domains: Any, field: str) -> tuple[str, ...]:
    listed = _listed(label, domains)
    for domain in listed:
        if (problem := problem_of_domain(domain, field)) is not None:
            raise DefinitionError(f"{label} cannot have {domain!r}: {problem}.")
    return listed


def _checked_domain(label: str, domain: Any) -> str | None:
    """Return the domain that a host serves an App from. Each host has its own format for it."""
    if domain is None or (isinstance(domain, str) and domain and not any(map(str.isspace, domain))):
        return domain
    raise DefinitionError(
        f"{label}: domain={domain!r} is no domain. Use the format of the host's documentation."
    )


def _checked_border(label: str, border: Any) -> bool | None:
    if border is None or isinstance(border, bool):
        return border
    raise DefinitionError(f"{label}: prefers_border={border!r} is invalid. Use True, False or None.")


def _chosen(label: str, names: Any, known: Iterable[str]) -> tuple[Any, ...]:
    listed = _listed(label, names)
    for name in listed:
        if name not in known:
            raise _unknown(label, name, known)
    return tuple(dict.fromkeys(listed))


def _listed(label: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DefinitionError(f"{label} is a list: write [{value!r}].")
    return tuple(value)


def _unknown(label: str, name: Any, known: Iterable[str]) -> DefinitionError:
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Use one of {', '.join(map(repr, names))}."
    return DefinitionError(f"{label}: unknown name {name!r}. {hint}")


def _function_of(label: str, source: UiSource) -> Callable[..., Any]:
    if isinstance(source, Path):
        return _file_reader(label, source)
    if isinstance(source, str):
        if "<" not in source:
            raise DefinitionError(
                f"{label}: {source[:80]!r} is no HTML. For a file, pass a path: Path({source[:80]!r})."
            )
        return lambda: source
    if not callable(source):
        raise DefinitionError(f"{label}: {source!r} is neither a function, nor a Path, nor HTML as text.")
    return source


def _file_reader(label: str, path: Path) -> Callable[[], str]:
    """Return a function that reads a file each time, so that a change to the file needs no restart."""
    path = path.absolute()

    def read() -> str:
        return path.read_text(encoding="utf-8")

    try:
        read()
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{label}: the file {str(path)!r} cannot be read: {error}.") from None
    return read


def _name_of(source: Any, uri: str) -> str | None:
    """Return a name for an App that is no function: the last part of its address."""
    return None if callable(source) else PurePosixPath(uri.removeprefix(UI_SCHEME)).name
