"""A tour of what works, run by `make demo`: a real server process, called in every way there is so far.

Ends with exit code 0 only if everything was as expected.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from rich.console import Console
from rich.json import JSON
from rich.text import Text

from antiphon import Client, Failure, InputRequired, Result
from antiphon.client import Elicitation

HERE = Path(__file__).parent
PATIENCE = 10.0
SECRET = {"ANTIPHON_SECRETS": secrets.token_hex(16), "ANTIPHON_STORE": "memory:"}
NEW_YORK = "Current weather in New York:\nTemperature: 72° F\nConditions: Partly cloudy"
REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_weather", "arguments": {"city": "New York"}},
}

console = Console(highlight=False)


class Tour:
    """Shows each step and remembers whether it went as expected."""

    def __init__(self) -> None:
        self.went_wrong = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        console.print(f"\n[bold cyan]▸ {title}[/]")

    def expect(self, what: str, happened: bool) -> None:
        """Say whether it was so."""
        self.went_wrong += not happened
        console.print(f"  [green]✓[/] {what}" if happened else f"  [bold red]✗ {what}[/]")


async def main() -> int:
    tour = Tour()
    tour.step("antiphon run examples/seeds.py")
    async with served(HERE / "seeds.py", SECRET) as url:
        tour.expect(f"a server process is listening at {url}", True)
        await with_the_client(tour, url)
        await with_a_bare_post(tour, url)
        await asking(tour, url)
    await on_two_processes(tour)
    await promised(tour)
    tour.step("End of the tour")
    tour.expect("all was as expected", tour.went_wrong == 0)
    return 1 if tour.went_wrong else 0


async def with_the_client(tour: Tour, url: str) -> None:
    async with Client(url, timeout=PATIENCE) as client:
        tour.step("Client(url): say hello and list the tools")
        tools = [tool.name for tool in await client.tools()]
        tour.expect(f"protocol version {client.version}, tools: {', '.join(tools)}", "get_weather" in tools)

        tour.step('client.call("get_weather", city="New York"): a complete answer')
        result = await client.call("get_weather", city="New York")
        console.print(Text(_indented(result.text)))
        tour.expect("the answer of the seed", result.text == NEW_YORK and not result.is_error)

        tour.step('client.call("get_weather", city="Atlantis"): a failure')
        try:
            await client.call("get_weather", city="Atlantis")
        except Failure as failure:
            console.print(Text(_indented(failure.message)))
            expected = "Error: Unable to retrieve weather data for Atlantis."
            tour.expect("the failure of the seed, raised as Failure", failure.message == expected)
        else:
            tour.expect("the failure of the seed, raised as Failure", False)


async def with_a_bare_post(tour: Tour, url: str) -> None:
    tour.step("The same as a bare POST: no version, no session, no library")
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = (await http.post(url, json=REQUEST)).json()
    for title, message in (("sent", REQUEST), ("received", answer)):
        console.print(f"  [dim]{title}[/]")
        console.print(JSON(json.dumps(message), ensure_ascii=False), soft_wrap=True)
    content = [{"type": "text", "text": NEW_YORK}]
    right = answer["id"] == 1 and answer["result"]["content"] == content and not answer["result"]["isError"]
    tour.expect("the JSON of the seed", right)


async def asking(tour: Tour, url: str) -> None:
    tour.step('client.call("update_work_item", …): the tool asks in the middle, twice')
    answers: list[dict[str, object]] = [{"resolution": "Duplicate"}, {"duplicateOfId": 4301}]

    async def elicit(question: Elicitation) -> dict[str, object]:
        answer = answers.pop(0)
        console.print(Text(f"  {question.message} {json.dumps(answer)}"))
        return answer

    async with Client(url, timeout=PATIENCE, elicit=elicit) as client:
        fields = {"System.State": "Resolved"}
        result = await client.call("update_work_item", workItemId=4522, fields=fields)
    console.print(Text(_indented(result.text)))
    expected = "Bug #4522 resolved as Duplicate of Bug #4301."
    tour.expect("the answer of the seed, after two questions", result.text.startswith(expected))


async def nobody(question: Elicitation) -> dict[str, object]:
    raise AssertionError("this is answered by hand")


async def on_two_processes(tour: Tour) -> None:
    tour.step("Two processes with one secret and no store: a call goes from one to the other and back")
    fields = {"System.State": "Resolved"}

    async def round_of(url: str, after: InputRequired | None, **answers: object) -> InputRequired | Result:
        async with Client(url, timeout=PATIENCE, elicit=nobody) as client:
            return await client.call(
                "update_work_item", workItemId=4522, fields=fields, drive=False, after=after, answers=answers
            )

    async with served(HERE / "seeds.py", SECRET) as one, served(HERE / "seeds.py", SECRET) as other:
        first = await round_of(one, None)
        assert isinstance(first, InputRequired)
        tour.expect(f"the first asks {', '.join(first.asks)}", list(first.asks) == ["resolution"])
        second = await round_of(other, first, resolution={"resolution": "Duplicate"})
        assert isinstance(second, InputRequired)
        size = len(second.sealed or "")
        tour.expect(f"the second asks {', '.join(second.asks)}; we carry {size} sealed characters", size > 0)
        last = await round_of(one, second, duplicate_of={"duplicateOfId": 4301})
        assert isinstance(last, Result)
        console.print(Text(_indented(last.text)))
        tour.expect("the first completes the call", last.text.startswith("Bug #4522 resolved as Duplicate"))


async def promised(tour: Tour) -> None:
    tour.step('client.submit("echo"): a promise, which outlives the process that gave it')
    with TemporaryDirectory() as folder:
        stored = {**SECRET, "ANTIPHON_STORE": f"sqlite:///{folder}/tasks.db"}
        async with (
            served(HERE / "seeds.py", stored) as url,
            Client(url, timeout=PATIENCE, elicit=nobody) as client,
        ):
            handle = await client.submit("echo")
            assert handle.id is not None
            tour.expect(f"a task: {handle.id}", handle.id.startswith("echo_"))
        tour.expect("that process is gone", True)
        async with (
            served(HERE / "seeds.py", stored) as url,
            Client(url, timeout=PATIENCE, elicit=nobody) as client,
        ):
            task = client.task(handle.id)
            async for status in task.updates():
                if status.asks:
                    break
            tour.expect(f"another one knows what it asks: {', '.join(status.asks)}", bool(status.asks))
            await task.answer({"echo_input": {"input": "Hello World!"}})
            text = (await task.result(timeout=PATIENCE)).text
            console.print(Text(_indented(text)))
            tour.expect("the answer of the seed", text == "Echo: Hello World!")


@asynccontextmanager
async def served(file: Path, variables: dict[str, str]) -> AsyncIterator[str]:
    """Run `antiphon run FILE` on a free port, and end it afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "run", str(file), "--port", "0"),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        found = re.search(r"http://\S+/mcp", line)
        if found is None:
            raise RuntimeError(f"The server did not start. It said: {line!r}")
        console.print(Text(_indented(line.strip())), style="dim")
        yield found[0]
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            raise


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
