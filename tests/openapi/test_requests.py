"""How arguments become requests, and answers become results, at an API that shows what it gets."""

from __future__ import annotations

import base64
import gzip
import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import pytest
from aiohttp import web

from antiphon import Client, Context, DefinitionError, Failure, Principal, Server
from antiphon.openapi.options import ServerOptions
from tests.cli.command import running
from tests.support.serving import serving
from tests.support.web import answering

ARRAY, OBJECT = {"type": "array", "items": {}}, {"type": "object"}
COLOURS, POINT = ["red", "b,c"], {"x": 1, "y": True}


class Api:
    """Answers with the request that it got, or with what the path asks for."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        match request.path.removeprefix("/v1/"):
            case "gzip":
                body = gzip.compress(b'{"big": "' + b"x" * 100_000 + b'"}')
                return web.Response(
                    body=body, headers={"Content-Encoding": "gzip"}, content_type="application/json"
                )
            case "cut":
                body = gzip.compress(b"{}")[:-4]
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "posted":
                return web.Response(status=302, headers={"Location": "/v1/a"})
            case "paged":
                link = f'<{self.url}/paged?{request.query_string}&q=2>; rel="next"'
                return web.json_response([], headers={"Link": link})
            case "leave":
                location = f"http://127.0.0.2:9/x?{request.rel_url.raw_query_string}"
                return web.Response(status=302, headers={"Location": location})
            case "br":
                return web.Response(body=b"x", headers={"Content-Encoding": "br"})
            case "latin":
                return web.Response(
                    body="Schön".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}
                )
            case "untyped":
                return web.Response(body=b"plain", headers={"Content-Type": ""})
            case "not-json":
                return web.Response(body=b"<oops>", content_type="application/json")
            case "scalar":
                return web.json_response(5, headers={"Set-Cookie": "session=of-one-caller"})
            case "teapot":
                return web.Response(status=418, text="\x1b[2Jshort and " + "stout" * 2000)
        return web.json_response(
            status=400 if request.path.endswith("/refuse") else 200,
            data={
                "method": request.method,
                "path": request.raw_path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "body": (await request.read()).decode("latin-1"),
            },
        )


def document(*paths: str, method: str = "get", **operation: Any) -> dict[str, Any]:
    """A document with one operation at each path, named like the path."""
    items = {f"/{path}": {method: {"operationId": path.partition("/")[0], **operation}} for path in paths}
    return {"openapi": "3.1.0", "info": {"title": "Echo"}, "paths": items}


def body(media_type: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """The request body of an operation."""
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema}}}}


async def sent(given: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The request that a call of the first tool of a document sends."""
    async with answering(Api) as api:
        server = Server.from_openapi(given, base_url=api.url)
        async with Client(server) as client:
            data: dict[str, Any] = (await client.call(server.tools[0], arguments)).data
            return data


STYLES = [
    ("query", {}, ARRAY, COLOURS, "?p=red&p=b%2Cc"),
    ("query", {"explode": False}, ARRAY, COLOURS, "?p=red%2Cb%2Cc"),
    ("query", {"style": "spaceDelimited"}, ARRAY, COLOURS, "?p=red%20b%2Cc"),
    ("query", {"style": "pipeDelimited"}, ARRAY, COLOURS, "?p=red%7Cb%2Cc"),
    ("query", {}, OBJECT, POINT, "?x=1&y=true"),
    ("query", {"explode": False}, OBJECT, POINT, "?p=x%2C1%2Cy%2Ctrue"),
    ("query", {"style": "deepObject"}, OBJECT, POINT, "?p%5Bx%5D=1&p%5By%5D=true"),
    ("query", {}, {"type": "number"}, 2.0, "?p=2"),
    ("query", {}, {"type": "string"}, "a&b=c#d", "?p=a%26b%3Dc%23d"),
    ("query", {}, {"type": "string"}, None, ""),
    ("query", {}, {"type": "string"}, {"admin": 1}, "?p=%7B%22admin%22%3A1%7D"),
    ("path", {}, ARRAY, [1, 2], "/1,2"),
    ("path", {"explode": True}, OBJECT, POINT, "/x=1,y=true"),
    ("path", {"style": "label"}, {}, "a", "/.a"),
    ("path", {"style": "matrix"}, {}, "a b", "/;p=a%20b"),
    ("path", {"x-multi-segment": True}, {}, "a/b", "/a%2Fb"),
]


async def test_parameters_are_written_in_their_style() -> None:
    paths = {
        f"/{number}" + ("/{p}" if place == "path" else ""): {
            "get": {
                "operationId": f"op{number}",
                "parameters": [{"name": "p", "in": place, "schema": schema, **style}],
            }
        }
        for number, (place, style, schema, _, _) in enumerate(STYLES)
    }
    content = {"name": "p", "in": "query", "content": {"application/json": {"schema": OBJECT}}}
    paths["/json"] = {"get": {"operationId": "json", "parameters": [content]}}
    async with answering(Api) as api:
        given = {"openapi": "3.0.3", "paths": paths, "servers": [{"url": api.url}]}
        async with Client(Server.from_openapi(given)) as client:
            for number, (*_, value, expected) in enumerate(STYLES):
                data = (await client.call(f"op{number}", {"p": value})).data
                assert data["path"] == f"/v1/{number}{expected}"
            data = (await client.call("json", {"p": POINT})).data
            assert data["path"] == "/v1/json?p=%7B%22x%22%3A1%2C%22y%22%3Atrue%7D"


async def test_bodies() -> None:
    open_object = {"type": "object", "properties": {"a": {}}, "additionalProperties": True}
    got = await sent(
        document("a", method="post", **body("application/json", open_object)), {"body": {"b": 1}}
    )
    assert (got["body"], got["headers"]["content-type"]) == ('{"b":1}', "application/json")
    got = await sent(document("a", method="patch", **body("application/merge-patch+json", {})), {"body": [1]})
    assert (got["body"], got["headers"]["content-type"]) == ("[1]", "application/merge-patch+json")
    got = await sent(document("a", method="put", **body("text/plain", {})), {"body": "Hi"})
    assert (got["body"], got["headers"]["content-type"]) == ("Hi", "text/plain; charset=utf-8")
    raw = base64.b64encode(b"\0\xff").decode()
    got = await sent(document("a", method="put", **body("application/zip", {})), {"body": raw})
    assert (got["body"], got["headers"]["content-type"]) == ("\0\xff", "application/zip")
    fields = {"type": "object", "properties": {"a": {}, "b": {}}}
    form = body("application/x-www-form-urlencoded", fields)
    got = await sent(document("a", method="post", **form), {"a": [1, True], "b": {"c": None}})
    assert got["body"] == "a=1&a=true&b=%7B%22c%22%3Anull%7D"
    optional = document("a", method="post", **body("application/json", fields, required=False))
    got = await sent(optional, {})
    assert got["body"] == ""
    assert (await sent(optional, {"a": None}))["body"] == '{"a":null}'


async def test_answers_of_every_kind() -> None:
    kinds = ("gzip", "cut", "br", "latin", "untyped", "not-json", "scalar", "teapot")
    async with answering(Api) as api, aiohttp.ClientSession() as session:
        server = Server.from_openapi(
            document(*kinds), base_url=api.url, client=session, max_response_bytes=100_100
        )
        async with Client(server) as client:
            assert len((await client.call("gzip")).data["big"]) == 100_000
            with pytest.raises(Failure, match="compressed its answer in a way that this server cannot read"):
                await client.call("br")
            assert (await client.call("latin")).text == "Schön"
            assert (await client.call("untyped")).text == "plain"
            assert (await client.call("not-json")).text == "<oops>"
            assert (await client.call("scalar")).data == 5
            with pytest.raises(Failure, match="a compressed answer that is not complete"):
                await client.call("cut")
            with pytest.raises(
                Failure, match=r"^GET /teapot answered 418 I'm a Teapot.\n\[2Jshort"
            ) as failed:
                await client.call("teapot")
            assert "\x1b" not in failed.value.message
            assert len(failed.value.message) < 2100
        smaller = Server.from_openapi(document("gzip"), base_url=api.url, max_response_bytes=50_000)
        async with Client(smaller) as client:
            with pytest.raises(Failure, match="more than 50000 bytes"):
                await client.call("gzip")


async def test_a_post_is_not_sent_again_after_a_redirect() -> None:
    async with answering(Api) as api:
        server = Server.from_openapi(document("posted", method="post"), base_url=api.url)
        async with Client(server) as client:
            assert (
                await client.call("posted")
            ).text == f"POST /posted answered 302 Found. It leads to {api.url}/a"


async def test_a_cookie_that_the_api_sets_for_one_caller_is_sent_for_nobody() -> None:
    async with (
        answering(Api) as api,
        Client(Server.from_openapi(document("scalar", "a"), base_url=api.url)) as client,
    ):
        assert (await client.call("scalar")).data == 5
        assert "cookie" not in (await client.call("a")).data["headers"]


async def test_the_client_of_the_author_brings_its_address_and_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parameters = [{"name": "X-Key", "in": "header", "required": True, "schema": {}}]
    given = document("a", parameters=parameters)
    async with answering(Api) as api:
        async with httpx2.AsyncClient(
            base_url=api.url, headers={"X-Key": "k"}, auth=httpx2.BasicAuth("user", "pass")
        ) as http:
            async with Client(Server.from_openapi(given, client=http)) as client:
                data = (await client.call("a")).data
            assert not http.is_closed
        assert data["headers"]["x-key"] == "k"
        assert data["headers"]["authorization"].startswith("Basic ")
        # The older httpx has the same interface under its own name.
        older = types.ModuleType("httpx")
        older.__dict__.update(vars(httpx2) | {"__name__": "httpx"})
        kind = type("AsyncClient", (httpx2.AsyncClient,), {"__module__": "httpx._client"})
        older.AsyncClient = kind  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "httpx", older)
        async with (
            kind(base_url=api.url, headers={"X-Key": "older"}) as http,
            Client(Server.from_openapi(given, client=http)) as client,
        ):
            assert (await client.call("a")).data["headers"]["x-key"] == "older"


async def test_parameters_of_the_client_and_arguments_are_both_in_the_query() -> None:
    parameters = [{"name": name, "in": "query", "schema": {}} for name in ("q", "ids")]
    parameters.append({"name": "api_key", "in": "query", "required": True, "schema": {}})
    given = document("a", "paged", "leave", parameters=parameters)
    async with (
        answering(Api) as api,
        httpx2.AsyncClient(base_url=api.url, params={"api_key": "s3cret&1"}) as http,
        Client(Server.from_openapi(given, client=http)) as client,
    ):
        data = (await client.call("a", {"q": "ä b", "ids": [1, 2]})).data
        query = parse_qsl(urlsplit(data["path"]).query)
        assert sorted(query) == [("api_key", "s3cret&1"), ("ids", "1"), ("ids", "2"), ("q", "ä b")]
        # What the API repeats of the author's parameters does not reach the caller.
        assert (await client.call("paged")).data == {"items": [], "next": {"q": "2"}}
        left = (await client.call("leave")).text
        assert left.endswith("It leads to http://127.0.0.2:9/x?api_key=***")
        with pytest.raises(Failure, match="api_key: There is no such argument"):
            await client.call("a", {"api_key": "of the model"})


async def test_errors_repeat_no_credentials() -> None:
    given = document("refuse")
    async with answering(Api) as api:

        async def refused(**options: Any) -> str:
            server = Server.from_openapi(given, **{"base_url": api.url, **options})
            async with Client(server) as client:
                with pytest.raises(Failure, match="answered 400 Bad Request") as failed:
                    await client.call("refuse")
            assert '"host"' in failed.value.message
            assert not re.findall("s3cr.?e?t|czNjcmV0", failed.value.message), failed.value.message
            return str(failed.value.message)

        async with httpx2.AsyncClient(
            params={"api_key": "s3cr&et-1"},
            cookies={"sid": "s3cret-2"},
            auth=("bob", "s3cret-3"),
            headers={"X-Auth": "s3cret-4"},
        ) as http:
            message = await refused(client=http)
            assert message.count("***") >= 4
            assert "python-httpx2" in message
        async with aiohttp.ClientSession(
            headers={"X-Auth": "s3cret-4"}, cookies={"sid": "s3cret-5"}
        ) as session:
            await refused(client=session)
        await refused(headers={"X-Auth": "s3cret-6", "Cookie": "a=b; sid=s3cret-7", "X-Json": 's3cret"8'})
        await refused(headers=lambda ctx: {"X-Auth": "s3cret-6"})
        await refused(base_url=api.url.replace("//", "//s3cret-user:s3cret-9@"))


async def test_a_cookie_of_a_call_joins_the_cookies_of_the_author_and_replaces_none() -> None:
    parameters = [{"name": name, "in": "cookie", "schema": {}} for name in ("theme", "sid")]
    given = document("a", parameters=parameters)
    async with answering(Api) as api:

        async def cookies(**options: Any) -> list[str]:
            async with Client(Server.from_openapi(given, base_url=api.url, **options)) as client:
                data = (await client.call("a", {"theme": "dark", "sid": "of-the-model"})).data
            return sorted(data["headers"]["cookie"].split("; "))

        expected = ["sid=author", "theme=dark"]
        async with httpx2.AsyncClient(cookies={"sid": "author"}) as http:
            assert await cookies(client=http) == expected
            assert await cookies(client=http, headers={"Cookie": "a=b"}) == ["a=b", *expected]
        jar = aiohttp.CookieJar(unsafe=True)  # the API has an IP address
        async with aiohttp.ClientSession(cookies={"sid": "author"}, cookie_jar=jar) as session:
            assert await cookies(client=session) == expected
        assert await cookies(headers={"Cookie": "sid=author"}) == expected


async def test_a_session_of_aiohttp_brings_its_address() -> None:
    async with answering(Api) as api, answering(Api) as other:
        given = document("a") | {"servers": [{"url": other.url}]}
        async with aiohttp.ClientSession(f"{api.url}/", headers={"X-Key": "s3cret"}) as session:
            async with Client(Server.from_openapi(given, client=session)) as client:
                headers = (await client.call("a")).data["headers"]
            assert (headers["host"], headers["x-key"]) == (api.url.split("/")[2], "s3cret")
            explicit = Server.from_openapi(given, client=session, base_url=other.url)
            async with Client(explicit) as client:
                assert (await client.call("a")).data["headers"]["host"] == other.url.split("/")[2]


async def test_headers_come_from_the_principal_and_never_from_the_caller() -> None:
    async def authenticate(headers: Any) -> Principal:
        return Principal(id=headers["authorization"].removeprefix("Bearer "))

    def headers(ctx: Context) -> dict[str, str]:
        return {} if ctx.principal.id == "guest" else {"X-User": ctx.principal.id}

    async with answering(Api) as api:
        server = Server.from_openapi(
            document("a"), base_url=api.url, headers=headers, authenticate=authenticate, name="Echo"
        )
        async with serving(server) as address:
            for user in ("alice", "guest"):
                async with Client(address.url, headers={"Authorization": f"Bearer {user}"}) as client:
                    seen = (await client.call("a")).data["headers"]
                assert seen.get("x-user") == (None if user == "guest" else user)
                assert "authorization" not in seen


async def test_a_required_header_may_come_from_a_function() -> None:
    given = document("a", parameters=[{"name": "X-Key", "in": "header", "required": True, "schema": {}}])
    async with answering(Api) as api:
        server = Server.from_openapi(given, base_url=api.url, headers=lambda ctx: {"X-Key": "of the author"})
        async with Client(server) as client:
            for arguments in ({}, {"X-Key": "of the model"}):
                assert (await client.call("a", arguments)).data["headers"]["x-key"] == "of the author"
        async with Client(Server.from_openapi(given, base_url=api.url)) as client:
            with pytest.raises(Failure, match="X-Key: This argument is required"):
                await client.call("a")


def test_a_result_schema_is_listed_only_if_every_success_fits_it() -> None:
    def output(responses: dict[str, Any], **options: Any) -> Any:
        given = document("a", responses=responses)
        server = Server.from_openapi(given, base_url="http://127.0.0.1:9", **options)
        return server.engine.registry.tools["a"].definition.output_schema

    def answer(schema: Any) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    thing = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert output({"200": answer(thing), "404": answer({"type": "string"})}) == thing
    assert output({"200": answer(thing), "201": answer(thing)}) == thing
    assert output({"200": answer(thing), "202": {"description": "later"}}) is None
    assert output({"200": answer(thing), "201": answer({"type": "object"})}) is None
    assert output({"200": answer({"type": "string"})}) is None
    assert output({"default": answer(thing)}) is None
    assert output({"200": answer(thing)}, output_schemas=False) is None
    assert output({"200": answer(thing)}, artifact_over=1000) is None
    wide = {"type": "object", "properties": {f"field{number}": {"type": "string"} for number in range(5000)}}
    assert output({"200": answer(wide)}) is None
    listed = output({"2XX": answer({"type": "array", "items": thing})})
    assert listed["properties"]["items"] == {"type": "array", "items": thing}
    assert listed["required"] == ["items"]


def test_the_options_of_a_server_are_options_too() -> None:
    known = inspect.signature(Server.__init__).parameters
    assert set(ServerOptions.__annotations__) == set(known) - {"self"}, "add the option to ServerOptions"
    server = Server.from_openapi(document("a"), base_url="http://127.0.0.1:9", name="mine", page_size=5)
    assert (type(server), server.name) == (Server, "mine")


async def test_a_file_with_such_a_server_is_served_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(document("hello")))
    async with answering(Api) as api:
        file = tmp_path / "echo.py"
        file.write_text(
            "from pathlib import Path\n\nfrom antiphon import Server\n\n"
            f'server = Server.from_openapi(Path(__file__).with_name("openapi.json"), base_url="{api.url}")\n'
        )
        with running(file, directory=tmp_path) as served:
            async with Client(served.url) as client:
                assert (await client.call("hello")).data["path"] == "/v1/hello"


CREDENTIALS: list[dict[str, Any]] = [
    {"headers": {"Authorization": "Bearer s3cret-token"}},
    {"headers": lambda ctx: {"Authorization": "Bearer s3cret-token"}},
    {"auth": httpx2.BasicAuth("user", "s3cret-password")},
    {"cookies": {"session": "s3cret-cookie"}},
]
"""Headers of the author, or what the author's client has."""


@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize("owner", ["operation", "path"])
async def test_credentials_go_to_the_origin_of_the_documents_servers_alone(
    owner: str, credentials: dict[str, Any]
) -> None:
    async with (
        answering(Api) as api,
        answering(Api) as other,
        httpx2.AsyncClient(**({} if "headers" in credentials else credentials)) as http,
    ):
        credentials = credentials if "headers" in credentials else {"client": http}
        given = document("a", "b") | {"servers": [{"url": api.url}]}
        item = given["paths"]["/b"]
        place = item["get"] if owner == "operation" else item
        # The variable makes the other address: what counts is where the request would go.
        variables = {"where": {"default": other.url.removeprefix("http://")}}
        place["servers"] = [{"url": "http://{where}", "variables": variables}]
        with pytest.raises(DefinitionError) as refused:
            Server.from_openapi(given, **credentials)
        assert f"GET /b of the document: its `servers` lead to {other.url}, not {api.url}" in str(
            refused.value
        )
        assert "base_url=" in str(refused.value)
        assert "s3cret" not in str(refused.value)
        async with Client(Server.from_openapi(given)) as client:  # without credentials, the document decides
            assert (await client.call("b")).data["headers"]["host"] == urlsplit(other.url).netloc
        for options in ({"base_url": api.url}, {"exclude": {"paths": ["/b"]}}):
            server = Server.from_openapi(given, **options, **credentials)
            async with Client(server) as client:
                headers = (await client.call(server.tools[-1])).data["headers"]
                assert headers["host"] == urlsplit(api.url).netloc
                assert {"authorization", "cookie"} & set(headers)
        place["servers"] = [{"url": f"{api.url}/deeper"}]  # another path of the same origin
        async with Client(Server.from_openapi(given, **credentials)) as client:
            assert (await client.call("b")).data["path"] == "/v1/deeper/b"


@pytest.mark.parametrize(
    ("root", "server", "is_refused"),
    [
        ("https://api.example", "http://api.example/v2", True),
        ("https://api.example", "https://api.example:8443", True),
        ("https://api.example", "https://api.example@evil.example", True),
        ("https://api.example", "https://api.example.evil.example", True),
        (None, "https://api.example", True),
        ("/v1", "https://api.example", True),
        ("https://api.example", "/v2", True),
        ("https://api.example", "https://API.example:443/v2", False),
    ],
)
def test_an_origin_is_a_scheme_a_host_and_a_port(root: str | None, server: str, is_refused: bool) -> None:
    given = document("a", servers=[{"url": server}]) | ({} if root is None else {"servers": [{"url": root}]})
    if is_refused:
        with pytest.raises(DefinitionError, match="base_url="):
            Server.from_openapi(given, headers={"X-Key": "k"})
    else:
        assert Server.from_openapi(given, headers={"X-Key": "k"}).tools == ("a",)


CLOSED = {"type": "object", "properties": {"x": {}, "y": {"type": "array", "items": {}}}}
OPEN = CLOSED | {"additionalProperties": True}
LIMIT, FIXED = (
    {"name": name, "in": "query", "schema": {"type": "integer"}} for name in ("Limit", "p[fixed]")
)


@pytest.mark.parametrize(
    ("style", "schema", "value", "reason"),
    [
        ({}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        (
            {},
            CLOSED | {"additionalProperties": False},
            {"x": 1, "Limit": 9},
            "There is no such field: 'Limit'",
        ),
        ({}, {"type": "object", "additionalProperties": False}, {"x": 1}, "There is no such field: 'x'"),
        ({}, {"type": "object", "allOf": [CLOSED]}, {"admin": 1}, "There is no such field: 'admin'"),
        ({}, {"anyOf": [CLOSED, {"type": "null"}]}, {"admin": 1}, "There is no such field: 'admin'"),
        ({}, {"$ref": "#/components/schemas/Closed"}, {"admin": 1}, "There is no such field: 'admin'"),
        ({}, OPEN, {"Limit": 9}, "The field 'Limit' has the name of another parameter"),
        ({}, OPEN, {"limit[]": 9}, "The field 'limit[]' has the name of another parameter"),
        ({}, OPEN, {"api_key": "mine"}, "The field 'api_key' has the name of another parameter"),
        ({}, {"type": "object"}, {"Limit": 9}, "The field 'Limit' has the name of another parameter"),
        ({"style": "deepObject"}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        ({"style": "deepObject"}, OPEN, {"Fixed": 1}, "The field 'Fixed' has the name of another parameter"),
        ({"style": "deepObject"}, OPEN, {"fixed][0": 1}, "'fixed][0' has the name of another parameter"),
        ({"style": "deepObject"}, OPEN, {"fixed]": 1}, "'fixed]' has the name of another parameter"),
        ({"style": "deepObject"}, OPEN, {"own": 1}, "'own' has the name of another parameter"),
        ({"explode": False}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        ({"explode": False}, CLOSED, {"x": "1,admin,1"}, "cannot have a comma"),
        ({"in": "header"}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        ({"in": "header", "explode": True}, OPEN, {"x": "1,admin=1"}, "cannot have a comma"),
        ({"in": "header", "explode": True}, OPEN, {"x=1,admin": "1"}, "cannot have a comma"),
        ({"in": "cookie"}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        ({"in": "path", "explode": True}, CLOSED, {"admin": 1}, "There is no such field: 'admin'"),
        ({"in": "path"}, CLOSED, {"x": "1,admin,1"}, "cannot have a comma"),
        ({}, OPEN, {"x": "1,2", "of-the-caller": 1}, "?x=1%2C2&of-the-caller=1"),
        ({}, CLOSED, {"x": 1, "y": [1, 2]}, "?x=1&y=%5B1%2C2%5D"),
        ({"style": "deepObject"}, OPEN, {"Limit": 9}, "?p%5BLimit%5D=9"),
        ({"style": "deepObject"}, OPEN, {"fixed_too": 9}, "?p%5Bfixed_too%5D=9"),
        ({"in": "path", "explode": True}, CLOSED, {"x": 1}, "/x=1"),
    ],
)
async def test_an_object_has_only_the_fields_of_its_schema_and_names_no_other_parameter(
    style: dict[str, Any], schema: dict[str, Any], value: dict[str, Any], reason: str
) -> None:
    parameter = {"name": "p", "in": "query", "schema": schema, **style}
    path = "/a/{p}" if parameter["in"] == "path" else "/a"
    given = {
        "openapi": "3.1.0",
        "paths": {path: {"get": {"operationId": "a", "parameters": [parameter, LIMIT, FIXED]}}},
        "components": {"schemas": {"Closed": CLOSED}},
    }
    async with (
        answering(Api) as api,
        httpx2.AsyncClient(base_url=api.url, params={"api_key": "s3cret", "P[own]": "1"}) as http,
        Client(Server.from_openapi(given, client=http)) as client,
    ):
        if reason[0] in "/?":
            path = (await client.call("a", {"p": value})).data["path"]
            assert path.replace("?api_key=s3cret&P%5Bown%5D=1", "").replace("a&", "a?").endswith(reason)
        else:
            with pytest.raises(Failure, match=re.escape(reason)):
                await client.call("a", {"p": value})
