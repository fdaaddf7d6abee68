"""Resources and their templates."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import (
    Annotations,
    BlobContents,
    Context,
    Declined,
    DefinitionError,
    Failure,
    Forbidden,
    Icon,
    NotFound,
    ResourceNotFound,
    Server,
    TextContents,
)
from tests.support.memory import in_memory
from tests.support.speakers import KEY, LEGACY, MODERN


@pytest.mark.parametrize(
    ("value", "mime", "expected"),
    [
        ("a", None, [{"text": "a", "mimeType": "text/plain"}]),
        ("<p>", "text/html", [{"text": "<p>", "mimeType": "text/html"}]),
        (b"a", None, [{"blob": "YQ==", "mimeType": "application/octet-stream"}]),
        (b"a", "image/png", [{"blob": "YQ==", "mimeType": "image/png"}]),
        ({"a": 1}, None, [{"text": '{"a":1}', "mimeType": "application/json"}]),
        ([1], None, [{"text": "[1]", "mimeType": "application/json"}]),
        (TextContents("u://x", "a", "x/y"), None, [{"uri": "u://x", "text": "a", "mimeType": "x/y"}]),
        (
            [TextContents("u://x", "a"), BlobContents("u://y", "YQ==")],
            None,
            [{"uri": "u://x", "text": "a"}, {"uri": "u://y", "blob": "YQ=="}],
        ),
    ],
    ids=repr,
)
async def test_return_values_of_resources(
    value: Any, mime: str | None, expected: list[dict[str, Any]]
) -> None:
    server = Server("tests")

    @server.resource("u://r", mime_type=mime)
    def resource() -> Any:
        return value

    async with in_memory(server) as client:
        contents = (await client.result("resources/read", {"uri": "u://r"}))["contents"]
        assert contents == [{"uri": "u://r", **part} for part in expected]


async def test_how_resources_are_listed() -> None:
    server = Server("tests")

    @server.resource(
        "u://r", title="R", mime_type="x/y", size=3, annotations=Annotations(priority=1.0), meta={"k": 1}
    )
    async def resource() -> str:
        """What it is."""
        return ""

    @server.resource("u://{a}", name="family", icons=[Icon("https://x/i.png")])
    async def template(a: str) -> str:
        return a

    async with in_memory(server) as client:
        assert (await client.result("resources/list"))["resources"] == [
            {
                "uri": "u://r",
                "name": "resource",
                "title": "R",
                "description": "What it is.",
                "mimeType": "x/y",
                "size": 3,
                "annotations": {"priority": 1.0},
                "_meta": {"k": 1},
            }
        ]
        assert (await client.result("resources/templates/list"))["resourceTemplates"] == [
            {"uriTemplate": "u://{a}", "name": "family", "icons": [{"src": "https://x/i.png"}]}
        ]


async def test_templates_fill_parameters_and_fixed_uris_take_precedence() -> None:
    server = Server("tests")

    @server.resource("u://items/{number}{?unit}")
    async def item(number: int, ctx: Context, unit: str = "m") -> str:
        return f"{number!r} {unit}"

    @server.resource("u://items/first")
    async def first() -> str:
        return "the first"

    @server.resource("files://{+path}")
    async def file(path: str) -> str:
        return path

    async with in_memory(server) as client:

        async def read(uri: str) -> str:
            return str((await client.result("resources/read", {"uri": uri}))["contents"][0]["text"])

        assert await read("u://items/7") == "7 m"
        assert await read("u://items/7?unit=km") == "7 km"
        assert await read("u://items/first") == "the first"
        assert await read("files://a/b%20c") == "a/b c"
        error = await client.error("resources/read", {"uri": "u://items/seven"})
        assert error["code"] == -32602
        assert "number" in error["message"]
        missing = await client.error("resources/read", {"uri": "u://none"})
        assert missing["code"] == -32002
        assert missing["data"] == {"uri": "u://none"}


async def test_the_cache_ttl_of_contents() -> None:
    server = Server("tests", list_ttl=2)

    @server.resource("u://r", cache_ttl=1.5, shared=True)
    async def resource() -> str:
        return "a"

    async with in_memory(server) as client:
        read = await client.result("resources/read", {"uri": "u://r"}, meta={})
        assert (read["ttlMs"], read["cacheScope"]) == (1500, "public")
        listed = await client.result("resources/list", meta={})
        assert (listed["ttlMs"], listed["cacheScope"]) == (2000, "public")
        missing = await client.error("resources/read", {"uri": "u://none"}, meta={})
        assert missing["code"] == -32602


async def test_a_resource_that_fails_leaks_no_details() -> None:
    server = Server("tests")

    @server.resource("u://r")
    async def resource() -> str:
        raise ValueError("s3cret")

    async with in_memory(server) as client:
        error = await client.error("resources/read", {"uri": "u://r"})
        assert error["code"] == -32603
        assert "s3cret" not in str(error)


@pytest.mark.parametrize("error", [NotFound, ResourceNotFound])
@pytest.mark.parametrize(("version", "code"), [(LEGACY, -32002), (MODERN, -32602)])
async def test_the_function_of_a_template_can_say_that_it_does_not_know_a_uri(
    error: type[NotFound], version: str, code: int
) -> None:
    server = Server("tests")

    @server.resource("u://{name}")
    async def resource(name: str) -> str:
        raise error(f"There is no {name}.")

    async with in_memory(server) as client:
        refused = await client.error(
            "resources/read", {"uri": "u://x"}, meta={} if version == MODERN else None
        )
    assert refused == {"code": code, "message": "There is no x.", "data": {"uri": "u://x"}}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (Failure("It is away."), {"code": -32603, "message": "It is away."}),
        (
            Failure("It is away.", details={"since": 3}),
            {"code": -32603, "message": "It is away.", "data": {"since": 3}},
        ),
        (
            Declined("This was declined: Who?", action="decline"),
            {"code": -32603, "message": "This was declined: Who?", "data": {"action": "decline"}},
        ),
        (Forbidden("Not for you."), {"code": -32600, "message": "Not for you."}),
    ],
)
@pytest.mark.parametrize("method", ["resources/read", "prompts/get"])
async def test_a_function_that_fails_on_purpose_says_why(
    raised: Exception, expected: dict[str, Any], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tests")

    @server.resource("u://r")
    async def resource() -> str:
        raise raised

    @server.prompt
    async def prompt() -> str:
        raise raised

    params = {"uri": "u://r"} if method == "resources/read" else {"name": "prompt"}
    async with in_memory(server) as client:
        assert await client.error(method, params) == expected
    assert not [record for record in caplog.records if record.exc_info]


async def test_subscriptions_need_an_existing_resource_and_are_bounded() -> None:
    server = Server("tests")

    @server.resource("u://{n}")
    async def resource(n: str) -> str:
        return n

    async with in_memory(server) as client:
        await client.initialize()
        assert (await client.error("resources/subscribe", {"uri": "v://1"}))["code"] == -32002
        for number in range(1000):
            await client.result("resources/subscribe", {"uri": f"u://{number}"})
        assert (await client.error("resources/subscribe", {"uri": "u://1000"}))["code"] == -32602
        await client.result("resources/unsubscribe", {"uri": "u://0"})
        await client.result("resources/subscribe", {"uri": "u://1000"})
        server.notify_resource_updated("u://0")
        server.notify_resource_updated("u://1000")
        await client.result("ping")
        assert [frame["params"]["uri"] for frame in client.notifications] == ["u://1000"]


async def test_listening_has_a_bound() -> None:
    async with in_memory(Server("tests")) as client:
        notifications = {"resourceSubscriptions": [f"u://{number}" for number in range(1001)]}
        params = {"notifications": notifications}
        assert (await client.error("subscriptions/listen", params, meta={KEY + "clientCapabilities": {}}))[
            "code"
        ] == -32602


def no_such_parameter(b: str) -> str:
    return ""


def without_variable(a: str, b: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "uri"),
    [
        (no_such_parameter, "u://{a}"),
        (without_variable, "u://{a}"),
        (without_variable, "u://fixed"),
        (without_variable, "u://{a}{?b}"),
        (without_variable, "u://{a}/{b"),
    ],
)
def test_functions_and_addresses_that_do_not_fit_each_other(function: Any, uri: str) -> None:
    with pytest.raises(DefinitionError):
        Server("tests").add_resource(function, uri)
