"""What `antiphon call` does when a tool asks something: it looks at what the command line answers, then
asks the person at the terminal. Where there is neither, it stops with the question and how to answer it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from antiphon.cli.call.fields import Field, fields_of
from antiphon.cli.call.terminal import Left, Terminal
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.render import clean
from antiphon.cli.run.settings import Otherwise
from antiphon.errors import RequestError

if TYPE_CHECKING:
    from antiphon.client import Elicitation

__all__ = ["Asker", "Given"]

_HELP = "Enter takes what is in [brackets]. !decline or Ctrl-D says no, !cancel or Ctrl-C leaves it open."
_UNSET: Any = object()


class Given:
    """The answers on the command line, by field.

    Several for one field are used in turn, one for each form that has it; the last one stays.
    """

    def __init__(self, pairs: Sequence[str] = (), file: str | None = None) -> None:
        """From `field=value` and a file with a JSON object; raises `CommandError`."""
        self._values: dict[str, Any] = _object(file) if file is not None else {}
        self._texts: dict[str, list[str]] = {}
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not name:
                raise CommandError(f"{pair!r} is not an answer: write --answer field=value.")
            self._texts.setdefault(name, []).append(text)
        self._used: dict[str, int] = {}

    def has(self, field: Field) -> bool:
        """Whether there is an answer to a field."""
        return field.name in self._texts or field.name in self._values

    def is_fresh(self, field: Field) -> bool:
        """Whether there is one that was not used before."""
        count = len(self._texts.get(field.name, ())) or (field.name in self._values)
        return self._used.get(field.name, 0) < count

    def take(self, field: Field) -> Any:
        """The next answer to a field; raises `ValueError` if it does not fit."""
        used = self._used.get(field.name, 0)
        self._used[field.name] = used + 1
        texts = self._texts.get(field.name)
        if texts:
            return field.read(texts[min(used, len(texts) - 1)])
        value = self._values[field.name]
        field.check(value)
        return value


class Asker:
    """Answers the questions of one call, one after the other."""

    def __init__(self, given: Given, *, otherwise: Otherwise | None = None, no_input: bool = False) -> None:
        self.stopped: CommandError | None = None
        """Why a question could not be answered, once there is one."""
        self.server = "The server"
        self._given = given
        self._otherwise = otherwise
        self._terminal = None if no_input or otherwise or not Terminal.there() else Terminal()
        self._turn = asyncio.Lock()
        self._last: Elicitation | None = None
        self._explained = False

    async def __call__(self, question: Elicitation) -> Mapping[str, Any] | Literal["decline", "cancel"]:
        """What is answered; raises `RequestError` where nothing can be."""
        async with self._turn:
            try:
                if question.mode == "url":
                    return await self._visit(question)
                return await self._fill(question)
            except Left as left:
                return left.action
            except CommandError as error:
                self.stopped = self.stopped or error
                raise RequestError("Nobody is there who could answer this.") from None

    # Forms

    async def _fill(self, question: Elicitation) -> Mapping[str, Any]:
        try:
            fields = fields_of(question.requested_schema)
        except ValueError as error:
            raise CommandError(
                f"{self.server} asks for a form that cannot be shown: {error}.", UNREACHABLE
            ) from None
        content: dict[str, Any] = {}
        # An answer that the server did not take is not given again.
        again = question == self._last and not any(map(self._given.is_fresh, fields))
        self._last = question
        if not again:
            for field in filter(self._given.has, fields):
                try:
                    content[field.name] = self._given.take(field)
                except ValueError as error:
                    if self._terminal is None:
                        raise CommandError(f"The answer {field.name}: {error}.") from None
                    self._terminal.show(f"The answer {field.name}: {error}.", "red")
        if self._terminal is None:
            self._see_whether_it_is_answered(question, fields, content, again)
        elif not fields or len(content) < len(fields):
            await self._ask(self._terminal, question, fields, content)
        return content

    def _see_whether_it_is_answered(
        self, question: Elicitation, fields: Sequence[Field], content: Mapping[str, Any], again: bool
    ) -> None:
        """Raise `Left` or `CommandError` unless it is."""
        missing = [
            field
            for field in fields
            if field.required and field.name not in content and not field.has_default
        ]
        # The defaults of a form are not an answer unless someone said so.
        if not missing and not again and (content or self._otherwise == "accept"):
            return
        if self._otherwise in ("decline", "cancel"):
            raise Left(self._otherwise)
        wanted = missing or [field for field in fields if field.name not in content]
        answers = " ".join(f"--answer {field.name}=…" for field in wanted)
        hints = [answers] if answers else []
        if again:
            problem = "It was asked again, so the server did not take the answer."
            hints = ["another --answer"]
        else:
            problem = "A question is open."
            if not missing:
                hints.append("--otherwise accept")
        raise CommandError(
            f"{problem} Answer it with {' or '.join(hints)}, or at a terminal.",
            details=self._shown(question, *map(_line, fields)),
        )

    async def _ask(
        self, terminal: Terminal, question: Elicitation, fields: Sequence[Field], content: dict[str, Any]
    ) -> None:
        self._begin(terminal, question)
        if not fields:
            await self._agree(terminal, "Agree? (yes or no): ")
        for field in fields:
            if field.name not in content:
                value = await self._ask_field(terminal, field)
                if value is not _UNSET:
                    content[field.name] = value

    async def _ask_field(self, terminal: Terminal, field: Field) -> Any:
        if field.schema.get("description"):
            terminal.show(field.schema["description"], "dim")
        for number, label in enumerate(field.labels, 1):
            terminal.show(f"  {number}. {label}" if field.numbered else f"  {label}")
        optional = "" if field.required or field.has_default else ", or nothing"
        default = f" [{field.default}]" if field.has_default else ""
        while True:
            text = await self._typed(terminal, f"{field.title} ({field.kind}{optional}){default}: ")
            try:
                if text.strip():
                    return field.read(text, by_number=True)
                if field.has_default:
                    field.check(field.schema["default"])
                    return field.schema["default"]
                if not field.required:
                    return _UNSET
                if not field.is_list:
                    raise ValueError("this is required")
                return field.read(text)
            except ValueError as error:
                terminal.show(f"{field.name}: {error}.", "red")

    # Addresses

    async def _visit(self, question: Elicitation) -> Mapping[str, Any]:
        if self._terminal is None:
            if self._otherwise in ("decline", "cancel"):
                raise Left(self._otherwise)
            if self._otherwise is None:
                raise CommandError(
                    "A question is open. Go to the address and answer with --otherwise accept, "
                    "or answer at a terminal.",
                    details=self._shown(question, question.url or ""),
                )
            return {}
        # https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#safe-url-handling
        self._begin(self._terminal, question)
        self._terminal.show(f"It wants you to open {question.url}")
        self._terminal.show(f"That is on {_host(question.url)}. It is not opened for you.", "dim")
        await self._agree(self._terminal, "Will you? (yes or no): ")
        return {}

    # Both

    def _begin(self, terminal: Terminal, question: Elicitation) -> None:
        terminal.show(f"{self.server} asks: {question.message}", "bold")
        if not self._explained:
            self._explained = True
            terminal.show(_HELP, "dim")

    async def _agree(self, terminal: Terminal, prompt: str) -> None:
        """Raise `Left` unless the person says yes."""
        field = Field("answer", {"type": "boolean"}, True)
        while True:
            try:
                agreed = field.read(await self._typed(terminal, prompt))
            except ValueError as error:
                terminal.show(f"{error}.", "red")
                continue
            if not agreed:
                raise Left("decline")
            return

    async def _typed(self, terminal: Terminal, prompt: str) -> str:
        text = await terminal.line(prompt)
        if text.strip() == "!decline":
            raise Left("decline")
        if text.strip() == "!cancel":
            raise Left("cancel")
        return text

    def _shown(self, question: Elicitation, *lines: str) -> str:
        return clean("\n  ".join((f"{self.server} asks: {question.message}", *lines)))


def _line(field: Field) -> str:
    kind = f"one of: {', '.join(field.labels)}" if field.labels else field.kind
    default = f" [{field.default}]" if field.has_default else ""
    about = f": {field.schema['description']}" if field.schema.get("description") else ""
    return f"{field.name} ({kind}){default}{about}"


def _host(url: str | None) -> str:
    """The host of an address, in ASCII, so that it cannot pass for another one."""
    try:
        host = urlsplit(url or "").hostname or ""
        return host.encode("idna").decode() or "no host"
    except ValueError:
        return "a host that cannot be read"


def _object(name: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(name).read_bytes())
    except OSError as error:
        raise CommandError(f"--answers: cannot read {name}: {error.strerror}.") from None
    except ValueError as error:
        raise CommandError(f"--answers: {name} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise CommandError(f'--answers: {name} is a JSON object: {{"field": …}}.')
    return value
