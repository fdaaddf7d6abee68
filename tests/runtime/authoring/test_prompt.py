"""Prompts and completions."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any, Literal

import pytest

from antiphon import (
    Client,
    Completion,
    Context,
    DefinitionError,
    Icon,
    Image,
    InternalError,
    PromptMessage,
    Server,
    Text,
)
from tests.support.memory import InMemory, in_memory


class Tone(enum.Enum):
    WARM = "warm"
    WRY = "wry"


IMAGE = Image("YQ==", "image/png")


def text(role: str, said: str) -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": said}}


async def messages(client: InMemory, name: str, **arguments: str) -> list[dict[str, Any]]:
    return list((await client.result("prompts/get", {"name": name, "arguments": arguments}))["messages"])


async def test_a_function_becomes_a_prompt() -> None:
    server = Server("tests")

    @server.prompt(title="Greet", icons=[Icon("https://x/i.png")], meta={"k": 1})
    async def greet(name: str, tone: Tone = Tone.WARM) -> str:
        """Greet someone.

        Args:
            name: Whom.
        """
        return f"Greet {name}, {tone.value}."

    async with in_memory(server) as client:
        (prompt,) = (await client.result("prompts/list"))["prompts"]
        assert prompt == {
            "name": "greet",
            "title": "Greet",
            "description": "Greet someone.",
            "arguments": [
                {"name": "name", "description": "Whom.", "required": True},
                {"name": "tone", "required": False},
            ],
            "icons": [{"src": "https://x/i.png"}],
            "_meta": {"k": 1},
        }
        result = await client.result(
            "prompts/get", {"name": "greet", "arguments": {"name": "Ada", "tone": "wry"}}
        )
        assert result["description"] == "Greet someone."
        assert result["messages"] == [text("user", "Greet Ada, wry.")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", [text("user", "a")]),
        (["a", "b"], [text("user", "a"), text("user", "b")]),
        (PromptMessage("assistant", Text("a")), [text("assistant", "a")]),
        ([PromptMessage("user", Text("a")), "b"], [text("user", "a"), text("user", "b")]),
        ({"role": "assistant", "content": {"type": "text", "text": "a"}}, [text("assistant", "a")]),
        ({"role": "assistant", "content": "a"}, [text("assistant", "a")]),
        ([{"role": "user", "content": Text("a")}], [text("user", "a")]),
        (IMAGE, [{"role": "user", "content": {"type": "image", "data": "YQ==", "mimeType": "image/png"}}]),
        ({"a": 1}, [text("user", '{"a":1}')]),
        ([], []),
    ],
    ids=repr,
)
async def test_return_values_of_prompts(value: Any, expected: list[Any]) -> None:
    server = Server("tests")

    @server.prompt
    def prompt() -> Any:
        return value

    async with in_memory(server) as client:
        assert await messages(client, "prompt") == expected


async def test_arguments_are_strings_on_the_wire_and_of_their_types_in_the_function() -> None:
    server = Server("tests")

    @server.prompt
    async def typed(n: int, items: list[int], flag: bool, text: str, ctx: Context) -> str:
        return f"{n!r} {items!r} {flag!r} {text!r}"

    async with in_memory(server) as client:
        said = await messages(client, "typed", n="3", items="[1, 2]", flag="true", text="5")
        assert said == [text("user", "3 [1, 2] True '5'")]
        error = await client.error("prompts/get", {"name": "typed", "arguments": {"n": "three"}})
        assert error["code"] == -32602
        assert "n: " in error["message"]
        assert "This argument is required" in error["message"]


async def test_prompts_that_fail() -> None:
    server = Server("tests")

    @server.prompt
    async def broken() -> str:
        raise ValueError("s3cret")

    async with in_memory(server) as client:
        error = await client.error("prompts/get", {"name": "broken"})
        assert error["code"] == -32603
        assert "s3cret" not in str(error)
        assert (await client.error("prompts/get", {"name": "none"}))["code"] == -32602
        assert (await client.error("prompts/get", {"name": "broken", "arguments": {"x": "1"}}))[
            "code"
        ] == -32602


Kind = Annotated[Literal["long", "short"], "how much there is to be read"]


def completing() -> Server:
    server = Server("tests")

    @server.prompt
    async def prompt(city: str, tone: Tone, kind: Kind, free: str) -> str:
        return ""

    @server.resource("u://{country}/{town}")
    async def town(country: str, town: str) -> str:
        return ""

    @server.resource("u://fixed")
    async def fixed() -> str:
        return ""

    @server.completion("prompt", "city")
    async def cities(value: str) -> list[str]:
        return [city for city in ("Oslo", "Ottawa", "Rome") if city.startswith(value)]

    @server.completion("u://{country}/{town}", "town")
    def towns(value: str, others: Mapping[str, str]) -> list[str]:
        return [f"{others.get('country', '?')}-{value}-{number}" for number in range(150)]

    @server.completion("prompt", "free")
    async def free(value: str) -> Completion:
        return Completion(("mine",), 7, True)

    return server


PROMPT = {"type": "ref/prompt", "name": "prompt"}
TEMPLATE = {"type": "ref/resource", "uri": "u://{country}/{town}"}


@pytest.mark.parametrize(
    ("ref", "name", "value", "expected"),
    [
        (PROMPT, "city", "O", {"values": ["Oslo", "Ottawa"], "total": 2, "hasMore": False}),
        (PROMPT, "city", "X", {"values": [], "total": 0, "hasMore": False}),
        (PROMPT, "tone", "wr", {"values": ["wry"], "total": 1, "hasMore": False}),
        (PROMPT, "kind", "", {"values": ["long", "short"], "total": 2, "hasMore": False}),
        (PROMPT, "free", "", {"values": ["mine"], "total": 7, "hasMore": True}),
        (TEMPLATE, "country", "x", {"values": [], "total": 0, "hasMore": False}),
    ],
)
async def test_completions(ref: Any, name: str, value: str, expected: dict[str, Any]) -> None:
    async with in_memory(completing()) as client:
        params = {"ref": ref, "argument": {"name": name, "value": value}}
        assert (await client.result("completion/complete", params))["completion"] == expected
        assert "completions" in (await client.initialize())["capabilities"]


async def test_completions_get_the_other_arguments_and_return_at_most_a_hundred_values() -> None:
    async with in_memory(completing()) as client:
        params = {
            "ref": TEMPLATE,
            "argument": {"name": "town", "value": "x"},
            "context": {"arguments": {"country": "no"}},
        }
        found = (await client.result("completion/complete", params))["completion"]
        assert found["values"] == [f"no-x-{number}" for number in range(100)]
        assert (found["total"], found["hasMore"]) == (150, True)


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        (PROMPT, "none"),
        ({"type": "ref/prompt", "name": "none"}, "city"),
        ({"type": "ref/resource", "uri": "u://none/{x}"}, "x"),
        ({"type": "ref/resource", "uri": "u://fixed"}, "x"),
        (TEMPLATE, "none"),
    ],
)
async def test_completions_of_unknown_arguments_are_refused(ref: Any, name: str) -> None:
    async with in_memory(completing()) as client:
        params = {"ref": ref, "argument": {"name": name, "value": ""}}
        assert (await client.error("completion/complete", params))["code"] == -32602


async def test_a_completion_function_gets_the_context_of_the_request() -> None:
    server = Server("tests")

    @server.prompt
    async def letter(to: str) -> str:
        return ""

    @server.resource("u://{country}/{town}")
    async def town(country: str, town: str) -> str:
        return ""

    @server.completion("letter", "to")
    async def contacts(value: str, ctx: Context) -> list[str]:
        return [f"{ctx.principal.id}-{value}-{ctx.lifespan}"]

    @server.completion("u://{country}/{town}", "town")
    def towns(ctx: Context, value: str, others: Mapping[str, str]) -> list[str]:
        return [f"{ctx.principal.id}-{value}-{others['country']}"]

    async with Client(server, principal="ada") as client:
        assert (await client.complete("letter", "to", "x")).values == ("ada-x-None",)
        found = await client.complete("u://{country}/{town}", "town", "x", {"country": "no"})
        assert found.values == ("ada-x-no",)


async def test_a_completion_function_cannot_ask(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("tests")

    @server.prompt
    async def letter(to: str) -> str:
        return ""

    @server.completion("letter", "to")
    async def contacts(value: str, ctx: Context) -> list[str]:
        return [await ctx.elicit("Who?", str)]

    async with Client(server, elicit=lambda question: "Ada") as client:
        with pytest.raises(InternalError):
            await client.complete("letter", "to", "x")
    assert "A completion function cannot ask the caller" in caplog.text


def takes_nothing() -> list[str]:
    return []


def takes_three(a: str, b: str, c: str) -> list[str]:
    return []


def takes_one_by_position(a: str, /) -> list[str]:
    return []


@pytest.mark.parametrize("function", [takes_nothing, takes_three, takes_one_by_position])
def test_a_completion_function_takes_one_or_two_parameters(function: Any) -> None:
    with pytest.raises(DefinitionError, match="a completion function takes one or two parameters"):
        completing().completion("prompt", "city")(function)


async def stream() -> AsyncIterator[str]:
    yield "a"


def sequence() -> Iterator[str]:
    yield "a"


@pytest.mark.parametrize("function", [stream, sequence])
def test_a_prompt_is_no_generator(function: Any) -> None:
    with pytest.raises(DefinitionError, match=f"{function.__name__}: generators are not supported here"):
        Server("tests").prompt(function)
