"""Prints results: with colours on a terminal, as plain text in a pipe, or as JSON.

A server's output is untrusted: on a terminal, control characters are removed from it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from antiphon.model.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text, TextContents
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment

__all__ = [
    "compact",
    "pretty",
    "print_failure",
    "print_result",
    "print_segment",
    "print_signatures",
    "result_as_json",
    "strip_control",
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MARKDOWN = re.compile(r"^(#{1,6} |```|[-*] |\d+\. |> |\|.*\|$)|\*\*\S|`\S|\]\(", re.MULTILINE)
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
    """Return indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compact(value: Any) -> str:
    """Return JSON on one line."""
    return msgspec.json.encode(value).decode()


def strip_control(text: str) -> str:
    """Remove control characters, so that the text cannot control the terminal."""
    return _CONTROL.sub("", text)


def print_result(result: Result) -> None:
    """Print the result of a call."""
    if sys.stdout.isatty():
        _print_styled(result)
    else:
        print("\n".join(_plain_lines(result)))


def print_segment(segment: Segment, *, as_json: bool) -> None:
    """Print a segment of a result and flush the output."""
    if as_json:
        text = compact({"seqNr": segment.number, **msgspec.to_builtins(segment.block)})
    else:
        text = _block_text(segment.block)
        text = strip_control(text) if sys.stdout.isatty() else text
    print(text, flush=True)


def print_failure(result: Result) -> None:
    """Print the text of a failed result to standard error."""
    text = "\n".join(_plain_lines(result)) or "The tool failed and gave no reason."
    print(strip_control(text) if sys.stderr.isatty() else text, file=sys.stderr)


def print_signatures(tools: Sequence[tuple[str, str]]) -> None:
    """Print signatures, each with its description on the next line."""
    if not sys.stdout.isatty():
        for signature, description in tools:
            print(f"{signature}\n    {description}" if description else signature)
        return
    from rich.console import Console
    from rich.highlighter import ReprHighlighter
    from rich.text import Text as Styled

    console = Console()
    highlight = ReprHighlighter()
    for signature, description in tools:
        name, _, rest = strip_control(signature).partition("(")
        console.print(Styled.assemble((name, "bold"), highlight(Styled(f"({rest}"))), soft_wrap=True)
        if description:
            console.print(Styled(f"    {strip_control(description)}", style="dim"), soft_wrap=True)


def _print_styled(result: Result) -> None:
    """Print a result on a terminal: render Markdown, and print structured data only once."""
    from rich.console import Console
    from rich.json import JSON
    from rich.markdown import Markdown
    from rich.text import Text as Styled

    console = Console()
    data = JSON(strip_control(compact(result.data))) if result.structured else None
    for block in () if data is not None and _content_repeats_data(result) else result.content:
        text = strip_control(_block_text(block))
        # Markdown joins lines, so text without any Markdown is printed as it is.
        if isinstance(block, Text) and _MARKDOWN.search(text):
            console.print(Markdown(text))
        else:
            console.print(Styled(text), soft_wrap=True)
    if data is not None:
        console.print(data, soft_wrap=True)


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
    except msgspec.DecodeError:
        return False
    return bool(value == result.data)


def _block_text(block: Block) -> str:
    """Return the text of a block, or a summary if the block is not text."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Image | Audio):
        return f"[{block.mime_type}, {_size(block.data)}]"
    if isinstance(block, ResourceLink):
        return f"{block.title or block.name}: {block.uri}"
    if not isinstance(block, EmbeddedResource):
        return _unknown_text(block)
    contents = block.resource
    if isinstance(contents, TextContents):
        return contents.text
    return f"[{contents.uri}, {contents.mime_type or 'application/octet-stream'}, {_size(contents.blob)}]"


def _unknown_text(block: Any) -> str:
    """Return the text of a block whose type this version does not know, with its address if it has one."""
    if not isinstance(block, dict) or not isinstance(block.get("text"), str):
        return compact(block)
    return f"{block['text']}: {block['url']}" if isinstance(block.get("url"), str) else block["text"]


def _size(base64: str) -> str:
    count, unit = len(base64.rstrip("=")) * 3 // 4, "bytes"
    for larger in ("KiB", "MiB"):
        if count >= _UNIT_THRESHOLD:
            count, unit = count // 1024, larger
    return f"{count} {unit}"
