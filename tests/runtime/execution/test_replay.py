"""A replay of the same function raises no false alarm, however it was cut and whatever ran beside."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Context, Server
from antiphon.errors import ReplayMismatch
from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.outcome import InputRequired
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.task import answer_entry
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.context import Context as RunContext
from antiphon.runtime.execution.fingerprints import StepPrint
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.replay import Replay
from antiphon.runtime.execution.run import Run
from antiphon.runtime.execution.supervisor import Supervised
from tests.support.polling import turns

Program: TypeAlias = Any
"""Operations of a function: `("step", name)`, `("ask", name)`, `("retry", name)`, `("all", programs)`, …"""

names = st.sampled_from("abc")
programs: st.SearchStrategy[Program] = st.recursive(
    st.one_of(
        st.tuples(st.just("step"), names),
        st.tuples(st.just("keyed"), names),
        st.tuples(st.just("ask"), names),
        st.tuples(st.just("retry"), names),
        st.tuples(st.just("timeout"), names),
        st.tuples(st.just("late"), names),
        st.tuples(st.just("nested"), names),
        st.tuples(st.just("now"), names),
    ),
    lambda inner: st.tuples(
        st.sampled_from(["all", "group", "beside", "sequence"]), st.lists(inner, max_size=4)
    ),
    max_leaves=10,
)


class Play:
    """Runs one program again and again, as a worker runs a task, and keeps what it commits."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        self.program = program
        self.chance = random.Random(seed)
        self.commits: list[dict[str, Any]] = []
        self.tries = 0
        server = Server("programs")
        server.add_tool(self.tool)
        self._engine = server.engine
        self._function = server.engine.registry.tool("tool").function

    async def tool(self, ctx: Context) -> str:
        await self.perform(ctx, ("sequence", self.program))
        return "done"

    async def perform(self, ctx: Context, operation: Program) -> None:
        kind, what = operation
        match kind:
            case "step":
                assert await ctx.step(self.work, what) == what
            case "keyed":
                assert await ctx.step(self.work, what, key=what) == what
            case "ask":
                await ctx.elicit("?", int, key=what)
            case "now":
                ctx.now()
            case "retry":
                await self.retry(ctx, what)
            case "timeout":
                try:
                    async with asyncio.timeout(None) as timeout:
                        if self.chance.random() < 0.5:
                            timeout.reschedule(asyncio.get_running_loop().time())
                        await ctx.step(self.slow, what)
                except TimeoutError:
                    assert await ctx.step(self.work, f"instead of {what}") == f"instead of {what}"
                    assert await ctx.step(self.instead, what) == what
            case "late":
                try:
                    async with asyncio.timeout(None) as timeout:
                        await ctx.step(self.late, what, functools.partial(timeout.reschedule, 0))
                except TimeoutError:
                    assert await ctx.step(self.instead, what) == what
            case "nested":
                assert await ctx.step(self.nested, ctx, what) == what
            case "sequence":
                for each in what:
                    await self.perform(ctx, each)
            case "all":
                await asyncio.gather(*(self.perform(ctx, each) for each in what))
            case "group":
                async with asyncio.TaskGroup() as group:
                    for each in what:
                        group.create_task(self.perform(ctx, each))
            case "beside":
                tasks = [asyncio.create_task(self.perform(ctx, each)) for each in what[1:]]
                try:
                    for each in what[:1]:
                        await self.perform(ctx, each)
                finally:
                    await asyncio.gather(*tasks)

    async def retry(self, ctx: Context, what: str) -> None:
        for _ in range(3):
            try:
                assert await ctx.step(self.flaky, what) == what
                return
            except OSError:
                continue
        await ctx.step(self.work, f"after {what}")

    async def work(self, what: str) -> str:
        for _ in range(self.chance.randrange(6)):
            await turns()
        return what

    async def instead(self, what: str) -> str:
        return what

    async def slow(self, what: str) -> str:
        await turns(20)
        return what

    async def late(self, what: str, end_time: Callable[[], None]) -> str:
        """Return, and let the time end while the result is written."""
        if self.chance.random() < 0.5:
            end_time()
        return what

    async def nested(self, ctx: Context, what: str) -> str:
        await ctx.step(self.work, f"in {what}")
        return str(await ctx.step(self.work, what))

    async def flaky(self, what: str) -> str:
        self.tries += 1
        await self.work(what)
        if self.chance.random() < 0.5:
            raise OSError(what)
        return what

    async def run(self, committed: int = 0) -> None:
        """Run the program to its end, from the first commits of the play before."""
        del self.commits[committed:]
        for _ in range(100):
            outcome = await self.once()
            if type(outcome) is not InputRequired:
                return
            answers = {
                answer_entry(key): {"action": "accept", "content": {"value": 1}} for key in outcome.questions
            }
            self.commits.append(answers)
        raise AssertionError("the program asks for ever")

    async def once(self) -> Any:
        """Run the program once, with what was committed."""
        entries: dict[str, Any] = {}
        for commit in self.commits:
            entries.update(commit)

        async def write(new: dict[str, Any]) -> None:
            self.commits.append(new)  # in the store, before the run knows
            await turns()

        journal = Journal(entries, write=write, id="task")
        call = Call(
            CallTool(name="tool"),
            request_meta=RequestMeta(capabilities=ANSWERS_EVERYTHING),
            carrier=StoreCarrier(journal),
            caller=Caller(),
            work=Supervised.here(),
        )
        run = Run(call, journal, limits=self._engine.limits)
        arguments = self._function.bind({})
        outcome = await self._function.run_once(run, arguments, RunContext(run, self._engine.environment))
        await journal.commit()
        return outcome


@settings(max_examples=60, deadline=None)
@given(st.lists(programs, max_size=5), st.integers(0, 1000))
def test_the_same_program_replays_from_every_commit_without_an_alarm_or_a_wrong_result(
    program: Program, seed: int
) -> None:
    async def check() -> None:
        play = Play(program, seed)
        await play.run()
        whole = list(play.commits)
        for committed in range(len(whole) + 1):
            play.commits = list(whole)
            await play.run(committed)

    asyncio.run(check())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), st.data())
def test_a_step_renamed_before_the_end_of_the_journal_is_always_found(
    steps: list[str], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(steps) - 1))
    changed = [*steps[:place], "renamed", *steps[place + 1 :]]

    async def check() -> None:
        play = Play([("named", step) for step in steps])
        play.perform = named_steps(play)  # type: ignore[method-assign]
        await play.run()
        play.program = [("named", step) for step in changed]
        for committed in range(place + 1, len(steps) + 1):
            whole = list(play.commits)
            with pytest.raises(ReplayMismatch):
                await play.run(committed)
            play.commits = whole

    asyncio.run(check())


def named_steps(play: Play) -> Callable[[Context, Program], Any]:
    """Return a `perform` for steps whose functions have the names of the program."""

    async def perform(ctx: Context, operation: Program) -> None:
        kind, what = operation
        if kind == "sequence":
            for each in what:
                await perform(ctx, each)
            return

        async def work() -> str:
            return str(what)

        work.__name__ = work.__qualname__ = what
        await ctx.step(work)

    return perform


async def test_threads_of_a_function_have_no_order() -> None:
    """The first thread goes on to a new step before the second one comes to its recorded step."""
    order: list[str] = []

    def record(what: str) -> str:
        order.append(what)
        return what

    def both(ctx: Context, first: list[str], second: list[str]) -> str:
        with concurrent.futures.ThreadPoolExecutor(1) as one, concurrent.futures.ThreadPoolExecutor(1) as two:
            for pool, steps in ((one, first), (two, second)):
                pool.submit(
                    lambda steps=steps: [ctx.wait(ctx.step(record, s, key=None)) for s in steps]
                ).result()
        return "done"

    server = Server("threads")

    @server.tool
    def tool(ctx: Context) -> str:
        return both(ctx, ["a"], ["b"])

    play = Play([])
    play._function = server.engine.registry.tool("tool").function
    await play.run()
    assert order == ["a", "b"]
    prints = {key: value for commit in play.commits for key, value in commit.items() if "print:" in key}
    assert prints["print:step:record#2"].startswith("~")


def find(replay: Replay, key: str, digest: str = "1", **marks: Any) -> str | None:
    """Find a step as a run does, one after the other."""
    step = StepPrint(digest, key.removeprefix("step:").partition("#")[0], **marks)
    found = replay.find_step(key, step, is_sequential=True)
    replay.use(found or key)
    return found


def test_entries_of_versions_without_fingerprints_are_accepted() -> None:
    replay = Replay({"step:charge": 1, "step:note": 2, "ask:sure": {}})
    assert find(replay, "step:charge", "other arguments") == "step:charge"
    assert find(replay, "step:bill") is None
    assert replay.unused() == ["step:note"]


async def test_attempts_that_older_versions_counted_are_found() -> None:
    """They gave each attempt at a step a key of its own, and recorded the one that succeeded."""
    play = Play([("retry", "a")])
    play.commits = [{"step:flaky#2": "a", "ask:sure": {}}]
    for seed in range(8):
        play.chance, play.tries = random.Random(seed), 0
        await play.run(1)
        assert play.tries == 1  # it succeeds, or the next one is in the journal


def test_a_new_step_after_the_recorded_ones_is_no_mismatch_and_one_before_them_is() -> None:
    entries = {"print:step:a": "1", "step:a": 1, "print:step:b": "1", "step:b": 2}
    after = Replay(dict(entries))
    assert [find(after, f"step:{name}") for name in "abc"] == ["step:a", "step:b", None]
    before = Replay(dict(entries))
    assert find(before, "step:a") == "step:a"
    with pytest.raises(ReplayMismatch, match="the step 'c', where the journal has the step 'b'"):
        find(before, "step:c")
    skipped = Replay(dict(entries))  # the new version has no step "a", and is past its place
    assert [find(skipped, f"step:{name}") for name in "bc"] == ["step:b", None]
    assert skipped.unused() == ["step:a"]


@pytest.mark.parametrize("mark", ["=", "~", "=~"])
def test_steps_with_keys_and_steps_beside_others_are_not_waited_for(mark: str) -> None:
    assert find(Replay({"print:step:a": f"{mark}1", "step:a": 1}), "step:c") is None


def test_arguments_decide_where_counts_do_not() -> None:
    entries = {"print:step:a": "~1", "step:a": 1, "print:step:a#2": "~2", "step:a#2": 2}
    replay = Replay(entries)
    assert [find(replay, "step:a", "2"), find(replay, "step:a#2", "1")] == ["step:a#2", "step:a"]
    assert find(replay, "step:a#3", "1") is None


async def cut_everywhere(program: Program) -> Play:
    """Run a program, and again from every commit of its first run."""
    play = Play(program)
    play.chance.random = lambda: 0.0  # type: ignore[method-assign]
    await play.run()
    whole = list(play.commits)
    for committed in range(len(whole) + 1):
        play.commits = list(whole)
        await play.run(committed)
    return play


async def test_a_step_inside_a_step_has_no_place_among_the_others(caplog: pytest.LogCaptureFixture) -> None:
    await cut_everywhere([("nested", "a"), ("step", "a"), ("ask", "sure"), ("nested", "a"), ("step", "b")])
    assert not caplog.records


async def test_a_step_inside_a_step_that_failed_runs_once() -> None:
    ran: list[str] = []

    def inner(what: str) -> str:
        ran.append(what)
        return what

    async def outer(ctx: Context) -> str:
        await ctx.step(inner, "a")
        await ctx.step(inner, "a")
        if "failed" not in ran:
            ran.append("failed")
            raise OSError
        return "done"

    server = Server("nested")

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            return await ctx.step(outer, ctx)
        except OSError:
            return await ctx.step(outer, ctx)

    play = Play([])
    play._function = server.engine.registry.tool("tool").function
    await play.run()
    assert ran == ["a", "a", "failed"]


async def test_a_step_whose_time_ends_while_its_result_is_written_is_no_mismatch() -> None:
    await cut_everywhere([("late", "a"), ("ask", "sure"), ("step", "b")])
