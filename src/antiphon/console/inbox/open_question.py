"""An open question as the console shows it, and the check of an answer before it is sent.

Owns the JSON of questions. It must not know where a question comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.console.routes import Problem
from antiphon.model.form import choices, problems_by_field
from antiphon.model.question import Elicit, OpenUrl
from antiphon.model.waiting import describe_audience
from antiphon.printable import is_web_url, printable, printable_text, printable_url

__all__ = ["NO_SUCH_QUESTION", "OpenQuestion", "checked_response", "no_such_question", "shown_form"]

NO_SUCH_QUESTION = (
    "There is no such question for you: it was answered, given up or cancelled, or it is for others."
)
_ENDS_FOR_ALL = "That ends the question for everybody who is asked."
_TELLS_TOOL = "The tool is told that you said no."
_OTHER_PAGE = "This question is answered on another page. Check the address before you open it."
_NO_PAGE = "This is not an address of the web: it is not opened from here."
_MAX_ROW_CHARACTERS = 300
"""How much of a question a row of the list shows."""
_MAX_NAME_CHARACTERS = 200
_MAX_MESSAGE_CHARACTERS = 50_000
_MAX_NAMES = 50
"""How many of the people and groups that are asked the page shows."""
_SHOWN_KEYS = (
    "type",
    "default",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
"""The parts of a field that the page uses, besides its texts and its choices."""
_MAX_SCHEMA_BYTES = 256 * 1024
"""How large a form the page shows."""


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a person can answer. Times are in milliseconds since 1970."""

    task_id: str
    key: str
    """The key of the question in its task."""
    tool: str
    owner: str
    """The principal that owns the task; empty without authentication."""
    question: Elicit | OpenUrl
    summary: str = ""
    """The arguments of the task in a line, if the person may see them."""
    server: str = ""
    """The server that the task belongs to, if the source has tasks of several servers."""
    to: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    asks_owner: bool = False
    """Whether the owner of the task is asked, and not somebody else."""
    asked: int | None = None
    deadline: int | None = None
    approvals: int = 1
    answered: int = 0
    answered_by: tuple[str, ...] = ()
    """Who has answered so far, if the person may know."""
    reminded: int = 0
    problem: str | None = None
    """Why the last answer did not fit."""

    def row(self) -> dict[str, Any]:
        """Return the question as a row of the list shows it."""
        return {
            "task": self.task_id,
            "key": self.key,
            "tool": printable(self.tool, _MAX_NAME_CHARACTERS),
            "server": printable(self.server, _MAX_NAME_CHARACTERS),
            "owner": printable(self.owner, _MAX_NAME_CHARACTERS),
            "to": _names(self.to),
            "people": _names(self.people),
            "whom": printable(self._whom(), _MAX_NAME_CHARACTERS),
            "asksOwner": self.asks_owner,
            "asked": self.asked,
            "deadline": self.deadline,
            "approvals": self.approvals,
            "answered": self.answered,
            "reminded": self.reminded,
            "kind": "form" if isinstance(self.question, Elicit) else "url",
            "message": printable(self.question.message, _MAX_ROW_CHARACTERS),
        }

    def about(self, source: str) -> str:
        """Return who asks whom, and where, in a line below the message of a row."""
        tool = printable(self.tool, _MAX_NAME_CHARACTERS)
        whom = printable(self._whom(), _MAX_NAME_CHARACTERS)
        server = printable(self.server, _MAX_NAME_CHARACTERS)
        summary = printable(self.summary, _MAX_NAME_CHARACTERS)
        parts = (f"{tool} asks {whom}" if tool else "", summary, self._answers(), server or source)
        return " · ".join(part for part in parts if part)

    def facts(self, source: str) -> list[str]:
        """Return what else a person should know of the question, in a few words each."""
        answers = self._answers()
        if answers and self.answered_by:
            answers = f"{answers}, by {', '.join(_names(self.answered_by))}"
        reminded = f"reminded {self.reminded} ×" if self.reminded else ""
        server = printable(self.server, _MAX_NAME_CHARACTERS)
        where = f"{server}, {source}" if server and server != source else source
        summary = printable(self.summary, _MAX_NAME_CHARACTERS)
        return [part for part in (summary, answers, reminded, where) if part]

    def _answers(self) -> str:
        return f"{self.answered} of {self.approvals} answers" if self.approvals > 1 else ""

    def _whom(self) -> str:
        """Return who is asked, as people say it."""
        if self.asks_owner:
            return f"its caller {self.owner}" if self.owner else "its caller"
        asked = describe_audience((*self.to, *self.people))
        return f"{asked} for {self.owner}" if self.owner else asked

    def details(self) -> dict[str, Any]:
        """Return the whole question; raises `Problem` for a form that is too large for a page."""
        details = {
            **self.row(),
            "message": printable_text(self.question.message[:_MAX_MESSAGE_CHARACTERS]),
            "problem": self.problem and f"The last answer does not fit: {printable_text(self.problem)}",
            "declining": _ENDS_FOR_ALL if self.approvals > 1 else _TELLS_TOOL,
        }
        return {**details, **shown_form(self.question)}


def shown_form(question: Elicit | OpenUrl) -> dict[str, Any]:
    """Return what a person fills in or opens; raises `Problem` for a form that is too large for a page."""
    if isinstance(question, OpenUrl):
        url, is_web = question.url, is_web_url(question.url)
        help = _OTHER_PAGE if is_web else _NO_PAGE
        return {"kind": "url", "url": url if is_web else None, "shownUrl": printable_url(url), "help": help}
    if len(msgspec.json.encode(question.schema)) > _MAX_SCHEMA_BYTES:
        raise Problem(
            413, "The form is too large for this page: answer at the command line, with antiphon tasks."
        )
    schema = _shown_schema(question.schema)
    return {"kind": "form", "schema": schema, "decision": _decision(schema)}


def no_such_question() -> Problem:
    """Return the error for a question that the person cannot answer: the same for every reason."""
    return Problem(404, NO_SUCH_QUESTION)


def checked_response(question: Elicit | OpenUrl, given: Any) -> dict[str, Any]:
    """Return the response of a person, as tasks take it, from the body of a request.

    Raises `Problem`, with the fields of the form that are wrong.
    """
    action = given.get("action") if isinstance(given, dict) else None
    if action == "decline":
        return {"action": "decline"}
    content = given.get("content") if isinstance(given, dict) else None
    if action != "accept" or not isinstance(content, dict | None):
        raise Problem(400, 'An answer is {"action": "accept", "content": {…}} or {"action": "decline"}.')
    if isinstance(question, OpenUrl):
        return {"action": "accept"}
    content = content or {}
    wrong = _wrong_fields(question.schema, content)
    if wrong:
        raise Problem(422, "The answer does not fit the form.", wrong)
    return {"action": "accept", "content": content}


def _wrong_fields(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the content of a form, by field.

    Nothing is wrong if the schema is not a valid form: its server, which sent it, decides.
    """
    try:
        found = problems_by_field(schema, content)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}
    return {name: f"{problem[:1].upper()}{printable(problem[1:])}." for name, problem in found.items()}


def _shown_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form as the page shows it: with clean texts, the same values, and no unknown parts."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        properties = {}
    return {
        "properties": {str(name): _shown_field(str(name), field) for name, field in properties.items()},
        "required": [name for name in required if name in properties] if isinstance(required, list) else [],
    }


def _decision(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the only field of a form that asks for yes or no; `None` for other forms.

    The page shows two buttons for it, because a box that nobody ticked would be a no by accident.
    """
    if len(schema["properties"]) != 1:
        return None
    ((name, field),) = schema["properties"].items()
    if field.get("type") != "boolean":
        return None
    title = "" if field["title"] == "value" else field["title"]
    return {"name": name, "title": title, "help": field.get("description", "")}


def _shown_field(name: str, field: Any) -> dict[str, Any]:
    field = field if isinstance(field, Mapping) else {}
    title, description = field.get("title"), field.get("description")
    shown = {key: field[key] for key in _SHOWN_KEYS if key in field}
    shown["title"] = printable(title if isinstance(title, str) and title else name, _MAX_NAME_CHARACTERS)
    if isinstance(description, str):
        shown["description"] = printable_text(description)
    try:
        options = [{"const": value, "title": printable(label)} for value, label in choices(field)]
    except (AttributeError, KeyError, TypeError):  # not a form of the specification
        options = []
    if options and field.get("type") == "array":
        shown["items"] = {"oneOf": options}
    elif options:
        shown["oneOf"] = options
    return shown


def _names(names: tuple[str, ...]) -> list[str]:
    return [printable(name, _MAX_NAME_CHARACTERS) for name in names[:_MAX_NAMES]]
