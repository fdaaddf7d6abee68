"""GitHub's OpenAPI document, as a real one of the usual size: names, schemas, filters, and calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from aiohttp import web

from antiphon import Client, Failure, Server
from antiphon.openapi import Operation
from antiphon.openapi.schemas import SchemaConverter
from antiphon.runtime.authoring.tool import Tool
from tests.support.process import ROOT
from tests.support.sizes import size
from tests.support.web import answering

DOCUMENT = ROOT / ".node/node_modules/@octokit/openapi/generated/api.github.com.json"
PLACE = {"owner": "octo", "repo": "hello"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = msgspec.json.decode(DOCUMENT.read_bytes())
    return loaded


def converted(document: dict[str, Any], **options: Any) -> tuple[dict[str, Tool], int]:
    """The tools of a server for a document, and how many schemas were converted for it."""
    count = 0
    convert = SchemaConverter.convert_part

    def counting(self: SchemaConverter, schema: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        return convert(self, schema, depth)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchemaConverter, "convert_part", counting)
        return Server.from_openapi(document, **options).engine.registry.tools, count


@pytest.fixture(scope="module")
def loaded(document: dict[str, Any]) -> tuple[dict[str, Tool], int]:
    return converted(document)


@pytest.fixture(scope="module")
def everything(loaded: tuple[dict[str, Tool], int]) -> dict[str, Tool]:
    return loaded[0]


def test_every_operation_has_a_short_name_of_its_own(
    everything: dict[str, Tool], document: dict[str, Any]
) -> None:
    operations = [each for item in document["paths"].values() for each in item.values()]
    assert len(everything) == len(operations) > 1000
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,59}", name) for name in everything)
    assert "issues_list-for-repo" in everything
    assert "repos_get-content" in everything
    assert all(tool.definition.description for tool in everything.values())


@pytest.mark.long
def test_schemas_are_valid_and_complete(everything: dict[str, Tool]) -> None:
    check = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    tools = list(everything.values())
    checked: set[int] = set()
    for tool in tools[:: size(30, long=1)]:
        for schema in filter(None, (tool.definition.input_schema, tool.definition.output_schema)):
            assert schema["type"] == "object"
            definitions = schema.get("$defs", {})
            for part in (*definitions.values(), {**schema, "$defs": {}}):
                if id(part) not in checked:
                    check.validate(part)
                    checked.add(id(part))
    for tool in tools:
        for schema in filter(None, (tool.definition.input_schema, tool.definition.output_schema)):
            text = msgspec.json.encode(schema).decode()
            found = {*re.findall(r'"\$ref":"#/\$defs/([^"]*)"', text)}
            assert found == set(schema.get("$defs", {})), tool.name
            assert text.count('"$ref"') == len(re.findall(r'"\$ref":"#/\$defs/', text))


def test_the_work_is_in_proportion_to_the_operations_that_are_chosen(
    document: dict[str, Any], loaded: tuple[dict[str, Tool], int]
) -> None:
    few, all = converted(document, include={"tags": ["issues"]})[1], loaded[1]
    assert few < all / 5
    assert all < 50_000  # each schema of the document is converted once, and not once for each operation


def test_filters_choose_operations_and_keep_their_names(
    everything: dict[str, Tool], document: dict[str, Any]
) -> None:
    def names(**options: Any) -> set[str]:
        return set(Server.from_openapi(document, **options).tools)

    issues = names(include={"tags": {"issues"}})
    assert 40 < len(issues) < 80
    assert issues < set(everything)
    reading = names(include={"tags": ["issues"], "methods": ["get"]})
    assert reading < issues
    assert reading | names(include={"tags": ["issues"]}, exclude={"methods": ["GET"]}) == issues
    assert names(include=[{"operation_ids": ["meta/*"]}, {"paths": ["/emojis"]}]) == {
        *(name for name in everything if name.startswith("meta_")),
        "emojis_get",
    }

    def is_old(operation: Operation) -> bool:
        return operation.deprecated

    assert 0 < len(names(include=is_old)) < 100
    assert names(include={"paths": ["/emojis"]}, names={"emojis/get": "emojis"}) == {"emojis"}


def test_a_filter_that_fits_nothing_is_a_mistake(document: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"fits no operation of the document. Its tags are: .*, …"):
        Server.from_openapi(document, include={"tags": ["isues"]})
    with pytest.raises(TypeError, match=r"exclude={'paths': \['/admn/\*'\]} fits no operation"):
        Server.from_openapi(document, exclude={"paths": ["/admn/*"]})
    with pytest.raises(TypeError, match="a filter has no key 'tag'. The keys are tags, methods, paths"):
        Server.from_openapi(document, include={"tag": ["issues"]})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="the value of 'tags' is a list"):
        Server.from_openapi(document, include={"tags": "issues"})
    with pytest.raises(TypeError, match="the document has no operationId 'emoji/get'"):
        Server.from_openapi(document, names={"emoji/get": "emojis"})


class GitHub:
    """A stand-in for the API: a list of issues with pages, a file, and a limit of its use."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.seen: list[tuple[str, str | None, str | None]] = []

    async def handle(self, request: web.Request) -> web.Response:
        """Answer as GitHub does."""
        self.seen.append(
            (request.raw_path, request.headers.get("Authorization"), request.headers.get("Accept"))
        )
        if request.path.startswith("/repos/octo/hello/contents"):
            return web.Response(status=302, headers={"Location": "https://raw.example.com/a?token=x"})
        if request.method != "GET":
            return web.json_response({"message": "API rate limit exceeded"}, status=403)
        page = int(request.query.get("page", 1))
        links = [f'<{self.url}/repositories/1/issues?state=all&page={page - 1}>; rel="prev"']
        if page < 3:
            links.append(f'<{self.url}/repositories/1/issues?state=all&page={page + 1}>; rel="next"')
        return web.json_response(
            [{"number": page, "title": f"Issue {page}"}], headers={"Link": ", ".join(links)}
        )


async def test_issues_are_listed_page_by_page() -> None:
    async with answering(GitHub) as github:
        server = Server.from_openapi(
            Path(DOCUMENT),
            base_url=github.url,
            headers={"Authorization": "Bearer ghp_s3cret", "X-GitHub-Api-Version": "2022-11-28"},
            include=[{"tags": ["issues"]}, {"operation_ids": ["repos/get-content"]}],
        )
        async with Client(server) as client:
            assert client.instructions is not None
            assert "`next`" in client.instructions
            arguments: dict[str, Any] = {**PLACE, "state": "all"}
            numbers = []
            while arguments:
                data = (await client.call("issues_list-for-repo", arguments)).data
                numbers += [issue["number"] for issue in data["items"]]
                arguments = {**arguments, **data["next"]} if "next" in data else {}
            assert numbers == [1, 2, 3]
            paths = [path for path, _, _ in github.seen]
            assert paths == [
                f"/repos/octo/hello/issues?state=all{page}" for page in ("", "&page=2", "&page=3")
            ]
            assert {(token, accept) for _, token, accept in github.seen} == {
                ("Bearer ghp_s3cret", "application/json, */*;q=0.5")
            }
            with pytest.raises(Failure, match=r'403 Forbidden(.|\n)*"API rate limit exceeded"'):
                await client.call("issues_create", {**PLACE, "title": "New"})
            with pytest.raises(Failure, match="owner: A value in the path cannot contain a slash"):
                await client.call("issues_list-for-repo", {**PLACE, "owner": "octo/hello"})
            moved = await client.call("repos_get-content", {**PLACE, "path": "src/main.py"})
            assert moved.text.endswith("It leads to https://raw.example.com/a?token=x")
            assert github.seen[-1][0] == "/repos/octo/hello/contents/src%2Fmain.py"
