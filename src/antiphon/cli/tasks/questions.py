"""Questions of a task, put to the person at the terminal or answered from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.cli.call.questions import Asker
from antiphon.cli.exit_codes import CommandError
from antiphon.client.callbacks import Callbacks, handlers_for
from antiphon.client.input_rounds import InputRounds
from antiphon.model.question import Question

__all__ = ["Questions"]

_TRIES = 10


class Questions:
    """Who answers."""

    def __init__(self, asker: Asker) -> None:
        table, _ = handlers_for(asker, None, None)
        self._rounds = InputRounds(Callbacks(table), _TRIES)

    async def answer(self, questions: Mapping[str, Question], key: str | None) -> dict[str, dict[str, Any]]:
        """The responses, by key; raises `CommandError` where a person cannot answer."""
        if key is not None and key not in questions:
            raise CommandError(
                f"The task does not ask {key!r}. It asks: {', '.join(questions) or 'nothing'}."
            )
        wanted = questions if key is None else {key: questions[key]}
        for name, ask in wanted.items():
            if not self._rounds.can_answer(ask):
                raise CommandError(f"{name!r} is a question for a program, not for a person.")
        return {name: await self._rounds.answer(name, ask) for name, ask in wanted.items()}
