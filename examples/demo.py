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

import httpx2
from rich.console import Console
from rich.json import JSON
from rich.text import Text

from antiphon import Client, Failure, InputRequired, Result
from antiphon.client import Elicitation

HERE = Path(__file__).parent
PATIENCE = 10.0
SECRET = {"ANTIPHON_SECRETS": secrets.token_hex(16)}
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


async def on_two_processes(tour: Tour) -> None:
    tour.step("Two processes with one secret and no store: a call begins on one and ends on the other")

    async def nobody(question: Elicitation) -> dict[str, object]:
        raise AssertionError("this call is driven by hand")

    async with served(HERE / "seeds.py", SECRET) as one, served(HERE / "seeds.py", SECRET) as other:
        async with Client(one, timeout=PATIENCE, elicit=nobody) as client:
            stopped = await client.call("get_weather", location="New York", drive=False)
        assert isinstance(stopped, InputRequired)
        size = len(stopped.sealed or "")
        tour.expect(f"the first asks {', '.join(stopped.asks)}; we carry {size} sealed characters", size > 0)
        async with Client(other, timeout=PATIENCE, elicit=nobody) as client:
            answers = {"github_login": {"name": "octocat"}}
            result = await client.call(
                "get_weather", location="New York", drive=False, after=stopped, answers=answers
            )
        assert isinstance(result, Result)
        console.print(Text(_indented(result.text)))
        tour.expect("the second completes the call", result.text == NEW_YORK.replace("° F", "°F"))


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
