"""A FastAPI app as a server: in its own process, and over a real socket through its document."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import httpx2
import jsonschema
import pytest
from fastapi import APIRouter, BackgroundTasks, FastAPI

from antiphon import (
    BlobContents,
    Client,
    Context,
    DefinitionError,
    EmbeddedResource,
    Failure,
    Image,
    InvalidParams,
    Server,
)
from antiphon.client import TaskHandle
from tests.openapi.shop import PIXEL, make_shop
from tests.support.serving import serving

SHOP = make_shop()


@asynccontextmanager
async def connected(way: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a server for the shop: in process, or over a socket with one of the HTTP clients."""
    if way == "app":
        async with Client(Server.from_fastapi(SHOP, **options)) as client:
            yield client
        return
    async with serving(SHOP) as address:
        base_url = f"http://127.0.0.1:{address.port}"
        if way == "socket":
            async with Client(Server.from_openapi(SHOP.openapi(), base_url=base_url, **options)) as client:
                yield client
            return
        async with httpx2.AsyncClient(base_url=base_url, follow_redirects=True) as http:
            document = json.dumps(SHOP.openapi())
            async with Client(Server.from_openapi(document, client=http, **options)) as client:
                yield client


@pytest.fixture(params=["app", "socket"])
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connected(request.param) as client:
        yield client


async def test_operations_are_tools_with_short_names_hints_and_schemas(shop: Client) -> None:
    tools = {tool.name: tool for tool in await shop.tools()}
    assert [*tools][:5] == ["list_items", "get_item", "put_item", "delete_item", "get_file"]
    assert "log_in" in tools
    assert tools["get_item"].title == "Get Item"
    assert tools["get_item"].description == "Get Item\n\nGet an item."
    assert tools["get_item"].input_schema == {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    assert tools["get_item"].output_schema is not None
    assert tools["get_item"].output_schema["type"] == "object"
    assert tools["get_item"].output_schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Item-Output"}
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert hints["get_item"].read_only_hint is True  # type: ignore[union-attr]
    assert hints["put_item"].idempotent_hint is True  # type: ignore[union-attr]
    assert hints["delete_item"].destructive_hint is True  # type: ignore[union-attr]


async def test_path_query_and_body_are_arguments(shop: Client) -> None:
    got = await shop.call("get_item", {"id": 1})
    assert got.data["parts"] == [{"id": 2, "name": "Leg", "price": None, "parts": []}]
    assert json.loads(got.text) == got.data
    put = await shop.call("put_item", {"id": 7, "id_body": 8, "name": "Table", "price": 2.5})
    assert put.data == {"path": 7, "body": {"id": 8, "name": "Table", "price": 2.5, "parts": []}}
    deleted = await shop.call("delete_item", {"id": 1})
    assert deleted.text == "DELETE /items/{id} answered 204 No Content."


async def test_a_list_has_items_and_the_arguments_of_the_next_page(shop: Client) -> None:
    arguments: dict[str, Any] = {"sizes": [2, 3]}
    names = []
    while True:
        got = (await shop.call("list_items", arguments)).data
        names += [item["name"] for item in got["items"]]
        assert got["items"][0]["price"] == 5
        if "next" not in got:
            break
        assert got["next"] == {"page": len(names) + 1}
        arguments |= got["next"]
    assert names == ["Item 1", "Item 2", "Item 3"]


async def test_forms_and_files(shop: Client) -> None:
    assert (await shop.call("log_in", {"user": "A&B", "roles": ["x", "y"]})).data == {
        "user": "A&B",
        "roles": ["x", "y"],
    }
    manual = {"name": 'a"\r\nb.txt', "text": "Schön"}
    picture = {"name": "p.png", "base64": base64.b64encode(PIXEL).decode(), "media_type": "image/png"}
    sent = await shop.call("upload", {"title": "T", "manual": manual, "pictures": [picture, picture]})
    assert sent.data["title"] == "T"
    name, kind, content = sent.data["files"][0]
    assert (kind, bytes.fromhex(content).decode()) == ("text/plain", "Schön")
    assert name == "a%22%0D%0Ab.txt"
    assert sent.data["files"][1:] == [["p.png", "image/png", PIXEL.hex()]] * 2
    with pytest.raises(Failure, match="either 'text' or 'base64'"):
        await shop.call("upload", {"title": "T", "manual": {"name": "x"}})
    with pytest.raises(Failure, match="manual: This is not base64"):
        await shop.call("upload", {"title": "T", "manual": {"base64": "%%"}})


async def test_binary_answers_are_images_and_blobs(shop: Client) -> None:
    assert (await shop.call("picture")).content == (Image.of(PIXEL, "image/png"),)
    (block,) = (await shop.call("archive")).content
    assert isinstance(block, EmbeddedResource)
    assert isinstance(block.resource, BlobContents)
    assert (block.resource.raw, block.resource.mime_type) == (b"\0\0\0\0", "application/zip")
    with pytest.raises(Failure, match="more than 4194304 bytes. Ask for less"):
        await shop.call("archive", {"size": 5_000_000})


async def test_errors_say_what_happened(shop: Client, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Failure) as missing:
        await shop.call("get_item", {"id": 9})
    assert missing.value.message == (
        'GET /items/{id} answered 404 Not Found.\n{"detail":"There is no item 9."}'
    )
    assert missing.value.data["http_status"] == 404
    with pytest.raises(Failure, match="answered 422 Unprocessable.*\n.*int_parsing"):
        await shop.call("list_items", {"page": "x"})
    with pytest.raises(Failure, match="429 Too Many Requests. Try again after 7 seconds.\n"):
        await shop.call("fail", {"status": 429})
    with pytest.raises(Failure) as page:
        await shop.call("fail", {"status": 502, "kind": "html"})
    assert page.value.message == "GET /fail answered 502 Bad Gateway. The API failed. Try again later."
    with (
        caplog.at_level(logging.CRITICAL, "antiphon"),
        pytest.raises(Failure, match="500 Internal") as broken,
    ):
        await shop.call("breaks")
    assert "secret" not in broken.value.message
    with pytest.raises(Failure) as wrong:
        await shop.call("put_item", {"id": 1, "nme": "x"})
    assert wrong.value.message == (
        "Invalid arguments for the tool 'put_item':\n- id_body: This argument is required\n"
        "- name: This argument is required\n- nme: There is no such argument"
    )


async def test_a_value_stays_in_its_place_in_the_path(shop: Client) -> None:
    for name in ("..", ".", "a/../b", "..\\x", "", "a\nb", "../../admin"):
        with pytest.raises(Failure, match="A value in the path cannot"):
            await shop.call("get_file", {"folder": "f", "name": name})
    for name in ("a?b=c#d", "a b%2e%2e;é", "...", "{folder}"):
        got = await shop.call("get_file", {"folder": "f", "name": name})
        assert (got.data["folder"], got.data["name"]) == ("f", name)
        assert got.data["raw"].count("/") == 3
    for name in ("a/b", "a\\b", "a%2Fb", "a%255cb"):  # some servers decode it twice
        with pytest.raises(Failure, match="name: A value in the path cannot contain a slash"):
            await shop.call("get_file", {"folder": "f", "name": name})
    for item in ("1/everything", "x", True, "1.5", [1, 2], None):
        with pytest.raises(Failure, match="- id: "):
            await shop.call("delete_item", {"id": item})
    assert (await shop.call("get_item", {"id": "1"})).data["name"] == "Chair"


def make_vault() -> FastAPI:
    """An app with operations next to others that a server does not offer."""
    app, files = FastAPI(title="Vault"), APIRouter(prefix="/files")

    @app.get("/users/admin", tags=["admin"])
    async def admin() -> str:
        return "SECRET"

    @app.get("/users/{name}")
    async def get_user(name: str) -> str:
        return name

    @app.get("/users/{name}/secrets", tags=["admin"])
    async def secrets(name: str) -> str:
        return "SECRET"

    @app.get("/kinds/{kind}/{flag}")
    async def get_kind(kind: Literal["a", "b"], flag: bool) -> str:
        return f"{kind} {flag}"

    @files.get("/{name}/secrets", tags=["admin"])
    async def file_secrets(name: str) -> str:
        return "SECRET"

    @files.get("/{path:path}")
    async def get_file(path: str) -> str:
        return path

    app.include_router(files, prefix="/v1")
    return app


@pytest.mark.parametrize("way", ["app", "socket"])
async def test_a_value_does_not_reach_an_operation_that_is_left_out(way: str) -> None:
    app, options = make_vault(), {"exclude": {"tags": ["admin"]}}
    async with AsyncExitStack() as stack:
        if way == "app":
            server = Server.from_fastapi(app, **options)
        else:
            url = f"http://127.0.0.1:{(await stack.enter_async_context(serving(app))).port}"
            server = Server.from_openapi(app.openapi(), base_url=url, multi_segment={"path"}, **options)
        client = await stack.enter_async_context(Client(server))
        assert (await client.call("get_user", name="bob")).data == "bob"
        assert (await client.call("get_file", path="a/b.txt")).data == "a/b.txt"
        assert (await client.call("get_kind", kind="a", flag=True)).data == "a True"
        for tool, arguments, reason in (
            ("get_user", {"name": "bob/secrets"}, "cannot contain a slash"),
            ("get_user", {"name": "bob%2fsecrets"}, "cannot contain a slash"),
            ("get_user", {"name": "admin"}, "they make the path of another operation"),
            ("get_file", {"path": "a/secrets"}, "they make the path of another operation"),
            ("get_file", {"path": "a/../../users/admin"}, "'..' as a part"),
            ("get_kind", {"kind": "c", "flag": True}, "kind: The value has to be one of a, b"),
            ("get_kind", {"kind": "a", "flag": "yes"}, "flag: The value has to be of the type boolean"),
        ):
            with pytest.raises(Failure, match=reason):
                await client.call(tool, arguments)


def test_a_parameter_of_several_segments_has_to_exist() -> None:
    with pytest.raises(DefinitionError, match="no path of the document has a parameter 'pth'"):
        Server.from_fastapi(SHOP, multi_segment={"pth"})
    with pytest.raises(DefinitionError, match="pass the names of path parameters"):
        Server.from_fastapi(SHOP, multi_segment="path")


async def test_headers_and_cookies_are_checked(shop: Client) -> None:
    sent = await shop.call("show_headers", {"x-trace": "t 1", "flavour": "a;b"})
    assert sent.data == {"trace": "t 1", "key": None, "flavour": "a%3Bb"}
    for bad in ("a\r\nX-Key: b", "ü"):
        with pytest.raises(Failure, match="x-trace: The value of a header is one line of ASCII"):
            await shop.call("show_headers", {"x-trace": bad})


@pytest.mark.parametrize("way", ["app", "socket", "httpx2"])
async def test_redirects_stay_at_the_origin(way: str) -> None:
    async with connected(way, headers={"Authorization": "Bearer s3cret-token"}) as client:
        assert (await client.call("moved", {"to": "/items/1"})).data["name"] == "Chair"
        away = await client.call("moved", {"to": "http://127.0.0.2:9/x?a=b"})
        assert away.text == (
            "GET /moved answered 307 Temporary Redirect. It leads to http://127.0.0.2:9/x?a=b"
        )
        with pytest.raises(Failure, match="where it leads is not a web address|Invalid URL in loc"):
            await client.call("moved", {"to": "http://[::1"})
        with pytest.raises(Failure, match="redirected the request 5 times"):
            await client.call("moved", {"to": "?to=%3F"})


@pytest.mark.parametrize("way", ["app", "socket", "httpx2"])
async def test_the_headers_of_the_author_win_and_are_in_no_message(way: str) -> None:
    headers = {"Authorization": "Bearer s3cret-token", "X-Key": "k-e-y"}
    async with connected(way, headers=headers) as client:
        tools = {tool.name: tool for tool in await client.tools()}
        assert set(tools["show_headers"].input_schema["properties"]) == {"x-trace", "flavour"}
        assert (await client.call("show_headers", {})).data["key"] == "k-e-y"
        assert SHOP.state.headers["authorization"] == "Bearer s3cret-token"
        with pytest.raises(Failure, match=r'answered 403 Forbidden(.|\n)*"got": "\*\*\*"') as failed:
            await client.call("fail", {"status": 403})
        assert "s3cret" not in failed.value.message


async def test_headers_for_each_caller_come_from_a_function() -> None:
    async def headers(ctx: Context) -> dict[str, str]:
        return {"Authorization": f"Bearer of-{ctx.principal.id}"}

    async with connected("app", headers=headers) as client:
        await client.call("show_headers", {})
        assert SHOP.state.headers["authorization"] == "Bearer of-"
    async with connected("app") as client:  # the credentials of a caller are not passed on
        await client.call("show_headers", {})
        assert "authorization" not in SHOP.state.headers


async def test_the_lifespan_of_the_app_runs_with_the_server() -> None:
    async with connected("app"):
        assert SHOP.state.life == "open"
    assert SHOP.state.life == "closed"
    async with connected("app", app_lifespan=False):
        assert SHOP.state.life == "closed"


async def test_an_app_can_mount_the_server_of_its_own_operations() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with server.running():
            yield

    app = FastAPI(title="Both", lifespan=lifespan)

    @app.get("/hello")
    async def hello() -> str:
        return "Hello!"

    server = Server.from_fastapi(app, app_lifespan=False)
    app.mount("/", server.asgi())
    async with serving(app) as address, Client(address.url) as client:
        assert (await client.call("hello")).data == "Hello!"


async def test_background_tasks_of_the_app_go_on_after_the_answer() -> None:
    app, done, may_end = FastAPI(), asyncio.Event(), asyncio.Event()

    @app.post("/work")
    async def work(tasks: BackgroundTasks) -> None:
        async def go_on() -> None:
            await may_end.wait()
            done.set()

        tasks.add_task(go_on)

    async with Client(Server.from_fastapi(app)) as client:
        await client.call("work")
        assert not done.is_set()
        may_end.set()
        async with asyncio.timeout(60):
            await done.wait()


async def test_a_server_for_an_app_can_be_mounted_in_another() -> None:
    outer = Server("outer")
    outer.mount("shop", Server.from_fastapi(SHOP, include={"paths": ["/items/*"]}))
    async with Client(outer) as client:
        assert (await client.call("shop_get_item", {"id": 1})).data["name"] == "Chair"


async def test_large_results_are_artifacts() -> None:
    async with connected("app", artifact_over=50) as client:
        stored = await client.call("get_item", {"id": 1})
        (contents,) = (await client.read(f"artifact://Shop/{stored.data['artifact_id']}")).contents
        assert json.loads(contents.text)["name"] == "Chair"


async def test_results_fit_their_schemas(shop: Client) -> None:
    schemas = {tool.name: tool.output_schema for tool in await shop.tools()}
    for name, arguments in (("get_item", {"id": 1}), ("list_items", {}), ("list_items", {"page": 3})):
        jsonschema.validate((await shop.call(name, arguments)).data, schemas[name])


async def test_a_failing_lifespan_keeps_the_server_from_starting() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="The lifespan of the app failed at startup: .*no database"):
        async with Client(Server.from_fastapi(FastAPI(lifespan=lifespan))):
            pass


async def test_operations_as_resources_and_tasks() -> None:
    options = {
        "resources": {"methods": ["get"], "paths": ["/items*", "/picture"]},
        "tasks": {"operation_ids": ["archive*"]},
    }
    async with connected("app", **options) as client:
        templates = [template.uri_template for template in await client.templates()]
        assert templates == ["api://shop/items{?page}", "api://shop/items/{id}"]
        assert [resource.uri for resource in await client.resources()] == ["api://shop/picture"]
        assert "get_item" not in [tool.name for tool in await client.tools()]
        (item,) = (await client.read("api://shop/items/1")).contents
        assert (item.mime_type, json.loads(item.text)["name"]) == ("application/json", "Chair")
        (page,) = (await client.read("api://shop/items?page=3")).contents
        assert json.loads(page.text)[0]["name"] == "Item 3"
        (picture,) = (await client.read("api://shop/picture")).contents
        assert (picture.raw, picture.mime_type) == (PIXEL, "image/png")
        with pytest.raises(InvalidParams, match="Resource not found"):
            await client.read("api://shop/items/9")
        with pytest.raises(InvalidParams, match="Resource not found"):
            await client.read("api://shop/items/..%2Fadmin")
        handle = await client.submit("archive", {"size": 2})
        assert isinstance(handle, TaskHandle)
        assert len((await handle.result()).content) == 1


async def test_an_api_that_cannot_be_reached_or_takes_too_long() -> None:
    server = Server.from_openapi(SHOP.openapi(), base_url="http://u:p4ssword@127.0.0.1:9/v1", timeout=5)
    async with Client(server) as client:
        with pytest.raises(
            Failure, match=r"^The API at http://\*\*\*@127.0.0.1:9/v1 cannot be reached"
        ) as read:
            await client.call("get_item", {"id": 1})
        assert "unknown" not in read.value.message
        with pytest.raises(Failure, match="It is unknown whether the request took effect. Try again later"):
            await client.call("log_in", {"user": "a"})

    hanging = FastAPI()

    @hanging.get("/wait")
    async def wait() -> None:
        await asyncio.Event().wait()

    async with Client(Server.from_fastapi(hanging, timeout=0.05)) as client:
        with pytest.raises(Failure, match="did not answer within 0.05 seconds. Try again later"):
            await client.call("wait")


def test_something_else_than_an_app_is_refused() -> None:
    with pytest.raises(DefinitionError, match="a dict is not a FastAPI app"):
        Server.from_fastapi({})


async def test_the_tags_of_a_document_enable_and_disable_operations() -> None:
    app = FastAPI()

    @app.get("/open")
    async def for_all() -> str:
        return "open"

    @app.get("/secret", tags=["admin", "internal"])
    async def for_admins() -> str:
        return "secret"

    server = Server.from_fastapi(app)
    (tool,) = [each for each in server.tools if "admins" in each]
    resources = Server.from_fastapi(app, resources={"methods": ["GET"]})
    server.disable(tags={"admin"})
    resources.disable(tags={"internal"})
    async with Client(server) as client, Client(resources) as reader:
        assert tool not in [each.name for each in await client.tools()]
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call(tool)
        assert [each.uri.rpartition("/")[2] for each in await reader.resources()] == ["open"]
        server.enable(tags={"admin"})
        assert (await client.call(tool)).data == "secret"
