"""The questions of a server that wait for the person at the workbench.

Elicitation, sampling and roots: each becomes a form on the page, and waits there until the person answers or
declines, or until the call that asked has ended.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from antiphon.client.callbacks import Answer, Elicitation
from antiphon.console.inbox.open_question import checked_response, shown_form
from antiphon.console.routes import Problem
from antiphon.errors import RequestError
from antiphon.model.question import Elicit, OpenUrl
from antiphon.printable import printable_text

__all__ = ["CURRENT_CALL", "OpenQuestions"]

MAX_QUESTIONS = 32
MAX_MESSAGE_CHARACTERS = 20_000
_REJECTED = -1
"""The code of the error for a request that a person refused, as the specification has it."""

CURRENT_CALL: ContextVar[str | None] = ContextVar("antiphon_workbench_call", default=None)
"""The id of the call in whose task a question arrives, where the transport tells."""


class _Question:
    __slots__ = ("answer", "asked", "view")

    def __init__(
        self, id: str, asked: Elicit | OpenUrl, said: Sequence[Any] | None, app: Mapping[str, Any] | None
    ) -> None:
        self.asked = asked
        self.view = {
            "id": id,
            "call": CURRENT_CALL.get(),
            "message": printable_text(asked.message[:MAX_MESSAGE_CHARACTERS]),
            "said": said,
            "app": app,
            **shown_form(asked),
        }
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class OpenQuestions:
    """The open questions of one connection. `publish` tells the pages.

    `lets_apps_ask` says whether the page and the server let an App ask a question in place of a form.
    """

    def __init__(
        self, publish: Callable[[str, Any], None], lets_apps_ask: Callable[[], bool] = lambda: False
    ) -> None:
        self._publish = publish
        self._lets_apps_ask = lets_apps_ask
        self._questions: dict[str, _Question] = {}
        self._ids = itertools.count(1)

    def views(self) -> list[dict[str, Any]]:
        """Return the open questions, the oldest first."""
        return [question.view for question in self._questions.values()]

    async def elicit(self, asked: Elicitation) -> Answer:
        """Ask the person to fill in a form, or to open a page."""
        is_url = asked.mode == "url"
        question = (
            OpenUrl(asked.message, asked.url or "")
            if is_url
            else Elicit(asked.message, asked.requested_schema)
        )
        app = None
        if asked.ui is not None and not is_url and self._lets_apps_ask():
            app = {"uri": asked.ui, "question": msgspec.to_builtins(asked)}
        response = await self._ask(question, app=app)
        return "decline" if response is None else response

    async def sample(self, params: Mapping[str, Any]) -> str:
        """Ask the person to answer in place of a model; raises `RequestError` if the person declines."""
        schema = _text_form("text", "Answer of the model")
        said = list(params.get("messages") or ())
        if params.get("systemPrompt"):
            said.insert(0, {"role": "system", "content": {"type": "text", "text": params["systemPrompt"]}})
        response = await self._ask(Elicit("The server asks your model. Answer in its place.", schema), said)
        if response is None:
            raise RequestError("The person declined to answer in place of a model.", code=_REJECTED)
        return str(response["text"])

    async def roots(self) -> list[str]:
        """Ask the person for folders; raises `RequestError` if the person declines."""
        schema = _text_form("roots", "Folders", "One address a line, such as file:///home/me/project.")
        response = await self._ask(Elicit("The server asks which folders it may work in.", schema))
        if response is None:
            raise RequestError("The person declined to name folders.", code=_REJECTED)
        return str(response["roots"]).split()

    def answer(self, id: str, response: Any) -> None:
        """Answer a question; raises `Problem` if it is gone, or if the response does not fit it."""
        question = self._questions.get(id)
        if question is None or question.answer.done():
            raise Problem(409, "This question is no longer open: it was answered, or its call has ended.")
        checked = checked_response(question.asked, response)
        question.answer.set_result(checked.get("content", {}) if checked["action"] == "accept" else None)

    async def _ask(
        self,
        asked: Elicit | OpenUrl,
        said: Sequence[Any] | None = None,
        app: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the content of the person's answer; `None` if the person declined."""
        if len(self._questions) >= MAX_QUESTIONS:
            raise RequestError(f"The person has {MAX_QUESTIONS} open questions already.")
        id = f"q{next(self._ids)}"
        try:
            question = self._questions[id] = _Question(id, asked, said, app)
        except Problem as problem:  # the form is too large for the page
            raise RequestError(problem.message) from None
        self._publish("question", question.view)
        try:
            return await question.answer
        finally:
            del self._questions[id]
            self._publish("questionClosed", {"id": id})


def _text_form(name: str, title: str, description: str = "") -> dict[str, Any]:
    """Return the schema of a form for a long text."""
    field = {"type": "string", "format": "textarea", "title": title, "description": description}
    return {"type": "object", "properties": {name: field}, "required": [name]}
