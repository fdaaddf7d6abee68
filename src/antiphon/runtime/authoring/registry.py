"""The tools, resources and prompts of a server, by name or URI.

Owns the lists and their pages, and publishes a change when a list changes. It must not know who listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from antiphon.errors import DefinitionError, InvalidParams, NotFound, ResourceNotFound
from antiphon.model.catalog import Definition, Kind
from antiphon.model.notification import ListChanged
from antiphon.model.outcome import Page
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.authoring.uri_template import MAX_URI_CHARACTERS
from antiphon.runtime.change_feed import ChangeFeed

__all__ = ["Registry"]

Item = TypeVar("Item", Tool, Resource, Prompt)


class Registry:
    """The tools, resources and prompts of one server, in the order in which they were added."""

    def __init__(self, changes: ChangeFeed, page_size: int) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.find_unlisted: Callable[[str], Iterable[Resource]] = lambda uri: ()
        """Returns resource templates for a URI that can be read although no list contains them."""
        self._changes = changes
        self.page_size = page_size
        self._lists: dict[Kind, Mapping[str, Any]] = {
            "tools": self.tools,
            "resources": self.resources,
            "templates": self.templates,
            "prompts": self.prompts,
        }
        self._definitions: dict[Kind, Sequence[Definition]] = {}

    def add_tool(self, tool: Tool) -> None:
        """Add a tool; raises `DefinitionError` if the name is taken."""
        self._add("tools", self.tools, tool.name, tool)

    def add_resource(self, resource: Resource) -> None:
        """Add a resource or a resource template; raises `DefinitionError` if the URI is taken."""
        if resource.template is None:
            self._add("resources", self.resources, resource.uri, resource)
        else:
            self._add("templates", self.templates, resource.uri, resource)

    def add_prompt(self, prompt: Prompt) -> None:
        """Add a prompt; raises `DefinitionError` if the name is taken."""
        self._add("prompts", self.prompts, prompt.name, prompt)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; raises `NotFound`."""
        self._remove("tools", self.tools, name)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a resource template; raises `NotFound`."""
        if uri in self.templates:
            self._remove("templates", self.templates, uri)
        else:
            self._remove("resources", self.resources, uri)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; raises `NotFound`."""
        self._remove("prompts", self.prompts, name)

    def tool(self, name: str) -> Tool:
        """Return a tool; raises `NotFound`."""
        try:
            return self.tools[name]
        except KeyError:
            raise NotFound(f"Unknown tool: {name!r}.") from None

    def prompt(self, name: str) -> Prompt:
        """Return a prompt; raises `NotFound`."""
        try:
            return self.prompts[name]
        except KeyError:
            raise NotFound(f"Unknown prompt: {name!r}.") from None

    def resource(self, uri: str) -> tuple[Resource, dict[str, str]]:
        """Return the resource for a URI, and the template variables in the URI; raises `ResourceNotFound`."""
        if (resource := self.resources.get(uri)) is not None:
            return resource, {}
        if len(uri) > MAX_URI_CHARACTERS:
            raise ResourceNotFound(
                f"Resource not found: a URI has at most {MAX_URI_CHARACTERS} characters, not {len(uri)}."
            )
        for candidate in (*self.templates.values(), *self.find_unlisted(uri)):
            if candidate.template is not None and (variables := candidate.template.match(uri)) is not None:
                return candidate, variables
        raise ResourceNotFound(f"Resource not found: {uri}", data={"uri": uri})

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that can run as tasks."""
        return tuple(name for name, tool in self.tools.items() if tool.task != "forbidden")

    @cached_property
    def has_task_tools(self) -> bool:
        """Whether any tool can run as a task."""
        return any(tool.task != "forbidden" for tool in self.tools.values())

    @cached_property
    def has_scoped_tools(self) -> bool:
        """Whether any tool needs scopes."""
        return any(tool.scopes is not None for tool in self.tools.values())

    @cached_property
    def has_scoped_resources(self) -> bool:
        """Whether any resource or resource template needs scopes."""
        return any(each.scopes is not None for each in (*self.resources.values(), *self.templates.values()))

    def page(
        self, kind: Kind, cursor: str | None, ttl_ms: int, is_listed: Callable[[Any], bool] | None = None
    ) -> Page:
        """Return a page of a list; raises `InvalidParams` for an invalid cursor.

        `is_listed` chooses the items for a caller: the page is for nobody else.
        """
        definitions = self._definitions.get(kind)
        if is_listed is not None:
            definitions = tuple(item.definition for item in self._lists[kind].values() if is_listed(item))
        elif definitions is None:
            definitions = tuple(item.definition for item in self._lists[kind].values())
            self._definitions[kind] = definitions
        start = _offset(cursor)
        end = start + self.page_size
        following = str(end) if end < len(definitions) else None
        return Page(kind, definitions[start:end], following, ttl_ms, shared=is_listed is None)

    def _add(self, kind: Kind, items: dict[str, Item], key: str, item: Item) -> None:
        if key in items:
            raise DefinitionError(
                f"There is already a {kind.removesuffix('s')} {key!r}: use another name, "
                "or remove the existing one first."
            )
        items[key] = item
        self._changed(kind)

    def _remove(self, kind: Kind, items: dict[str, Item], key: str) -> None:
        if items.pop(key, None) is None:
            raise NotFound(f"There is no {kind.removesuffix('s')} {key!r}.")
        self._changed(kind)

    def _changed(self, kind: Kind) -> None:
        self._definitions.pop(kind, None)
        for cached in ("has_task_tools", "has_scoped_tools", "has_scoped_resources"):
            self.__dict__.pop(cached, None)
        self._changes.publish(ListChanged("resources" if kind == "templates" else kind))


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= 12:
        return int(cursor)
    raise InvalidParams("Invalid cursor: start again without a cursor.")
