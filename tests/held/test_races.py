"""Several questions at once, answered in parts and more than once, through two instances."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

from antiphon import Context, Limits, Server
from tests.asking.driving import Able, accept, once
from tests.held.held_server import SECRET, Name
from tests.promises.speaking import Patient, begin, look
from tests.support.polling import turns, until
from tests.support.serving import serving

CALLERS = 10
MOST_ROUNDS = 500
EXPECTED = "a0a1a2 b0b1b2 c0c1c2"


def make(store: str, began: Counter[str]) -> Server:
    server = Server("races", store=store, secrets=[SECRET], limits=Limits(lease_seconds=3600.0))

    @server.tool(replay=False, task="optional", poll_interval=0.02)
    async def branches(ctx: Context) -> str:
        began["branches"] += 1

        async def branch(name: str) -> str:
            answers = []
            for number in range(3):
                await turns(random.randint(0, 50))
                answers.append(await ctx.elicit("?", Name, key=f"{name}{number}"))
            return "".join(answer.name for answer in answers)

        return " ".join(await asyncio.gather(*map(branch, "abc")))

    return server


def some_answers(questions: dict[str, object]) -> dict[str, object]:
    """Answer some of the questions, each with its key."""
    keys = random.sample(sorted(questions), random.randint(1, len(questions)))
    return {key: accept(name=key) for key in keys}


async def call(ports: list[int]) -> str:
    result = (await once(Able(random.choice(ports)), "branches"))["result"]
    for _ in range(MOST_ROUNDS):
        if result["resultType"] == "complete":
            return str(result["content"][0]["text"])
        answers, state = some_answers(result["inputRequests"]), result["requestState"]
        repeated = [
            once(Able(random.choice(ports)), "branches", answers=answers, state=state, id=id)
            for id in range(random.choice((1, 2)))
        ]
        result = random.choice(await asyncio.gather(*repeated))["result"]
    raise AssertionError(f"still asked after {MOST_ROUNDS} rounds")


async def task(ports: list[int]) -> str:
    id = (await begin(Patient(random.choice(ports)), "branches"))["taskId"]

    async def asks_or_has_ended() -> Any:
        state = await look(Patient(random.choice(ports)), id)
        return state if "result" in state or state.get("inputRequests") else None

    for _ in range(MOST_ROUNDS):
        state = await until(asks_or_has_ended)
        if "result" in state:
            return str(state["result"]["content"][0]["text"])
        answers = some_answers(state["inputRequests"])
        await Patient(random.choice(ports)).ask("tasks/update", {"taskId": id, "inputResponses": answers})
    raise AssertionError(f"still {state}")


async def test_every_answer_reaches_its_branch_and_no_function_runs_twice(tmp_path: Path) -> None:
    began: Counter[str] = Counter()
    one, other = (make(f"sqlite:///{tmp_path}/tasks.db", began) for _ in range(2))
    async with serving(one) as here, serving(other) as there:
        ports = [here.port, there.port]
        kinds = [call] * CALLERS + [task] * CALLERS
        assert await asyncio.gather(*(kind(ports) for kind in kinds)) == [EXPECTED] * len(kinds)
    assert began["branches"] == 2 * CALLERS
