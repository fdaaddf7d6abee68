"""The open questions of a function that waits in this process.

Owns which questions are open, and when they are sent: together with others that are asked in the same moment.
It must not know who answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.model.question import Question
from antiphon.runtime.carriers.base import GATHER_TURNS

__all__ = ["OpenQuestions"]


class OpenQuestions:
    """The questions of one run that have no answer yet, by key. `send` is called when they should be sent."""

    __slots__ = ("_answers", "_is_closed", "_questions", "_send", "_timer")

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._questions: dict[str, Question] = {}
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._timer: asyncio.Handle | None = None
        self._is_closed = False

    @property
    def open(self) -> Mapping[str, Question]:
        """The questions that have no answer yet."""
        return self._questions

    async def ask(self, key: str, question: Question) -> Any:
        """Ask a question, and wait for the response. Cancelling the wait withdraws the question."""
        if self._is_closed:
            await asyncio.sleep(0)  # a function that asks again and again must not hold the event loop
            raise asyncio.CancelledError
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions[key], self._answers[key] = question, answer
        self.send_soon()
        try:
            return await answer
        finally:
            if self._answers.get(key) is answer:
                del self._questions[key], self._answers[key]

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Answer questions by key. Responses to questions that are not open are ignored."""
        for key, response in responses.items():
            answer = self._answers.pop(key, None)
            if answer is not None:
                del self._questions[key]
                if not answer.done():
                    answer.set_result(response)

    def close(self) -> None:
        """Withdraw all questions: everything that waits for an answer, now or later, is cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_closed, self._send = True, _nothing
        for answer in tuple(self._answers.values()):
            answer.cancel()

    def send_soon(self) -> None:
        """Send the open questions after some turns of the event loop, in which others may be asked."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._turn, GATHER_TURNS)

    def _turn(self, turns: int) -> None:
        if turns > 0:
            self._timer = asyncio.get_running_loop().call_soon(self._turn, turns - 1)
            return
        self._timer = None
        if self._questions:
            self._send()


def _nothing() -> None:
    pass
