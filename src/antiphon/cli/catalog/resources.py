"""`antiphon resources` lists the resources and templates of a server; `antiphon read` reads a resource."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.cli import render
from antiphon.cli.call.connecting import answering_client
from antiphon.cli.call.progress import ProgressDisplay
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.saving import SAVE_HINT, Destination, file_of_contents
from antiphon.cli.targets import Target, run_async
from antiphon.errors import MethodNotFound
from antiphon.model.catalog import ResourceDefinition, TemplateDefinition
from antiphon.model.content import Block, Contents, EmbeddedResource, Text, TextContents
from antiphon.model.outcome import Result
from antiphon.printable import printable, printable_url

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["list_resources", "read_resource", "read_whole", "resource_row"]

MAX_WHOLE_CHARACTERS = 256 * 1024 * 1024
"""How much of a resource is collected from its parts."""
MAX_PARTS = 5000
"""How many parts of a resource are collected: a server can name a next one for ever."""

_HEADING = ("URI", "TYPE", "SIZE", "DESCRIPTION")


def list_resources(target: Target, *, as_json: bool) -> None:
    """Print the resources and the resource templates of a server. Raises `CommandError`."""
    resources, templates = run_async(_fetch_resources(target), target)
    if as_json:
        print(render.pretty({"resources": resources, "resourceTemplates": templates}))
    elif not resources and not templates:
        print("This server has no resources.")
    else:
        render.print_table(
            _HEADING,
            [resource_row(each.uri, each, each.size) for each in resources]
            + [resource_row(each.uri_template, each) for each in templates],
        )


def read_resource(
    target: Target, uri: str, handler: ElicitationHandler, *, as_json: bool, save: Destination | None = None
) -> None:
    """Read a resource, and print its contents or save them. Raises `CommandError`."""
    items = run_async(_read(target, uri, handler, whole=save is not None), target)
    if save is not None:
        save.save([file_of_contents(parts) for parts in items])
    if as_json:
        print(render.pretty({"contents": [part for parts in items for part in parts]}))
    elif save is None:
        _print_contents([parts[0] for parts in items])


def _print_contents(items: Sequence[Contents]) -> None:
    blocks = [_as_block(contents) for contents in items]
    render.print_result(Result(blocks))
    if any(map(render.is_binary, blocks)):
        print(SAVE_HINT, file=sys.stderr)
    for contents in items:
        if following := _next_part(contents):
            shown = shlex.quote(_shown(following))
            print(f"This is a part of the resource. The next part is {shown}", file=sys.stderr)


async def read_whole(client: Client, uri: str) -> list[list[Contents]]:
    """Read a resource: its contents, each with all of its parts. Raises `CommandError` if it is too large."""
    room = MAX_WHOLE_CHARACTERS
    items: list[list[Contents]] = []
    for first in (await client.read(uri)).contents:
        parts, seen = [first], {first.uri}
        while (following := _next_part(parts[-1])) is not None and following not in seen:
            room -= _length(parts[-1])
            if room < 0 or len(parts) == MAX_PARTS:
                raise CommandError(f"The resource {printable(uri)} is too large. Read it in parts.", FAILED)
            seen.add(following)
            parts += (await client.read(following)).contents[:1]
        items.append(parts)
    return items


def _next_part(contents: Contents) -> str | None:
    """Return the URI of the next part of a long resource; `None` for the last part.

    Only a URI of the same resource counts, so that a server cannot name another one.
    """
    found = (contents.meta or {}).get("next")
    same = isinstance(found, str) and found.partition("?")[0] == contents.uri.partition("?")[0]
    return found if same else None


def _length(contents: Contents) -> int:
    return len(contents.text if isinstance(contents, TextContents) else contents.blob)


def resource_row(
    uri: str, definition: ResourceDefinition | TemplateDefinition, size: int | None = None
) -> list[str]:
    title = definition.title or (definition.name if definition.name != uri else "")
    text = ": ".join(part for part in (title, render.first_line(definition.description)) if part)
    return [
        _shown(uri),
        definition.mime_type or "-",
        "-" if size is None else render.size_of(size),
        text,
    ]


def _as_block(contents: Contents) -> Block:
    """Return contents as a block for printing. Only a text that is Markdown is rendered as Markdown."""
    if not isinstance(contents, TextContents):
        return EmbeddedResource(contents)
    text = contents.text.removesuffix("\n")  # the printed line has one
    if contents.mime_type == "text/markdown":
        return Text(text)
    return EmbeddedResource(TextContents(contents.uri, text))


async def _fetch_resources(
    target: Target,
) -> tuple[list[ResourceDefinition], list[TemplateDefinition]]:
    async with target.client() as client:
        # A server without resources need not implement their methods.
        if "resources" not in client.capabilities:
            return [], []
        resources = await client.resources()
        try:
            return resources, await client.templates()
        except MethodNotFound:  # templates are optional
            return resources, []


async def _read(
    target: Target, uri: str, handler: ElicitationHandler, *, whole: bool
) -> list[list[Contents]]:
    async with answering_client(target, handler, ProgressDisplay()) as client:
        if "resources" not in client.capabilities:
            raise CommandError(f"{handler.server_name} has no resources.")
        if whole:
            return await read_whole(client, uri)
        return [[contents] for contents in (await client.read(uri)).contents]


def _shown(uri: str) -> str:
    """Return a URI as the server knows it, because the user passes it to `antiphon read`.

    The address of a web page is shown so that a person sees where it leads, and without a password.
    """
    is_web = uri.lower().startswith(("http:", "https:"))
    return printable_url(uri) if is_web else printable(uri)
