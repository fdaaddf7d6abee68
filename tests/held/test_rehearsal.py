"""Tools with `replay=False` in the tests of an author."""

from __future__ import annotations

import pytest

from antiphon.testing import check_replay, rehearse
from tests.held.held_server import Held, Tasks


async def test_a_rehearsal_runs_the_function_once() -> None:
    held, tasks = Held(), Tasks(store="memory:")
    for server, began in ((held.server, held.began), (tasks.server, tasks.began)):
        rehearsal = await rehearse(server, "greet", answers={"name": {"name": "Ann"}})
        assert rehearsal.result is not None
        assert rehearsal.result.text == "Hello, Ann!"
        assert (rehearsal.rounds, began["greet"]) == (2, 1)


async def test_a_rehearsal_without_an_answer_shows_the_question() -> None:
    held = Held()
    rehearsal = await rehearse(held.server, "greet")
    assert [question.key for question in rehearsal.open] == ["name"]
    assert held.unwound["greet"] == 1


async def test_a_tool_that_is_not_run_again_cannot_be_replayed() -> None:
    with pytest.raises(ValueError, match="replay=False"):
        await check_replay(Held().server, "greet", answers={"name": {"name": "Ann"}})
