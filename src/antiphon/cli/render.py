"""What a result looks like: with colours on a terminal, as plain text in a pipe, as JSON for programs.

What comes from a server is data: on a terminal, control characters in it are left out.
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

__all__ = ["as_json", "clean", "compact", "failure", "listing", "pretty", "result", "segment"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MARKDOWN = re.compile(r"^(#{1,6} |```|[-*] |\d+\. |> |\|.*\|$)|\*\*\S|`\S|\]\(", re.MULTILINE)


def as_json(result: Result, *, on_one_line: bool = False) -> str:
    """The whole result object."""
    value: dict[str, Any] = {"content": result.content}
    if result.structured:
        value["structuredContent"] = result.data
    value["isError"] = result.is_error
    if result.meta:
        value["_meta"] = result.meta
    return compact(value) if on_one_line else pretty(value)


def pretty(value: Any) -> str:
    """JSON to look at."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compact(value: Any) -> str:
    """JSON on one line."""
    return msgspec.json.encode(value).decode()


def clean(text: str) -> str:
    """Text that does nothing to a terminal but stand there."""
    return _CONTROL.sub("", text)


def result(result: Result) -> None:
    """Print what a call gave."""
    if sys.stdout.isatty():
        _show(result)
    else:
        print("\n".join(_plain(result)))


def segment(segment: Segment, *, as_json: bool) -> None:
    """Print a piece of what a call gives, at once."""
    if as_json:
        text = compact({"seqNr": segment.number, **msgspec.to_builtins(segment.block)})
    else:
        text = _summary(segment.block)
        text = clean(text) if sys.stdout.isatty() else text
    print(text, flush=True)


def failure(result: Result) -> None:
    """Print why a call failed, on the standard error."""
    text = "\n".join(_plain(result)) or "The tool failed and did not say why."
    print(clean(text) if sys.stderr.isatty() else text, file=sys.stderr)


def listing(tools: Sequence[tuple[str, str]]) -> None:
    """Print signatures, each with what it is for under it."""
    if not sys.stdout.isatty():
        for signature, line in tools:
            print(f"{signature}\n    {line}" if line else signature)
        return
    from rich.console import Console
    from rich.highlighter import ReprHighlighter
    from rich.text import Text as Styled

    console = Console()
    highlight = ReprHighlighter()
    for signature, line in tools:
        name, _, rest = clean(signature).partition("(")
        console.print(Styled.assemble((name, "bold"), highlight(Styled(f"({rest}"))), soft_wrap=True)
        if line:
            console.print(Styled(f"    {clean(line)}", style="dim"), soft_wrap=True)


def _show(result: Result) -> None:
    """On a terminal: Markdown where it is some, and structured data once."""
    from rich.console import Console
    from rich.json import JSON
    from rich.markdown import Markdown
    from rich.text import Text as Styled

    console = Console()
    data = JSON(clean(compact(result.data))) if result.structured else None
    repeated = data is not None and _says_the_same(result)
    for block in () if repeated else result.content:
        text = clean(_summary(block))
        # Markdown runs lines together, so text that is none is left as it is.
        if isinstance(block, Text) and _MARKDOWN.search(text):
            console.print(Markdown(text))
        else:
            console.print(Styled(text), soft_wrap=True)
    if data is not None:
        console.print(data, soft_wrap=True)


def _plain(result: Result) -> Iterator[str]:
    for block in result.content:
        yield _summary(block)
    if result.structured and not result.content:
        yield compact(result.data)


def _says_the_same(result: Result) -> bool:
    """Whether the content is nothing but the structured data as text, for clients that read no other."""
    if len(result.content) != 1 or not isinstance(result.content[0], Text):
        return False
    try:
        said = msgspec.json.decode(result.content[0].text)
    except msgspec.DecodeError:
        return False
    return bool(said == result.data)


def _summary(block: Block) -> str:
    """A block as text: what it says, or what it is."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Image | Audio):
        return f"[{block.mime_type}, {_size(block.data)}]"
    if isinstance(block, ResourceLink):
        return f"{block.title or block.name}: {block.uri}"
    if not isinstance(block, EmbeddedResource):
        return compact(block)  # of a type that is not known here
    held = block.resource
    if isinstance(held, TextContents):
        return held.text
    return f"[{held.uri}, {held.mime_type or 'application/octet-stream'}, {_size(held.blob)}]"


def _size(base64: str) -> str:
    count, unit = len(base64.rstrip("=")) * 3 // 4, "bytes"
    for larger in ("KiB", "MiB"):
        if count >= 10 * 1024:
            count, unit = count // 1024, larger
    return f"{count} {unit}"
