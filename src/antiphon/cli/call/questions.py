"""Answers the questions of a tool: from the options of the command line, or by prompting the user.

Without an answer and without a terminal, the command ends with an error that shows the question and how to
answer it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from antiphon.cli.call.fields import Field, form_fields
from antiphon.cli.call.terminal import NoAnswer, Terminal
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.options import DefaultAnswer
from antiphon.errors import RequestError
from antiphon.printable import is_web_url, printable, printable_text, printable_url

if TYPE_CHECKING:
    from antiphon.client import Elicitation

__all__ = ["ElicitationHandler", "PreparedAnswers"]

_KEYS = (
    "Press Enter to accept the default in [brackets]. "
    "Type !decline (or Ctrl-D) to decline, !cancel to dismiss the question. "
    "Ctrl-C ends the command without an answer."
)
_OMITTED: Any = object()

MAX_SHOWN_CHOICES = 100
"""How many choices of a field are listed."""


class PreparedAnswers:
    """The answers on the command line, by field.

    If a field has several answers, each form that has the field takes the next one. The last answer is
    reused.
    """

    def __init__(self, pairs: Sequence[str] = (), file: str | None = None) -> None:
        """Parse `field=value` pairs and a file with a JSON object. Raises `CommandError`."""
        self._values: dict[str, Any] = _read_answers(file) if file is not None else {}
        self._texts: dict[str, list[str]] = {}
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not name:
                raise CommandError(f"{pair!r} is not an answer. Write field=value.")
            self._texts.setdefault(name, []).append(text)
        self._used: dict[str, int] = {}

    def has(self, field: Field) -> bool:
        """Return whether a field has an answer."""
        return field.name in self._texts or field.name in self._values

    @property
    def names(self) -> set[str]:
        """The names of the fields that have answers."""
        return {*self._texts, *self._values}

    def has_unused(self, field: Field) -> bool:
        """Return whether a field has an answer that was not used yet."""
        count = len(self._texts.get(field.name, ())) or (field.name in self._values)
        return self._used.get(field.name, 0) < count

    def take(self, field: Field) -> Any:
        """Return the next answer to a field. Raises `ValueError` if the answer is invalid."""
        used = self._used.get(field.name, 0)
        self._used[field.name] = used + 1
        texts = self._texts.get(field.name)
        if texts:
            return field.parse(texts[min(used, len(texts) - 1)])
        value = self._values[field.name]
        field.check(value)
        return value


class ElicitationHandler:
    """Answers the questions of one call, one at a time. Pass it to a client as `elicit`."""

    def __init__(
        self,
        prepared: PreparedAnswers,
        *,
        default_answer: DefaultAnswer | None = None,
        no_input: bool = False,
        keys: str = _KEYS,
        option: str = "--answer ",
    ) -> None:
        self.error: CommandError | None = None
        """The first question that could not be answered, as an error."""
        self.server_name = "The server"
        self._prepared = prepared
        self._default_answer = default_answer
        prompts = not no_input and default_answer is None and Terminal.is_interactive()
        self._terminal = Terminal() if prompts else None
        self._lock = asyncio.Lock()
        self._last: Elicitation | None = None
        self._keys: str | None = keys
        self._option = option  # before an answer on the command line

    @property
    def prompts(self) -> bool:
        """Whether questions are asked in the terminal."""
        return self._terminal is not None

    async def __call__(self, question: Elicitation) -> Mapping[str, Any] | Literal["decline", "cancel"]:
        """Return the answer to a question. Raises `RequestError` if there is none."""
        async with self._lock:
            try:
                if question.mode == "url":
                    return await self._answer_url(question)
                return await self._answer_form(question)
            except NoAnswer as refusal:
                return refusal.action
            except CommandError as error:
                self.error = self.error or error
                raise RequestError("The user cannot answer this question.") from None

    # Forms

    async def _answer_form(self, question: Elicitation) -> Mapping[str, Any]:
        try:
            fields = form_fields(question.requested_schema)
        except ValueError as error:
            raise CommandError(
                f"{self.server_name} asked for a form that cannot be shown: {error}.", UNREACHABLE
            ) from None
        content: dict[str, Any] = {}
        # The server repeats a question if it rejected the answer. Do not send the same answer again.
        is_asked_again = self._last is not None and _is_same(question, self._last)
        is_repeated = is_asked_again and not any(map(self._prepared.has_unused, fields))
        if not is_asked_again:
            self._last = question
        if not is_repeated:
            for field in filter(self._prepared.has, fields):
                try:
                    content[field.name] = self._prepared.take(field)
                except ValueError as error:
                    message = f"Invalid answer for {field.name}: {error}."
                    if self._terminal is None:
                        raise CommandError(message) from None
                    self._terminal.show(printable(message), "red")
        if self._terminal is None:
            self._require_complete(question, fields, content, is_repeated)
        elif not fields or len(content) < len(fields):
            await self._prompt_form(self._terminal, question, fields, content)
        return content

    def _require_complete(
        self, question: Elicitation, fields: Sequence[Field], content: Mapping[str, Any], is_repeated: bool
    ) -> None:
        """Raise `NoAnswer` or `CommandError` unless the content answers the form."""
        missing = [
            field
            for field in fields
            if field.required and field.name not in content and not field.has_default
        ]
        # A form with defaults alone is not answered: the user has to agree to them.
        if not missing and not is_repeated and (content or self._default_answer == "accept"):
            return
        if self._default_answer in ("decline", "cancel"):
            raise NoAnswer(self._default_answer)
        unanswered = missing or [field for field in fields if field.name not in content]
        options = [" ".join(f"{self._option}{field.name}=…" for field in unanswered)] if unanswered else []
        if is_repeated:
            reason = "The server rejected the answer and asked again."
            options = [f"another {self._option.strip() or 'value'}"]
        elif unknown := self._prepared.names - {field.name for field in fields}:
            reason = f"The question has no field {', '.join(sorted(unknown))}."
        else:
            reason = "The question has no answer."
            if not missing:
                options.append("--default-answer accept")
        raise CommandError(
            f"{reason} Answer it with {' or '.join(options)}, or run the command in a terminal.",
            details=self._describe(question, *map(_describe_field, fields)),
        )

    async def _prompt_form(
        self, terminal: Terminal, question: Elicitation, fields: Sequence[Field], content: dict[str, Any]
    ) -> None:
        self._show_question(terminal, question)
        if not fields:
            await self._prompt_yes_or_no(terminal, "Accept? (yes or no): ")
        for field in fields:
            if field.name not in content:
                value = await self._prompt_field(terminal, field)
                if value is not _OMITTED:
                    content[field.name] = value

    async def _prompt_field(self, terminal: Terminal, field: Field) -> Any:
        if field.schema.get("description"):
            terminal.show(printable(field.schema["description"]), "dim")
        labels = field.labels
        for number, label in enumerate(labels[:MAX_SHOWN_CHOICES], 1):
            terminal.show(printable(f"  {number}. {label}" if field.is_numbered else f"  {label}"))
        if len(labels) > MAX_SHOWN_CHOICES:
            terminal.show(f"  … and {len(labels) - MAX_SHOWN_CHOICES} more")
        optional = "" if field.required or field.has_default else ", optional"
        default = f" [{field.default}]" if field.has_default else ""
        prompt = f"{field.title} ({field.hint}{optional}){default}: "
        return await self._prompt(terminal, prompt, partial(_parse_answer, field), f"{field.name}: ")

    # URLs

    async def _answer_url(self, question: Elicitation) -> Mapping[str, Any]:
        url = printable_url(question.url or "")
        if not is_web_url(question.url or ""):
            raise CommandError(
                f"{self.server_name} asks you to open {url}, which is not an http or https URL. "
                "The question is refused.",
                UNREACHABLE,
                details=self._describe(question),
            )
        if self._terminal is None:
            if self._default_answer in ("decline", "cancel"):
                raise NoAnswer(self._default_answer)
            if self._default_answer is None:
                raise CommandError(
                    "The question has no answer. Open the URL and answer with --default-answer accept, "
                    "or run the command in a terminal.",
                    details=self._describe(question, url),
                )
            return {}
        # https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#safe-url-handling
        self._show_question(self._terminal, question)
        self._terminal.show(f"Open this URL: {url}")
        self._terminal.show(f"Its host is {_host(url)}. The URL is not opened for you.", "dim")
        if "://***@" in url:
            self._terminal.show("A user name or password before the host is left out: it may mislead.", "red")
        await self._prompt_yes_or_no(self._terminal, "Will you open it? (yes or no): ")
        return {}

    # Forms and URLs

    def _show_question(self, terminal: Terminal, question: Elicitation) -> None:
        terminal.show(self._describe(question), "bold")
        if self._keys is not None:  # the first time
            terminal.show(self._keys, "dim")
            self._keys = None

    async def _prompt_yes_or_no(self, terminal: Terminal, prompt: str) -> None:
        """Raise `NoAnswer` unless the user answers yes."""
        if not await self._prompt(terminal, prompt, Field("answer", {"type": "boolean"}, True).parse):
            raise NoAnswer("decline")

    async def _prompt(
        self, terminal: Terminal, prompt: str, parse: Callable[[str], Any], label: str = ""
    ) -> Any:
        """Prompt until the user types a valid answer. `parse` raises `ValueError` for an invalid one."""
        while True:
            text = await self._read_line(terminal, prompt)
            try:
                return parse(text)
            except ValueError as error:
                terminal.show(printable(f"{label}{error}."), "red")

    async def _read_line(self, terminal: Terminal, prompt: str) -> str:
        text = await terminal.read_line(prompt)
        if text.strip() == "!decline":
            raise NoAnswer("decline")
        if text.strip() == "!cancel":
            raise NoAnswer("cancel")
        return text

    def _describe(self, question: Elicitation, *lines: str) -> str:
        # Further lines of the question are indented, so that they do not look like lines of this command.
        message = printable_text(question.message).replace("\n", "\n    ")
        return "\n  ".join((f"{printable(self.server_name)} asks: {message}", *map(printable, lines)))


def _is_same(question: Elicitation, before: Elicitation) -> bool:
    """Return whether a question repeats an earlier one. It may say what was wrong with the answer."""
    if (question.requested_schema, question.mode, question.url) != (
        before.requested_schema,
        before.mode,
        before.url,
    ):
        return False
    return question.message == before.message or question.message.startswith(f"{before.message}\n")


def _parse_answer(field: Field, text: str) -> Any:
    """Return the value of a typed line. An empty line is the default, or omits an optional field."""
    if text.strip():
        return field.parse(text, by_number=True)
    if field.has_default:
        field.check(field.schema["default"])
        return field.schema["default"]
    if not field.required:
        return _OMITTED
    if not field.is_list:
        raise ValueError("this is required")
    return field.parse(text)


def _describe_field(field: Field) -> str:
    hint = f"one of: {', '.join(field.labels)}" if field.labels else field.hint
    default = f" [{field.default}]" if field.has_default else ""
    description = f": {field.schema['description']}" if field.schema.get("description") else ""
    return f"{field.name} ({hint}){default}{description}"


def _host(url: str) -> str:
    """Return the host and the port of a URL that `printable_url` returned."""
    authority = re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
    return authority.rpartition("@")[2]


def _read_answers(name: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(name).read_bytes())
    except OSError as error:
        raise CommandError(f"--answers: cannot read {name}: {error.strerror}.") from None
    except ValueError as error:
        raise CommandError(f"--answers: {name} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise CommandError(f'--answers: {name} must be a JSON object: {{"field": …}}.')
    return value
