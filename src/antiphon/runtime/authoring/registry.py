"""The tools, resources and prompts of a server, by name or URI.

Owns the lists and their pages, and which items are enabled. Publishes a change when a list changes. A plain
tool may change them from its thread while the event loop reads them. It must not know who listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from antiphon.errors import DefinitionError, InvalidParams, NotFound, ResourceNotFound
from antiphon.model.catalog import Definition, Kind
from antiphon.model.identity import Principal
from antiphon.model.notification import ListChanged
from antiphon.model.outcome import Page
from antiphon.model.request import CallTool, GetPrompt
from antiphon.model.ui import APP_MIME_TYPE
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.authoring.uri_template import MAX_URI_CHARACTERS
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.runtime.providers import Provider

__all__ = ["Registry"]

T = TypeVar("T")

_KINDS: tuple[Kind, ...] = get_args(Kind)


class _computed(cached_property[T]):
    """A property that is computed once, and again after a change of the items."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance.changing:  # a change during the computation would be forgotten
            return super().__get__(instance, owner)


class Registry:
    """The tools, resources and prompts of one server, in the order in which they were added.

    `tools`, `resources`, `templates` and `prompts` have the enabled ones. Switching replaces them, so that
    another thread that reads them sees them before or after the change.
    """

    def __init__(self, changes: ChangeFeed, page_size: int) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.find_unlisted: Callable[[str], Iterable[Resource]] = lambda uri: ()
        """Returns resource templates for a URI that can be read although no list contains them."""
        self._changes = changes
        self.page_size = page_size
        self.changing = threading.RLock()
        """Held while the items change, and while something is computed from them."""
        self._registered: dict[Kind, dict[str, Any]] = {kind: {} for kind in _KINDS}
        """The items of each list, also those that are disabled: of each name, the one of its owner."""
        self._claims: dict[Kind, dict[Provider | None, dict[str, Any]]] = {
            kind: {None: {}} for kind in _KINDS
        }
        """What each provider has registered, also under names that are not its own; `None` is the author."""
        self._switches: dict[tuple[Literal["name", "tag"], str], bool] = {}
        """What was enabled and disabled later, by name or tag. The last one that fits an item counts."""
        self._definitions: dict[Kind, Sequence[Definition]] = {}
        self.providers: list[Provider] = []
        """The sources of items that are not the author's."""
        self._written: dict[Kind, dict[Provider, Collection[str]]] = {kind: {} for kind in _KINDS}
        """The names and URIs among these that are written in this process, and come from no other program."""
        self._owners: dict[Kind, dict[str, Provider | None]] = {kind: {} for kind in _KINDS}

    def add_tool(self, tool: Tool) -> None:
        """Add a tool; raises `DefinitionError` if the name is taken."""
        self._add("tools", tool.name, tool)

    def add_resource(self, resource: Resource) -> None:
        """Add a resource or a resource template; raises `DefinitionError` if the URI is taken."""
        if resource.template is None:
            self._add("resources", resource.uri, resource)
        else:
            self._add("templates", resource.uri, resource)

    def add_prompt(self, prompt: Prompt) -> None:
        """Add a prompt; raises `DefinitionError` if the name is taken."""
        self._add("prompts", prompt.name, prompt)

    def replace(
        self,
        owner: Provider,
        kind: Kind,
        items: Iterable[Tool | Resource | Prompt],
        written: Collection[str] = (),
    ) -> frozenset[str]:
        """Register the items of a provider, in place of those that it has in this list.

        A name or a URI belongs to the author, then to those who have `written` it in this process, and then
        to other programs; among these, to the provider that was added first, whichever has registered it
        first. What another one has is offered when the owner has it no more. Publishes one change, if the
        list has changed. Returns the names and URIs that stand for something else than before.
        """
        with self.changing:
            self._claims[kind][owner] = {_key(item): item for item in items}
            self._written[kind][owner] = written
            return self._join(kind)

    def _join(self, kind: Kind) -> frozenset[str]:
        """Offer the items of the owners; return the names and URIs that stand for something else now."""
        before, claims, written = self._registered[kind], self._claims[kind], self._written[kind]
        owners: dict[str, Provider | None] = dict.fromkeys(claims[None])
        for of in (written, claims):
            for provider in self.providers:
                owners = {**dict.fromkeys(of.get(provider, ()), provider), **owners}
        registered = dict(claims[None])
        for provider in self.providers:
            further = claims.get(provider, {}).items()
            registered |= {key: item for key, item in further if owners[key] is provider}
        self._registered[kind], self._owners[kind] = registered, owners
        self._offer_enabled(kind, before)
        changed = frozenset(key for key, item in registered.items() if before.get(key) is not item)
        return changed.union(before.keys() - registered.keys())

    def claims(self, provider: Provider, kind: Kind) -> Mapping[str, Any]:
        """Return what a provider has registered in a list, also under names that are not its own."""
        return self._claims[kind].get(provider, {})

    def displaced(self, provider: Provider, kind: Kind) -> Collection[str]:
        """Return the names and URIs that a provider has registered, and that are not its own."""
        return [key for key in self.claims(provider, kind) if self._owners[kind][key] is not provider]

    def check_free(self, provider: Provider, kind: Kind, items: Iterable[Tool | Resource | Prompt]) -> None:
        """Raise `DefinitionError` if the name or the URI of an item is written in this process elsewhere."""
        for key in map(_key, items):
            owner = self.owner(kind, key)
            is_written = owner is None or key in self._written[kind].get(owner, ())
            if key in self._registered[kind] and owner is not provider and is_written:
                raise _taken(kind, key)

    # Enabling and disabling

    def switch(self, names: Sequence[str], tags: Collection[str], *, enabled: bool) -> None:
        """Enable or disable the items that have one of these names, URIs or tags, also those to come.

        Publishes a change for each list that has changed. Raises `NotFound`, and changes nothing, for a name
        that no item has, unless a provider may have one that it does not register.
        """
        unregistered = [
            name for name in names if not any(name in items for items in self._registered.values())
        ]
        if unregistered and not self.providers:
            raise NotFound(f"There is no tool, resource or prompt {unregistered[0]!r}.")
        switched: dict[tuple[Literal["name", "tag"], str], bool] = {
            **{("name", name): enabled for name in names},
            **{("tag", tag): enabled for tag in tags},
        }
        with self.changing:
            kept = {each: value for each, value in self._switches.items() if each not in switched}
            self._switches = kept | switched  # the last one counts
            for kind in _KINDS:
                self._offer_enabled(kind)
                if unregistered and self.offers(kind):
                    self._publish(kind)  # the list of a provider may have changed

    @property
    def tags(self) -> frozenset[str]:
        """The tags of all items, also of those that are disabled."""
        with self.changing:
            items = [item for registered in self._registered.values() for item in registered.values()]
        return frozenset[str]().union(*(item.offer.tags for item in items))

    @property
    def unused_tags(self) -> frozenset[str]:
        """The tags that were enabled or disabled and that no item has.

        There are none if there are providers, which may register items with other tags at any time.
        """
        if self.providers:
            return frozenset()
        return frozenset(value for by, value in self._switches if by == "tag") - self.tags

    def is_disabled(self, kind: Kind, key: str) -> bool:
        """Return whether an item is disabled, also if a provider has it and does not register it."""
        if key in self._registered[kind]:
            return key not in self.items(kind)
        return self._switches.get(("name", key)) is False

    def _offer_enabled(self, kind: Kind, before: Mapping[str, Any] = MappingProxyType({})) -> None:
        """List the enabled items, and publish a change if the list has changed.

        Items that were registered `before`, since the last switch, are enabled or disabled as they were.
        """
        listed = self.items(kind)
        enabled = {
            key: item
            for key, item in self._registered[kind].items()
            if (key in listed if before.get(key) is item else self._is_on(key, item))
        }
        setattr(self, kind, enabled)
        self._forget(kind)
        if list(listed) != list(enabled) or any(
            had is not has and had.definition != has.definition
            for had, has in zip(listed.values(), enabled.values(), strict=True)
        ):
            self._publish(kind)

    def _is_on(self, key: str, item: Tool | Resource | Prompt) -> bool:
        is_on = item.offer.enabled
        for (by, value), enabled in self._switches.items():
            if value == key if by == "name" else value in item.offer.tags:
                is_on = enabled
        return is_on

    # Who sees what

    @_computed
    def conditional_kinds(self) -> frozenset[Kind]:
        """The lists with items that not every caller sees."""
        return frozenset(
            kind
            for kind, items in self._registered.items()
            if any(item.offer.is_conditional for item in items.values())
        )

    def seen(self, kind: Kind, key: str, principal: Principal) -> Any:
        """Return an item that is enabled and that a caller sees, or `None`."""
        item = self.items(kind).get(key)
        return item if item is not None and item.offer.is_for(principal) else None

    def hides(self, kind: Kind, key: str, principal: Principal) -> bool:
        """Return whether an item has this name or URI, and is disabled or does not exist for a caller."""
        if key in self._registered[kind]:
            return self.seen(kind, key, principal) is None
        if self.is_disabled(kind, key):
            return True
        if kind != "resources" or not self._may_hide_templates or len(key) > MAX_URI_CHARACTERS:
            return False
        fitting = [
            uri
            for uri, resource in self._registered["templates"].items()
            if resource.template.match(key) is not None
        ]
        return bool(fitting) and all(self.seen("templates", uri, principal) is None for uri in fitting)

    @_computed
    def _may_hide_templates(self) -> bool:
        """Whether a resource template is disabled, or does not exist for every caller."""
        registered = self._registered["templates"]
        return "templates" in self.conditional_kinds or len(self.templates) < len(registered)

    # Looking up

    def owner(self, kind: Kind, key: str) -> Provider | None:
        """Return the provider of an item, or `None` if the author registered it."""
        return self._owners[kind].get(key)

    def offers(self, kind: Kind) -> bool:
        """Return whether a list has items, or belongs to a provider that may add some."""
        return bool(self._registered[kind]) or any(kind in each.kinds for each in self.providers)

    def offers_named(self, request: Any) -> bool:
        """Return whether the lists have the tool or the prompt that a request names, if it names one."""
        if isinstance(request, CallTool):
            return request.name in self.tools
        return not isinstance(request, GetPrompt) or request.name in self.prompts

    def remove_tool(self, name: str) -> None:
        """Remove a tool; raises `NotFound`."""
        self._remove("tools", name)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a resource template; raises `NotFound`."""
        if uri in self._registered["templates"]:
            self._remove("templates", uri)
        else:
            self._remove("resources", uri)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; raises `NotFound`."""
        self._remove("prompts", name)

    def tool(self, name: str) -> Tool:
        """Return a tool, also one that is disabled: its tasks go on; raises `NotFound`."""
        try:
            tool: Tool = self._registered["tools"][name]
            return tool
        except KeyError:
            raise NotFound(f"Unknown tool: {name!r}.") from None

    def prompt(self, name: str, principal: Principal) -> Prompt:
        """Return a prompt that a caller sees; raises `NotFound`."""
        prompt: Prompt | None = self.seen("prompts", name, principal)
        if prompt is None:
            raise NotFound(f"Unknown prompt: {name!r}.")
        return prompt

    def resource(self, uri: str, principal: Principal | None = None) -> tuple[Resource, dict[str, str]]:
        """Return the resource for a URI, and the template variables in the URI; raises `ResourceNotFound`.

        With a principal, only resources that exist for this caller are found. A resource that does not is not
        found through a template that fits its URI either.
        """
        if (resource := self.resources.get(uri)) is not None:
            if principal is None or resource.offer.is_for(principal):
                return resource, {}
            raise _unknown_resource(uri)
        if self.is_disabled("resources", uri):
            raise _unknown_resource(uri)
        if len(uri) > MAX_URI_CHARACTERS:
            raise ResourceNotFound(
                f"Resource not found: a URI has at most {MAX_URI_CHARACTERS} characters, not {len(uri)}."
            )
        for candidate in (*self.find_unlisted(uri), *self.templates.values()):
            if (
                candidate.template is not None
                and (variables := candidate.template.match(uri)) is not None
                and (principal is None or candidate.offer.is_for(principal))
            ):
                return candidate, variables
        raise _unknown_resource(uri)

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that can run as tasks, also of those that a provider has yet to register."""
        tools = self._registered["tools"].items()
        registered = [name for name, tool in tools if tool.task != "forbidden"]
        return tuple(
            dict.fromkeys((*registered, *(name for each in self.providers for name in each.task_tools)))
        )

    @_computed
    def has_task_tools(self) -> bool:
        """Whether any tool can run as a task."""
        return any(tool.task != "forbidden" for tool in self._registered["tools"].values())

    @_computed
    def has_restricted_tools(self) -> bool:
        """Whether any tool needs scopes, or does not exist for every caller."""
        tools = self._registered["tools"].values()
        return "tools" in self.conditional_kinds or any(tool.scopes is not None for tool in tools)

    @_computed
    def has_scopes(self) -> bool:
        """Whether any tool, resource or prompt needs scopes."""
        return any(item.scopes is not None for items in self._registered.values() for item in items.values())

    @_computed
    def has_restricted_resources(self) -> bool:
        """Whether any resource or resource template needs scopes, or does not exist for every caller."""
        resources = (*self._registered["resources"].values(), *self._registered["templates"].values())
        return any(each.scopes is not None or each.offer.is_conditional for each in resources)

    @_computed
    def has_apps(self) -> bool:
        """Whether any resource or resource template is an MCP App."""
        resources = (*self.resources.values(), *self.templates.values())
        return any(each.definition.mime_type == APP_MIME_TYPE for each in resources)

    @_computed
    def has_hidden_tools(self) -> bool:
        """Whether any tool is for MCP Apps, and not for models."""
        return any("model" not in tool.definition.visibility for tool in self.tools.values())

    def check_ui(self, tool: Tool) -> None:
        """Raise `DefinitionError` if the server does not have the App of a tool, or no App can call it."""
        if tool.ui is not None:
            try:
                found: Resource | None = self.resource(tool.ui)[0]
            except ResourceNotFound:
                found = self._registered["resources"].get(tool.ui)  # it may be disabled for now
            if found is None or found.definition.mime_type != APP_MIME_TYPE:
                raise DefinitionError(
                    f"The tool {tool.name!r} has ui={tool.ui!r}, and the server has no App at this address. "
                    f"Register it with @server.ui({tool.ui!r})."
                )
        elif "model" not in tool.definition.visibility and not self.has_apps:
            raise DefinitionError(
                f"The tool {tool.name!r} is for Apps only, and the server has no App. Register one with "
                '@server.ui, or add "model" to the visibility of the tool.'
            )

    def definitions(self, kind: Kind) -> Sequence[Definition]:
        """Return the definitions of all items of a list, in order."""
        definitions = self._definitions.get(kind)
        if definitions is None:
            with self.changing:
                definitions = tuple(item.definition for item in self.items(kind).values())
                self._definitions[kind] = definitions
        return definitions

    def page(
        self, kind: Kind, definitions: Sequence[Definition], cursor: str | None, ttl_ms: int, *, shared: bool
    ) -> Page:
        """Return the page of some definitions that begins at a cursor; raises `InvalidParams`."""
        start = _offset(cursor)
        end = start + self.page_size
        following = str(end) if end < len(definitions) else None
        return Page(kind, definitions[start:end], following, ttl_ms, shared=shared)

    def items(self, kind: Kind) -> Mapping[str, Any]:
        """Return the enabled items of a list, by name or URI."""
        items: dict[str, Any] = getattr(self, kind)
        return items

    def registered(self, kind: Kind) -> Mapping[str, Any]:
        """Return all items of a list, also those that are disabled, by name or URI."""
        return self._registered[kind]

    def _add(self, kind: Kind, key: str, item: Tool | Resource | Prompt) -> None:
        with self.changing:
            if key in self._registered[kind]:
                raise _taken(kind, key)
            self._registered[kind][key] = self._claims[kind][None][key] = item
            self._forget(kind)
            if self._is_on(key, item):
                getattr(self, kind)[key] = item
                self._publish(kind)

    def _remove(self, kind: Kind, key: str) -> None:
        with self.changing:
            if self._registered[kind].pop(key, None) is None:
                raise NotFound(f"There is no {kind.removesuffix('s')} {key!r}.")
            del self._claims[kind][self._owners[kind].pop(key, None)][key]
            self._forget(kind)
            if getattr(self, kind).pop(key, None) is not None:
                self._publish(kind)
            if self.providers:
                self._join(kind)  # one of them may have waited for the name

    def _forget(self, kind: Kind) -> None:
        """Forget everything that was computed from the items of a list."""
        self._definitions.pop(kind, None)
        for cached in _CACHED:
            self.__dict__.pop(cached, None)

    def _publish(self, kind: Kind) -> None:
        self._changes.publish(ListChanged("resources" if kind == "templates" else kind))


_CACHED = tuple(name for name, value in vars(Registry).items() if isinstance(value, cached_property))


def _key(item: Tool | Resource | Prompt) -> str:
    return item.uri if isinstance(item, Resource) else item.name


def _taken(kind: Kind, key: str) -> DefinitionError:
    return DefinitionError(
        f"There is already a {kind.removesuffix('s')} {key!r}: use another name, "
        "or remove the existing one first."
    )


def _unknown_resource(uri: str) -> ResourceNotFound:
    return ResourceNotFound(f"Resource not found: {uri}", data={"uri": uri})


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= 12:
        return int(cursor)
    raise InvalidParams("Invalid cursor: start again without a cursor.")
