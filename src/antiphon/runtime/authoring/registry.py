"""Everything that a server offers, by name and by address, and who gets told when that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from antiphon.errors import DefinitionError, InvalidParams, NotFound, ResourceNotFound
from antiphon.model.catalog import Definition, Kind
from antiphon.model.notification import ListChanged
from antiphon.model.outcome import Page
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
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
        """Finds families of resources that can be read, and are on no list, by an address."""
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
        """Offer a tool; raises `DefinitionError` if there is one of that name."""
        self._add("tools", self.tools, tool.name, tool)

    def add_resource(self, resource: Resource) -> None:
        """Offer a resource or a family of them; raises `DefinitionError` if the address is taken."""
        if resource.template is None:
            self._add("resources", self.resources, resource.uri, resource)
        else:
            self._add("templates", self.templates, resource.uri, resource)

    def add_prompt(self, prompt: Prompt) -> None:
        """Offer a prompt; raises `DefinitionError` if there is one of that name."""
        self._add("prompts", self.prompts, prompt.name, prompt)

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer; raises `NotFound`."""
        self._remove("tools", self.tools, name)

    def remove_resource(self, uri: str) -> None:
        """Offer a resource, or a family of them, no longer; raises `NotFound`."""
        if uri in self.templates:
            self._remove("templates", self.templates, uri)
        else:
            self._remove("resources", self.resources, uri)

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer; raises `NotFound`."""
        self._remove("prompts", self.prompts, name)

    def tool(self, name: str) -> Tool:
        """The tool of that name; raises `NotFound`."""
        try:
            return self.tools[name]
        except KeyError:
            raise NotFound(f"Unknown tool: {name!r}.") from None

    def prompt(self, name: str) -> Prompt:
        """The prompt of that name; raises `NotFound`."""
        try:
            return self.prompts[name]
        except KeyError:
            raise NotFound(f"Unknown prompt: {name!r}.") from None

    def resource(self, uri: str) -> tuple[Resource, dict[str, str]]:
        """The resource at an address, and the variables in it; raises `ResourceNotFound`."""
        if (resource := self.resources.get(uri)) is not None:
            return resource, {}
        for candidate in (*self.templates.values(), *self.find_unlisted(uri)):
            if candidate.template is not None and (variables := candidate.template.match(uri)) is not None:
                return candidate, variables
        raise ResourceNotFound(f"Resource not found: {uri}", data={"uri": uri})

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that can run as tasks."""
        return tuple(name for name, tool in self.tools.items() if tool.task != "forbidden")

    def page(self, kind: Kind, cursor: str | None, ttl_ms: int) -> Page:
        """One page of a list; raises `InvalidParams` for a cursor that is none of ours."""
        definitions = self._definitions.get(kind)
        if definitions is None:
            definitions = tuple(item.definition for item in self._lists[kind].values())
            self._definitions[kind] = definitions
        start = _offset(cursor)
        end = start + self.page_size
        following = str(end) if end < len(definitions) else None
        return Page(kind, definitions[start:end], following, ttl_ms)

    def _add(self, kind: Kind, items: dict[str, Item], key: str, item: Item) -> None:
        if key in items:
            raise DefinitionError(
                f"There is already a {kind.removesuffix('s')} {key!r}: give this one another name, "
                "or remove the other first."
            )
        items[key] = item
        self._changed(kind)

    def _remove(self, kind: Kind, items: dict[str, Item], key: str) -> None:
        if items.pop(key, None) is None:
            raise NotFound(f"There is no {key!r} among the {kind}.")
        self._changed(kind)

    def _changed(self, kind: Kind) -> None:
        self._definitions.pop(kind, None)
        self._changes.publish(ListChanged("resources" if kind == "templates" else kind))


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= 12:
        return int(cursor)
    raise InvalidParams("That cursor is not one that this server gave out: start again without one.")
