"""Tools: from the arguments of a call to its result."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from antiphon import (
    Context,
    DefinitionError,
    Failure,
    Icon,
    InvalidParams,
    Limits,
    Result,
    Server,
    Text,
    ToolAnnotations,
)
from tests.support.memory import in_memory
from tests.support.polling import DEADLINE


class Point(BaseModel):
    x: int
    y: int = 0


async def shown(server: Server) -> list[dict[str, Any]]:
    async with in_memory(server) as client:
        return list((await client.result("tools/list"))["tools"])


async def test_a_function_becomes_a_tool() -> None:
    server = Server("tests")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + b

    async with in_memory(server) as client:
        await client.initialize()
        (tool,) = (await client.result("tools/list"))["tools"]
        assert tool == {
            "name": "add",
            "description": "Add two numbers.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "The first."},
                    "b": {"type": "integer", "default": 1},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
            },
        }
        assert await client.call("add", a=2) == {
            "content": [{"type": "text", "text": "3"}],
            "structuredContent": {"result": 3},
            "isError": False,
        }
    assert await add(1, 2) == 3, "the decorator gives the function back"


async def test_options_override_the_signature() -> None:
    server = Server("tests")

    @server.tool(
        name="other",
        title="Other",
        description="Said otherwise.",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon("https://x/i.png")],
        meta={"k": 1},
        input_schema={"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
        structured=False,
    )
    async def tool(a: str) -> dict[str, str]:
        """Not this."""
        return {"a": a}

    assert await shown(server) == [
        {
            "name": "other",
            "title": "Other",
            "description": "Said otherwise.",
            "annotations": {"readOnlyHint": True},
            "icons": [{"src": "https://x/i.png"}],
            "_meta": {"k": 1},
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
        }
    ]
    async with in_memory(server) as client:
        assert await client.text("other", a="b") == '{"a":"b"}'


OBJECT = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}


async def test_a_schema_of_the_author_is_listed_and_values_become_structured_content() -> None:
    server = Server("tests")

    @server.tool(output_schema=OBJECT)
    async def typed(n: int) -> dict[str, int]:
        return {"n": n}

    @server.tool(output_schema=OBJECT)
    async def untyped(n: int):  # type: ignore[no-untyped-def]
        return {"n": n}

    @server.tool(output_schema=OBJECT)
    async def explained(n: int) -> Result:
        return Result(f"It is {n}.", data={"n": n})

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def listed(n: int):  # type: ignore[no-untyped-def]
        return [n]

    @server.tool(output_schema=OBJECT, artifact_over=1000)
    async def large(n: int) -> dict[str, int]:
        return {"n": n}

    schemas = {tool["name"]: tool["outputSchema"] for tool in await shown(server)}
    assert schemas["typed"] == schemas["untyped"] == schemas["explained"] == OBJECT
    assert schemas["listed"]["properties"]["result"] == {"type": "array", "items": {"type": "integer"}}
    assert schemas["large"]["anyOf"][0] == OBJECT
    async with in_memory(server) as client:
        for name in ("typed", "untyped", "large"):
            result = await client.call(name, n=3)
            assert result["content"] == [{"type": "text", "text": '{"n":3}'}]
            assert (result["structuredContent"], result["isError"]) == ({"n": 3}, False)
        assert (await client.call("explained", n=3))["structuredContent"] == {"n": 3}
        assert await client.text("explained", n=3) == "It is 3."
        assert (await client.call("listed", n=3))["structuredContent"] == {"result": [3]}


@pytest.mark.parametrize("value", ["text", 3, [1], None, Result("no data")])
async def test_a_value_that_is_no_object_does_not_fit_the_schema_of_an_object(value: Any) -> None:
    server = Server("tests")
    server.add_tool(lambda: value, name="tool", output_schema=OBJECT)
    async with in_memory(server) as client:
        result = await client.call("tool")
    assert result["isError"]
    assert "structuredContent" not in result


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_schema": "object"}, "tool: output_schema='object' is not a JSON schema. Pass a dict."),
        ({"output_schema": OBJECT, "structured": False}, "structured content: remove structured=False."),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(options: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Server("tests").add_tool(lambda: {"n": 1}, name="tool", **options)


async def test_arguments_that_do_not_fit_are_explained_to_the_model() -> None:
    server = Server("tests")

    @server.tool
    async def tool(n: Annotated[int, Field(ge=0)], point: Point, _hidden: str = "x") -> str:
        return "never"

    async with in_memory(server) as client:
        result = await client.call("tool", n=-1, point={"x": "one"}, extra=1, _hidden=3)
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert "'tool'" in text
    for part in (
        "n: ",
        "greater than or equal to 0",
        "point.x: ",
        "'one'",
        "extra: There is no such argument",
        "_hidden: ",
    ):
        assert part in text
    async with in_memory(server) as client:
        result = await client.call("tool")
    assert "n: This argument is required" in result["content"][0]["text"]


@pytest.mark.parametrize(
    "arguments", [{"n": [1], **{f"x{i}": 1 for i in range(20_000)}}, {"n": ["x"] * 20_000}]
)
async def test_a_flood_of_wrong_arguments_is_counted_and_not_described(arguments: dict[str, Any]) -> None:
    server = Server("tests")

    @server.tool
    async def tool(n: list[int]) -> str:
        return "never"

    async with in_memory(server) as client:
        result = await client.call("tool", **arguments)
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert "20000 problems, too many to list" in text
    assert len(text) < 200


async def test_a_long_invalid_argument_is_shortened_in_the_message() -> None:
    server = Server("tests")

    @server.tool
    async def tool(n: int) -> str:
        return "never"

    async with in_memory(server) as client:
        result = await client.call("tool", n="x" * 100_000)
    assert len(result["content"][0]["text"]) < 500


async def test_failures_and_errors() -> None:
    server = Server("tests")

    @server.tool
    async def fail() -> str:
        raise Failure("no", data={"why": "so"}, content=(Text("no,"), Text("really")))

    @server.tool
    async def refuse() -> str:
        raise InvalidParams("not like this", data={"a": 1})

    @server.tool
    async def result() -> str:
        return Result("bad", is_error=True)  # type: ignore[return-value]

    async with in_memory(server) as client:
        failed = await client.call("fail")
        assert failed["isError"] is True
        assert failed["structuredContent"] == {"why": "so"}
        assert [block["text"] for block in failed["content"]] == ["no,", "really"]
        error = await client.error("tools/call", {"name": "refuse"})
        assert error == {"code": -32602, "message": "not like this", "data": {"a": 1}}
        assert (await client.call("result"))["isError"] is True
        assert (await client.error("tools/call", {"name": "none"}))["code"] == -32602


async def test_an_exception_leaks_no_details_and_is_logged_with_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("tests")

    @server.tool
    async def broken() -> Point:
        raise ValueError("the password is s3cret")

    @server.tool
    async def lying() -> Point:
        return {"x": "s3cret"}  # type: ignore[return-value]

    async with in_memory(server) as client:
        for number, name in enumerate(("broken", "lying"), 1):
            with caplog.at_level(logging.ERROR, "antiphon"):
                result = await client.call(name)
            assert result["isError"] is True
            assert "s3cret" not in str(result)
            assert f"request {number}" in result["content"][0]["text"]
            record = caplog.records[-1]
            assert f"request {number}" in record.getMessage()
            assert record.exc_info is not None
            assert "s3cret" in str(record.exc_info[1])


async def test_functions_that_are_not_async_run_at_once_in_threads() -> None:
    server = Server("tests")
    barrier = threading.Barrier(8, timeout=DEADLINE)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("from outside")

    @server.tool
    def meet() -> str:
        barrier.wait()
        assert threading.current_thread() is not threading.main_thread()
        return variable.get()

    async with in_memory(server) as client:
        assert await asyncio.gather(*(client.text("meet") for _ in range(8))) == ["from outside"] * 8


async def test_no_more_threads_than_the_limit() -> None:
    server = Server("tests", limits=Limits(max_threads=2))
    running: list[int] = [0, 0]
    lock = threading.Lock()
    both = threading.Event()

    @server.tool
    def work() -> str:
        with lock:
            running[0] += 1
            running[1] = max(running)
            if running[0] == 2:
                both.set()
        both.wait(60)
        with lock:
            running[0] -= 1
        return "done"

    async with in_memory(server) as client:
        await asyncio.gather(*(client.text("work") for _ in range(10)))
    assert running[1] == 2


class Service:
    async def method(self, a: int) -> str:
        return f"method {a}"

    def __call__(self, a: int) -> str:
        return f"called {a}"


async def partially(a: int, b: int) -> str:
    return f"{a} {b}"


async def test_methods_objects_and_partials_are_tools() -> None:
    server = Server("tests")
    server.add_tool(Service().method)
    server.add_tool(Service(), name="service")
    server.add_tool(functools.partial(partially, b=2), name="part")
    async with in_memory(server) as client:
        assert await client.text("method", a=1) == "method 1"
        assert await client.text("service", a=1) == "called 1"
        assert await client.text("part", a=1) == "1 2"


async def test_reserved_names_and_more_arguments_reach_the_function() -> None:
    server = Server("tests")

    @server.tool
    async def tool(schema: str, _x: int, model_y: int, ctx: Context, **more: Any) -> str:
        return f"{schema} {_x} {model_y} {ctx.request_id} {more}"

    async with in_memory(server) as client:
        text = await client.text("tool", schema="s", _x=1, model_y=2, other=[3])
        assert text == "s 1 2 1 {'other': [3]}"


def test_registering_a_non_function_is_refused_with_a_hint() -> None:
    server = Server("tests")
    with pytest.raises(DefinitionError, match="name="):
        server.tool("name")  # type: ignore[call-overload]
