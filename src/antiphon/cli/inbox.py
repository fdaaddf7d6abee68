"""`antiphon inbox`: shows and answers the questions of other people's tasks to the user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.cli import render
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target, run_async
from antiphon.cli.tasks.questions import answer_questions
from antiphon.cli.tasks.report import duration
from antiphon.errors import InvalidParams, MethodNotFound, RequestError
from antiphon.model.waiting import describe_audience
from antiphon.printable import printable
from antiphon.wire.questions import accepted_content

if TYPE_CHECKING:
    from antiphon.client import Client, InboxItem

__all__ = ["KEYS", "answer_inbox", "answer_task_of_inbox", "list_inbox", "watch_inbox"]

KEYS = (
    "Press Enter to accept the default in [brackets]. "
    "Type !decline (or Ctrl-D) to decline, !cancel to leave the question for later. Ctrl-C ends the command."
)
"""The keys that a terminal shows. Unlike in a call, a question that is dismissed stays open."""

_MAX_QUESTION_CHARACTERS = 120
"""How much of a question a row of the list shows."""
_HEADING = ["ID", "TOOL", "FROM", "TO", "AGE", "LEFT", "QUESTION"]


def list_inbox(target: Target, *, as_json: bool) -> None:
    """Print the questions that the user can answer. Raises `CommandError`, like all actions."""

    async def work() -> None:
        async with target.client() as client:
            items = await _fetch(client)
            if as_json:
                print(render.pretty([_as_json(item) for item in items]))
            else:
                print(render.columns([_HEADING, *map(_row, items)]) if items else _nothing(client))

    run_async(work(), target)


def watch_inbox(target: Target, *, as_json: bool) -> None:
    """Print questions as they come and go, until the user ends the command."""

    async def work() -> None:
        async with target.client() as client:
            try:
                async with client.listen_inbox() as changes:
                    async for change in changes:
                        if as_json:
                            line = render.compact({"kind": change.kind, "item": _as_json(change.item)})
                        else:
                            line = _line(change.kind, change.item)
                        print(line, flush=True)
            except MethodNotFound:
                raise _no_inbox(client) from None

    run_async(work(), target)


def answer_inbox(target: Target, handler: ElicitationHandler) -> None:
    """Ask the user one question after the other. A question that is dismissed stays open."""

    async def work() -> None:
        async with target.client() as client:
            items = await _fetch(client)
            if not items:
                print(_nothing(client))
            for item in items:
                try:
                    outcome = await _answer(item, handler)
                except RequestError as error:
                    if handler.error is not None:
                        raise handler.error from None
                    if not isinstance(error, InvalidParams):
                        raise
                    outcome = "Gone: somebody else has answered, or the question was given up."
                print(printable(f"{item.task_id} {item.key}: {outcome}"), file=sys.stderr)

    run_async(work(), target)


def answer_task_of_inbox(target: Target, id: str, handler: ElicitationHandler, *, as_json: bool) -> None:
    """Answer the questions of one task."""

    async def work() -> dict[str, str]:
        async with target.client() as client:
            items = [item for item in await _fetch(client) if item.task_id == id]
            if not items:
                raise CommandError(
                    f"The task {id} asks you nothing. To see the questions: antiphon inbox URL."
                )
            try:
                return {item.key: await _answer(item, handler) for item in items}
            finally:
                if handler.error is not None:
                    raise handler.error from None

    answered = run_async(work(), target)
    if as_json:
        print(render.pretty({"taskId": id, "answered": answered}))
    else:
        for key, outcome in answered.items():
            print(printable(f"{id} {key}: {outcome}"))


async def _fetch(client: Client) -> Sequence[InboxItem]:
    try:
        return await client.inbox()
    except MethodNotFound:
        raise _no_inbox(client) from None


async def _answer(item: InboxItem, handler: ElicitationHandler) -> str:
    """Answer a question, and return what happened to it; raises `InvalidParams` if it is gone."""
    handler.server_name = f"{item.tool} for {item.owner}" if item.owner else item.tool
    response = (await answer_questions(handler, {item.key: item.question}, None))[item.key]
    content = accepted_content(response)
    if content is not None:
        await item.answer(content)
        return "Answered."
    if response.get("action") == "decline":
        await item.decline()
        return "Declined."
    return "Left for later."


def _no_inbox(client: Client) -> CommandError:
    return CommandError(
        f"This server has no inbox in protocol version {client.version}: none of its tools runs as a task, "
        "or it does not know the extension dev.antiphon/inbox."
    )


def _nothing(client: Client) -> str:
    """Return the sentence for an empty inbox; an anonymous caller is told why it is always empty."""
    if client.offers.inbox:
        return "Nobody asks you anything."
    return "Nobody asks you anything: the server does not know who you are. Send a token with --token."


def _as_json(item: InboxItem) -> dict[str, Any]:
    moments = {"askedAt": item.asked_at, "deadline": item.deadline}
    return {
        "taskId": item.task_id,
        "key": item.key,
        "tool": item.tool,
        "owner": item.owner,
        "question": msgspec.to_builtins(item.question),
        "to": item.to,
        "people": item.people,
        **{name: moment.isoformat() for name, moment in moments.items() if moment is not None},
        "approvals": item.approvals,
        "answered": item.answered,
        "reminded": item.reminded,
    }


def _row(item: InboxItem) -> list[str]:
    now = datetime.now(UTC)
    age = "-" if item.asked_at is None else duration(_milliseconds(now - item.asked_at))
    left = "-" if item.deadline is None else duration(_milliseconds(item.deadline - now))
    asked = describe_audience((*item.to, *item.people)) or "-"
    cells = [item.task_id, item.tool, item.owner or "-", asked]
    return [*map(printable, cells), age, left, printable(item.message, _MAX_QUESTION_CHARACTERS)]


def _line(kind: str, item: InboxItem) -> str:
    counted = f" ({item.answered} of {item.approvals} answered)" if item.approvals > 1 else ""
    return printable(
        f"{datetime.now(UTC):%H:%M:%S} {kind:<8} {item.task_id}: {item.message}{counted}",
        _MAX_QUESTION_CHARACTERS * 2,
    )


def _milliseconds(length: timedelta) -> int:
    return int(length.total_seconds() * 1000)
