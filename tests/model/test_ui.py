"""Reading `_meta.ui` from another program: fields that are not as specified are left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.model.catalog import ToolDefinition
from antiphon.model.ui import UiCsp, UiSettings, read_ui, shows_ui, tool_ui, tool_visibility

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["ui", "csp", "permissions", "connectDomains", "camera", "domain", "visibility", "resourceUri"]
)
METADATA: st.SearchStrategy[Any] = st.recursive(
    JSON, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=10
)


@given(METADATA)
def test_any_metadata_can_be_read(meta: Any) -> None:
    settings = read_ui(meta)
    assert settings is None or isinstance(settings, UiSettings)
    assert tool_ui(meta) is None or str(tool_ui(meta)).startswith("ui://")
    assert set(tool_visibility(meta)) <= {"model", "app"}
    assert shows_ui({"extensions": {"io.modelcontextprotocol/ui": meta}}) in (True, False)


def test_domains_that_could_extend_a_policy_are_left_out() -> None:
    csp = {"connectDomains": ["https://a.example", "https://b.example; script-src *", 7], "frameDomains": "x"}
    settings = read_ui({"ui": {"csp": csp, "permissions": {"camera": {}, "usb": {}, "microphone": True}}})
    assert settings == UiSettings(csp=UiCsp(connect_domains=("https://a.example",)), permissions=("camera",))


@pytest.mark.parametrize(
    ("meta", "uri", "visibility"),
    [
        (None, None, ("model", "app")),
        ({"ui": {"resourceUri": "ui://a"}}, "ui://a", ("model", "app")),
        ({"ui/resourceUri": "ui://old"}, "ui://old", ("model", "app")),
        ({"ui": {"resourceUri": "https://a", "visibility": ["app", "x"]}}, None, ("app",)),
        ({"ui": {"visibility": []}}, None, ()),
        ({"ui": {"visibility": "app"}}, None, ("model", "app")),
    ],
)
def test_the_metadata_of_a_tool(meta: Any, uri: str | None, visibility: tuple[str, ...]) -> None:
    tool = ToolDefinition(name="t", input_schema={}, meta=meta)
    assert (tool.ui, tool.visibility) == (uri, visibility)


def test_settings_are_read_as_they_were_written() -> None:
    settings = UiSettings(
        csp=UiCsp(frame_domains=("https://a.example",), base_uri_domains=("https://b.example",)),
        permissions=("microphone", "clipboard_write"),
        domain="d",
        prefers_border=True,
    )
    assert read_ui({"ui": settings.to_meta()}) == settings
    assert UiSettings().to_meta() == {}
