"""A tour of every way a call can end: `make demo` runs it against real server processes.

The exit code is 0 only if every step had the expected result.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from rich.console import Console
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from antiphon import Client, Failure, InputRequired, Result
from antiphon.client import Elicitation

SEEDS = Path(__file__).parent / "seeds.py"
TIMEOUT_SECONDS = 10.0
SECRET = {"ANTIPHON_SECRETS": secrets.token_hex(16)}
NEW_YORK = "Current weather in New York:\nTemperature: 72° F\nConditions: Partly cloudy"
REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_weather", "arguments": {"city": "New York"}, "stream": {}},
}

console = Console(highlight=False)


FIELDS = ("Complete", "Failure", "Additional information", "Streaming")


class Tour:
    """Shows each way a call can end, and records whether the steps had the expected results."""

    def __init__(self) -> None:
        self.failures = 0
        self._field = ("", "")
        self._seen: dict[tuple[str, str], bool] = {}

    def field(self, kind: str, ending: str, title: str) -> None:
        """Start with one way a call can end."""
        self._field = (kind, ending)
        self._seen[self._field] = True
        console.print(f"\n[bold cyan]▸ {kind}, {ending.lower()}[/]  [dim]{title}[/]")

    def show(self, text: str) -> None:
        """Print a response."""
        console.print(Text("\n".join(f"  {line}" for line in text.splitlines())))

    def expect(self, what: str, happened: bool) -> None:
        """Print whether a step had the expected result."""
        self.failures += not happened
        if self._field in self._seen:
            self._seen[self._field] &= happened
        console.print(f"  [green]✓[/] {what}" if happened else f"  [bold red]✗ {what}[/]")

    @property
    def is_complete(self) -> bool:
        """Whether the tour has shown every way a call can end."""
        return len(self._seen) == 2 * len(FIELDS)

    def table(self) -> Table:
        """Return a table of all ways a call can end, and whether each had the expected results."""
        table = Table("", *FIELDS)
        for kind in ("Answer", "Promise"):
            marks = (self._seen.get((kind, ending)) for ending in FIELDS)
            table.add_row(kind, *("[green]✓[/]" if mark else "[bold red]✗[/]" for mark in marks))
        return table


async def main() -> int:
    tour = Tour()
    with TemporaryDirectory() as folder:
        stored = {**SECRET, "ANTIPHON_STORE": f"sqlite:///{folder}/tasks.db"}
        async with served(stored) as url:
            await answered(tour, url)
            await asked(tour, url)
            await streamed(tour, url)
            await promised(tour, url)
            waiting = await waiting_promise(tour, url)
        await kept_promise(tour, stored, waiting)
        async with served(stored) as one, served(stored) as other:
            await followed(tour, one, other)
    console.print("\n[bold]Every way a call can end[/]")
    console.print(tour.table())
    return 0 if tour.is_complete and not tour.failures else 1


async def answered(tour: Tour, url: str) -> None:
    async with Client(url, timeout=TIMEOUT_SECONDS) as client:
        tour.field("Answer", "Complete", 'client.call("get_weather", city="New York")')
        result = await client.call("get_weather", city="New York")
        tour.show(result.text)
        tour.expect(f"the answer of the seed, in protocol version {client.version}", result.text == NEW_YORK)

        tour.field("Answer", "Failure", 'client.call("get_weather", city="Atlantis")')
        tour.expect("raised as Failure", await failure_of(client.call("get_weather", city="Atlantis"), tour))


async def failure_of(work: Awaitable[Result], tour: Tour) -> bool:
    try:
        await work
    except Failure as failure:
        tour.show(failure.message)
        return failure.message == "Error: Unable to retrieve weather data for Atlantis."
    return False


async def asked(tour: Tour, url: str) -> None:
    tour.field(
        "Answer", "Additional information", "two processes that share no store serve one call in turns"
    )
    fields = {"System.State": "Resolved"}

    async def round_of(url: str, after: InputRequired | None, **answers: object) -> InputRequired | Result:
        async with Client(url, timeout=TIMEOUT_SECONDS, elicit=nobody) as client:
            return await client.call_once(
                "update_work_item", workItemId=4522, fields=fields, resume=after, answers=answers
            )

    async with served({**SECRET, "ANTIPHON_STORE": "memory:"}) as other:
        first = await round_of(url, None)
        assert isinstance(first, InputRequired)
        tour.expect(f"the first asks: {message_of(first)}", list(first.questions) == ["resolution"])
        second = await round_of(other, first, resolution={"resolution": "Duplicate"})
        assert isinstance(second, InputRequired)
        size = len(second.sealed or "")
        tour.expect(
            f"the second asks: {message_of(second)} The client carries {size} characters of sealed state.",
            size > 0,
        )
        last = await round_of(url, second, duplicate_of={"duplicateOfId": 4301})
        assert isinstance(last, Result)
        tour.show(last.text)
        tour.expect("the first completes the call", last.text.startswith("Bug #4522 resolved as Duplicate"))


def message_of(stopped: InputRequired) -> str:
    (ask,) = stopped.questions.values()
    return str(getattr(ask, "message", ""))


async def nobody(question: Elicitation) -> dict[str, object]:
    raise AssertionError("the tour answers this question itself")


async def streamed(tour: Tour, url: str) -> None:
    tour.field("Answer", "Streaming", 'a bare POST with "stream": {}: no version, no session, no library')
    console.print(JSON(json.dumps(REQUEST), ensure_ascii=False), soft_wrap=True)
    segments = 0
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_SECONDS)) as http,
        http.post(url, json=REQUEST, headers={"accept": "text/event-stream"}) as response,
    ):
        async for read in response.content:
            line = read.decode().rstrip()
            if line.startswith("data:"):
                console.print(f"  [dim]{line}[/]", markup=True, soft_wrap=True)
                segments += len(json.loads(line.removeprefix("data:"))["result"]["partial-content"])
    tour.expect(f"{segments} numbered segments", segments == 3)


async def promised(tour: Tour, url: str) -> None:
    async with Client(url, timeout=TIMEOUT_SECONDS) as client:
        tour.field("Promise", "Complete", 'client.submit("get_weather", city="New York")')
        promise = await client.submit("get_weather", city="New York")
        tour.expect(f"the server created a task: {promise.id}", promise.id is not None)
        result = await promise.result(timeout=TIMEOUT_SECONDS)
        tour.show(result.text)
        tour.expect("the task has the result", result.text == NEW_YORK)

        tour.field("Promise", "Failure", 'client.submit("get_weather", city="Atlantis")')
        promise = await client.submit("get_weather", city="Atlantis")
        tour.expect("the task has a Failure", await failure_of(promise.result(timeout=TIMEOUT_SECONDS), tour))


async def waiting_promise(tour: Tour, url: str) -> str:
    tour.field("Promise", "Additional information", 'client.submit("echo"), which asks what to say')
    async with Client(url, timeout=TIMEOUT_SECONDS, elicit=nobody) as client:
        promise = await client.submit("echo")
        assert promise.id is not None
        tour.expect(f"the server created a task: {promise.id}", promise.id.startswith("echo_"))
        return promise.id


async def kept_promise(tour: Tour, stored: dict[str, str], id: str) -> None:
    tour.expect("the process that created the task has exited", True)
    async with served(stored) as url, Client(url, timeout=TIMEOUT_SECONDS, elicit=nobody) as client:
        task = client.task(id)
        async for status in task.updates():
            if status.questions:
                break
        tour.expect(
            f"another process reads its open question: {', '.join(status.questions)}", bool(status.questions)
        )
        await task.answer({"echo_input": {"input": "Hello World!"}})
        text = (await task.result(timeout=TIMEOUT_SECONDS)).text
        tour.show(text)
        tour.expect("the answer of the seed", text == "Echo: Hello World!")


async def followed(tour: Tour, one: str, other: str) -> None:
    tour.field("Promise", "Streaming", "promise.stream(), then task(id).stream(after=2) at another process")
    async with (
        Client(one, timeout=TIMEOUT_SECONDS) as client,
        Client(other, timeout=TIMEOUT_SECONDS) as another,
    ):
        promise = await client.submit("research", topic="antiphons")
        assert promise.id is not None
        had = 0
        async with promise.stream() as segments:
            async for segment in segments:
                tour.show(f"{segment.number}  {segment.text}")
                had = segment.number
                if had == 2:
                    break
        tour.expect("we disconnect after two segments and continue at the other process", had == 2)
        async with another.task(promise.id).stream(after=had) as segments:
            async for segment in segments:
                tour.show(f"{segment.number}  {segment.text}")
                had += segment.number == had + 1
        result = await promise.result(timeout=TIMEOUT_SECONDS)
        whole = segments.result.content == result.content and result.data == segments.result.data
        tour.expect(
            "all five segments arrive once and in order; together they are the result", had == 5 and whole
        )


@asynccontextmanager
async def served(variables: dict[str, str]) -> AsyncIterator[str]:
    """Run `antiphon run examples/seeds.py` on a free port, and yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "run", str(SEEDS), "--port", "0"),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT_SECONDS)).decode()
        found = re.search(r"http://\S+/mcp", line)
        if found is None:
            raise RuntimeError(f"The server did not start. Its output: {line!r}")
        console.print(Text(f"  {line.strip()}"), style="dim")
        yield found[0]
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)
        except TimeoutError:
            process.kill()
            raise


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
