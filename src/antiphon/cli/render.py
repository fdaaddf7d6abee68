"""Prints results: with colours on a terminal, as plain text in a pipe, or as JSON.

A server's output is untrusted. Everything that is printed is cleaned: the text of a result keeps its line
feeds and tabs, and nothing else that could control a terminal. Links are printed with their full URLs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.model.content import (
    Audio,
    BlobContents,
    Block,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment
from antiphon.printable import printable, printable_json, printable_text, printable_url

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment as StyledText

__all__ = [
    "columns",
    "compact",
    "first_line",
    "is_binary",
    "pretty",
    "print_failure",
    "print_heading",
    "print_result",
    "print_segment",
    "print_signatures",
    "print_table",
    "result_as_json",
    "size_of",
]

_MARKDOWN = re.compile(r"^(#{1,6} |```|[-*] |\d+\. |> |\|.*\|$)|\*\*\S|`\S|\]\(", re.MULTILINE)
_MAX_STYLED_CHARACTERS = 20_000
"""Up to this length, a text is rendered as Markdown, and data is coloured. Longer ones would take seconds."""
_UNIT_THRESHOLD = 10 * 1024
"""From this count on, a size is shown in the next larger unit."""


def result_as_json(result: Result, *, on_one_line: bool = False) -> str:
    """Return the whole result as JSON."""
    value: dict[str, Any] = {"content": result.content}
    if result.structured:
        value["structuredContent"] = result.data
    value["isError"] = result.is_error
    if result.meta:
        value["_meta"] = result.meta
    return compact(value) if on_one_line else pretty(value)


def pretty(value: Any) -> str:
    """Return indented JSON. Characters that could control a terminal are escaped."""
    return printable_json(msgspec.json.format(_encode(value), indent=2).decode())


def compact(value: Any) -> str:
    """Return JSON on one line. Characters that could control a terminal are escaped."""
    return printable_json(_encode(value).decode())


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except OverflowError:  # msgspec stops at 64 bits; JSON does not
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode()


def first_line(text: str | None) -> str:
    """Return the first line of a description; an empty text if there is none."""
    lines = (text or "").strip().splitlines()
    return lines[0] if lines else ""


def print_result(result: Result) -> None:
    """Print the result of a call."""
    if sys.stdout.isatty():
        _print_styled(result)
    else:
        print(printable_text("\n".join(_plain_lines(result))))


def print_segment(segment: Segment, *, as_json: bool) -> None:
    """Print a segment of a result and flush the output."""
    if as_json:
        text = compact({"seqNr": segment.number, **msgspec.to_builtins(segment.block)})
    else:
        text = printable_text(_block_text(segment.block))
    print(text, flush=True)


def print_failure(result: Result) -> None:
    """Print the text of a failed result to standard error."""
    text = "\n".join(_plain_lines(result)) or "The tool failed and gave no reason."
    print(printable_text(text), file=sys.stderr)


def print_signatures(tools: Sequence[tuple[str, str]]) -> None:
    """Print signatures, each with its description on the next line."""
    lines = [(printable(signature), printable(description)) for signature, description in tools]
    if not sys.stdout.isatty():
        for signature, description in lines:
            print(f"{signature}\n    {description}" if description else signature)
        return
    from rich.console import Console
    from rich.highlighter import ReprHighlighter
    from rich.text import Text as Styled

    console = Console()
    highlight = ReprHighlighter()
    for signature, description in lines:
        name, _, rest = signature.partition("(")
        console.print(Styled.assemble((name, "bold"), highlight(Styled(f"({rest}"))), soft_wrap=True)
        if description:
            console.print(Styled(f"    {description}", style="dim"), soft_wrap=True)


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells below a heading. On a terminal, long cells are wrapped within their column."""
    lines = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print(columns([heading, *lines]))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Styled

    table = Table(*heading, box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for line in lines:
        table.add_row(*map(Styled, line))
    Console().print(table)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as a table, the first row as its heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def print_heading(text: str) -> None:
    """Print a line above other content, in bold on a terminal."""
    if not sys.stdout.isatty():
        print(printable(text))
        return
    from rich.console import Console
    from rich.text import Text as Styled

    Console().print(Styled(printable(text), style="bold"), soft_wrap=True)


def _print_styled(result: Result) -> None:
    """Print a result on a terminal: render Markdown, and print structured data only once."""
    from rich.console import Console
    from rich.json import JSON
    from rich.markdown import Markdown
    from rich.text import Text as Styled

    console = Console()
    data: RenderableType | None = None
    if result.structured:
        text = compact(result.data)
        data = JSON(text) if len(text) <= _MAX_STYLED_CHARACTERS else Styled(text)
    for block in () if data is not None and _content_repeats_data(result) else result.content:
        text = printable_text(_block_text(block))
        # Markdown joins lines, so text without any Markdown is printed as it is.
        if isinstance(block, Text) and len(text) <= _MAX_STYLED_CHARACTERS and _MARKDOWN.search(text):
            # A link prints its URL: a hyperlink of the terminal would hide where it leads.
            console.print(_Cleaned(Markdown(text, hyperlinks=False)))
        else:
            console.print(Styled(text), soft_wrap=True)
    if data is not None:
        console.print(_Cleaned(data), soft_wrap=True)


class _Cleaned:
    """Something that Rich renders, cleaned afterwards: Markdown and JSON have escapes of their own."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[StyledText]:
        for part in console.render(self._renderable, options):
            yield part._replace(text=printable_text(part.text))


def _plain_lines(result: Result) -> Iterator[str]:
    for block in result.content:
        yield _block_text(block)
    if result.structured and not result.content:
        yield compact(result.data)


def _content_repeats_data(result: Result) -> bool:
    """Return whether the content is only the structured data as text.

    Servers add such text for clients that do not read structured data.
    """
    if len(result.content) != 1 or not isinstance(result.content[0], Text):
        return False
    try:
        value = msgspec.json.decode(result.content[0].text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return bool(value == result.data)


def _block_text(block: Block) -> str:
    """Return the text of a block, or a summary if the block is not text."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Image | Audio):
        return f"[{printable(block.mime_type)}, {_size(block.data)}]"
    if isinstance(block, ResourceLink):
        return f"{printable(block.title or block.name)}: {printable_url(block.uri)}"
    if not isinstance(block, EmbeddedResource):
        return _unknown_text(block)
    contents = block.resource
    if isinstance(contents, TextContents):
        return contents.text
    kind = printable(contents.mime_type or "application/octet-stream")
    return f"[{printable_url(contents.uri)}, {kind}, {_size(contents.blob)}]"


def _unknown_text(block: Any) -> str:
    """Return the text of a block whose type this version does not know, with its address if it has one."""
    if not isinstance(block, dict) or not isinstance(block.get("text"), str):
        return compact(block)
    text: str = block["text"]
    return f"{text}: {printable_url(block['url'])}" if isinstance(block.get("url"), str) else text


def is_binary(block: Block) -> bool:
    """Return whether a block is an image, audio or the bytes of a resource, which are shown as a summary."""
    if isinstance(block, EmbeddedResource):
        return isinstance(block.resource, BlobContents)
    return isinstance(block, Image | Audio)


def size_of(count: int) -> str:
    """Return a number of bytes for people, such as `12 KiB`."""
    unit = "bytes"
    for larger in ("KiB", "MiB"):
        if count >= _UNIT_THRESHOLD:
            count, unit = count // 1024, larger
    return f"{count} {unit}"


def _size(base64: str) -> str:
    return size_of(len(base64.rstrip("=")) * 3 // 4)
