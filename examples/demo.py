"""A tour, run by `make demo`: every way a call can end, live, against server processes that it starts itself.

Ends with exit code 0 only if everything was as expected.
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

import httpx2
from rich.console import Console
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from antiphon import Client, Failure, InputRequired, Result
from antiphon.client import Elicitation

SEEDS = Path(__file__).parent / "seeds.py"
PATIENCE = 10.0
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
    """Shows each field of the table, and remembers whether it went as expected."""

    def __init__(self) -> None:
        self.went_wrong = 0
        self._field = ("", "")
        self._seen: dict[tuple[str, str], bool] = {}

    def field(self, kind: str, ending: str, title: str) -> None:
        """Begin with one field of the table."""
        self._field = (kind, ending)
        self._seen[self._field] = True
        console.print(f"\n[bold cyan]▸ {kind}, {ending.lower()}[/]  [dim]{title}[/]")

    def show(self, text: str) -> None:
        """Show what came."""
        console.print(Text("\n".join(f"  {line}" for line in text.splitlines())))

    def expect(self, what: str, happened: bool) -> None:
        """Say whether it was so."""
        self.went_wrong += not happened
        if self._field in self._seen:
            self._seen[self._field] &= happened
        console.print(f"  [green]✓[/] {what}" if happened else f"  [bold red]✗ {what}[/]")

    @property
    def is_complete(self) -> bool:
        """Whether every field was seen."""
        return len(self._seen) == 2 * len(FIELDS)

    def table(self) -> Table:
        """Every way a call can end, and whether it was seen."""
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
    return 0 if tour.is_complete and not tour.went_wrong else 1


async def answered(tour: Tour, url: str) -> None:
    async with Client(url, timeout=PATIENCE) as client:
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
    tour.field("Answer", "Additional information", "a call that two processes without a store serve in turns")
    fields = {"System.State": "Resolved"}

    async def round_of(url: str, after: InputRequired | None, **answers: object) -> InputRequired | Result:
        async with Client(url, timeout=PATIENCE, elicit=nobody) as client:
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
        tour.expect(f"the second asks: {message_of(second)} We carry {size} sealed characters.", size > 0)
        last = await round_of(url, second, duplicate_of={"duplicateOfId": 4301})
        assert isinstance(last, Result)
        tour.show(last.text)
        tour.expect("the first completes it", last.text.startswith("Bug #4522 resolved as Duplicate"))


def message_of(stopped: InputRequired) -> str:
    (ask,) = stopped.questions.values()
    return str(getattr(ask, "message", ""))


async def nobody(question: Elicitation) -> dict[str, object]:
    raise AssertionError("this is answered by hand")


async def streamed(tour: Tour, url: str) -> None:
    tour.field("Answer", "Streaming", 'a bare POST with "stream": {}: no version, no session, no library')
    console.print(JSON(json.dumps(REQUEST), ensure_ascii=False), soft_wrap=True)
    segments = 0
    async with (
        httpx2.AsyncClient(timeout=PATIENCE) as http,
        http.stream("POST", url, json=REQUEST, headers={"accept": "text/event-stream"}) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                console.print(f"  [dim]{line}[/]", markup=True, soft_wrap=True)
                segments += len(json.loads(line.removeprefix("data:"))["result"]["partial-content"])
    tour.expect(f"{segments} segments, by number", segments == 3)


async def promised(tour: Tour, url: str) -> None:
    async with Client(url, timeout=PATIENCE) as client:
        tour.field("Promise", "Complete", 'client.submit("get_weather", city="New York")')
        promise = await client.submit("get_weather", city="New York")
        tour.expect(f"a task: {promise.id}", promise.id is not None)
        result = await promise.result(timeout=PATIENCE)
        tour.show(result.text)
        tour.expect("redeemed", result.text == NEW_YORK)

        tour.field("Promise", "Failure", 'client.submit("get_weather", city="Atlantis")')
        promise = await client.submit("get_weather", city="Atlantis")
        tour.expect("redeemed as Failure", await failure_of(promise.result(timeout=PATIENCE), tour))


async def waiting_promise(tour: Tour, url: str) -> str:
    tour.field("Promise", "Additional information", 'client.submit("echo"), which asks what to say')
    async with Client(url, timeout=PATIENCE, elicit=nobody) as client:
        promise = await client.submit("echo")
        assert promise.id is not None
        tour.expect(f"a task: {promise.id}", promise.id.startswith("echo_"))
        return promise.id


async def kept_promise(tour: Tour, stored: dict[str, str], id: str) -> None:
    tour.expect("the process that made it is gone", True)
    async with served(stored) as url, Client(url, timeout=PATIENCE, elicit=nobody) as client:
        task = client.task(id)
        async for status in task.updates():
            if status.questions:
                break
        tour.expect(f"another one knows what it asks: {', '.join(status.questions)}", bool(status.questions))
        await task.answer({"echo_input": {"input": "Hello World!"}})
        text = (await task.result(timeout=PATIENCE)).text
        tour.show(text)
        tour.expect("the answer of the seed", text == "Echo: Hello World!")


async def followed(tour: Tour, one: str, other: str) -> None:
    tour.field("Promise", "Streaming", "promise.stream(), then task(id).stream(after=2) at another process")
    async with Client(one, timeout=PATIENCE) as client, Client(other, timeout=PATIENCE) as another:
        promise = await client.submit("research", topic="antiphons")
        assert promise.id is not None
        had = 0
        async with promise.stream() as segments:
            async for segment in segments:
                tour.show(f"{segment.number}  {segment.text}")
                had = segment.number
                if had == 2:
                    break
        tour.expect("we leave after two segments, and go on at the other process", had == 2)
        async with another.task(promise.id).stream(after=had) as segments:
            async for segment in segments:
                tour.show(f"{segment.number}  {segment.text}")
                had += segment.number == had + 1
        result = await promise.result(timeout=PATIENCE)
        whole = segments.result.content == result.content and result.data == segments.result.data
        tour.expect("all five, in order, none twice; merged, they are the result", had == 5 and whole)


@asynccontextmanager
async def served(variables: dict[str, str]) -> AsyncIterator[str]:
    """Run `antiphon run examples/seeds.py` on a free port, and end it afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "run", str(SEEDS), "--port", "0"),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        found = re.search(r"http://\S+/mcp", line)
        if found is None:
            raise RuntimeError(f"The server did not start. It said: {line!r}")
        console.print(Text(f"  {line.strip()}"), style="dim")
        yield found[0]
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            raise


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
