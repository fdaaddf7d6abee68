"""Asks questions for functions of other frameworks, and returns the answers as they came.

Such a function reads an answer itself: it also wants to see that the user declined. `Context.elicit` returns
values of the author's types and raises `Declined` in place of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.model.form import problems
from antiphon.model.question import Answer, Elicit, ElicitResult, Question
from antiphon.runtime.execution.context import Context

__all__ = ["ask"]


async def ask(ctx: Context, question: Question, key: str | None = None) -> Answer:
    """Ask a question, and return the answer as it came.

    A form that is filled in wrongly is shown again. Raises `MissingCapability` if the client cannot answer.
    """
    schema = question.schema if isinstance(question, Elicit) else None
    check = None if schema is None else lambda answer: _problem(schema, answer)
    answer: Answer = await ctx._run.ask(question, key, check)
    return answer


def _problem(schema: Mapping[str, Any], answer: ElicitResult) -> str | None:
    if answer.action != "accept":
        return None
    return "; ".join(problems(schema, answer.content or {})) or None
