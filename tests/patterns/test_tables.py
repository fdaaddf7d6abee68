"""The reference tables of seed 003, row by row, and its tools as `examples/seeds.py` has them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import DIALECTS, plainly
from tests.support.process import ROOT
from tests.support.serving import Address
from tests.support.speakers import Speaker

# | Field | Type | Purpose |
FIELDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "content": ("rich", lambda value: isinstance(value, list) and all("type" in block for block in value)),
    "structuredContent": ("rich", lambda value: value["topic"] == "bees"),
    "isError": ("rich", lambda value: value is False),
    "_meta": ("create", lambda value: value["ui_uri"].endswith(value["artifact_id"])),
}

# | Content Type | Use For |
CONTENT: Mapping[str, set[str]] = {"text": {"type", "text"}, "image": {"type", "data", "mimeType"}}

# | Error Type | Use For |. An unknown tool is -32602 in every version of the protocol; see test_failing.
ERRORS: Mapping[str, int] = {
    "params": -32602,  # McpError::invalid_params()
    "request": -32600,  # McpError::invalid_request()
    "internal": -32603,  # McpError::internal_error()
    "method": -32601,  # McpError::method_not_found()
}

# | Scenario | Include structured_content? |
SCENARIOS: Mapping[str, tuple[str, set[str]]] = {
    "Tool creates an artifact": ("create", {"x-artifact-type", "artifact_id", "status"}),
    "Tool returns data clients parse": ("model", {"topic", "sources"}),
    "Tool performs action with no data": ("text", set()),
    "Error response": ("partial", {"status", "error", "partial_results"}),
}


@pytest.mark.parametrize("field", FIELDS)
async def test_the_fields_of_a_result(client: Speaker, field: str) -> None:
    tool, holds = FIELDS[field]
    assert holds((await client.call(tool)).result[field])


@pytest.mark.parametrize("kind", CONTENT)
async def test_the_types_of_content(client: Speaker, kind: str) -> None:
    content = (await client.call("media")).result["content"]
    found = [set(block) for block in content if block["type"] == kind]
    assert found
    assert all(keys == CONTENT[kind] for keys in found)


@pytest.mark.parametrize("error", ERRORS)
async def test_the_types_of_errors(client: Speaker, error: str) -> None:
    assert (await client.call("refuse", error=error)).error["code"] == ERRORS[error]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_when_there_is_structured_content(client: Speaker, scenario: str) -> None:
    tool, keys = SCENARIOS[scenario]
    assert set((await client.call(tool)).result.get("structuredContent", {})) == keys


# The tools of the seed


@pytest.fixture(scope="module")
def seeds() -> Iterator[Address]:
    """`examples/seeds.py`, served."""
    spec = importlib.util.spec_from_file_location("seeds_of_patterns", ROOT / "examples" / "seeds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where annotations are looked up
    spec.loader.exec_module(module)
    with in_a_thread(module.server) as address:
        yield address


@pytest.fixture(params=DIALECTS)
async def author(request: pytest.FixtureRequest, seeds: Address) -> Speaker:
    """A client of the example in each dialect."""
    return await plainly(request.param, seeds.port)


async def test_a_post_is_written_from_research(author: Speaker) -> None:
    found = (await author.call("research_blog", topic="bees")).result
    data = found["structuredContent"]
    id = data["artifact_id"]
    assert found["content"][0]["text"].startswith(
        "## Research Complete\n\n**Topic:** bees\n\nFound 5 sources."
    )
    assert f"**Artifact ID:** `{id}`" in found["content"][0]["text"]
    assert "**Next step:** Call `create_blog_post` with:" in found["content"][0]["text"]
    assert (data["topic"], data["source_count"], data["status"]) == ("bees", 5, "completed")
    assert (data["query_count"], data["research_summary"]) == (5, "5 places know of bees.")
    assert data["next_step"] == "Call create_blog_post with this artifact_id"
    assert len(data["sources"]) == 5
    assert data["sources"][0] == {
        "title": "bees in an encyclopedia",
        "uri": "https://example.com/1",
        "relevance": 1.0,
    }
    assert found["_meta"]["artifact_id"] == id
    arguments = {"artifact_id": id, "slug": "on-bees", "keywords": ["bees"], "instructions": "Be brief."}
    post = (await author.call("create_blog_post", **arguments)).result
    assert post["content"][0]["text"].startswith(
        "## Blog Post Created\n\n**Title:** Bees\n\n**Slug:** on-bees"
    )
    expected = {"x-artifact-type": "blog_artifact", "title": "Bees", "slug": "on-bees", "status": "completed"}
    assert expected.items() <= post["structuredContent"].items()
    assert post["isError"] is False
    uri = post["content"][-1]["uri"]
    (contents,) = (await author.ask("resources/read", {"uri": uri})).result["contents"]
    assert "# Bees" in contents["text"]


async def test_the_call_that_the_next_step_prints_works_as_it_stands(author: Speaker) -> None:
    found = (await author.call("research_blog", topic="bees")).result
    step = found["content"][0]["text"].partition("**Next step:** Call `create_blog_post` with:\n")[2]
    printed = dict(re.findall(r"^- `(\w+)`: (.+)$", step, re.MULTILINE))
    assert printed == {
        "artifact_id": f"`{found['structuredContent']['artifact_id']}`",
        "skill_id": "`blog_writing` or `technical_content_writing`",
        "slug": "your-post-slug",
        "description": "SEO description",
        "keywords": '["keyword1", "keyword2"]',
        "instructions": "specific writing instructions",
    }
    given = {
        **printed,
        "artifact_id": printed["artifact_id"].strip("`"),
        "skill_id": "blog_writing",
        "keywords": json.loads(printed["keywords"]),
    }
    post = (await author.call("create_blog_post", **given)).result
    assert post["isError"] is False
    assert post["structuredContent"]["slug"] == "your-post-slug"
    uri = post["content"][-1]["uri"]
    (contents,) = (await author.ask("resources/read", {"uri": uri})).result["contents"]
    written = json.loads(contents["text"])
    assert written["description"] == "SEO description"
    assert written["keywords"] == ["keyword1", "keyword2"]
    assert written["word_count"] == post["structuredContent"]["word_count"]


async def test_a_post_without_research_is_not_written(author: Speaker) -> None:
    answer = await author.call("create_blog_post", artifact_id="none", slug="x")
    assert answer.result["isError"] is True
    assert "Call the tool that creates it again" in answer.text
    refused = await author.call("research_blog", topic="x", skill_id="other")
    assert refused.error == {"code": -32602, "message": "skill_id must be 'research_blog', got 'other'"}
    failed = (await author.call("research_blog", topic=" ")).result
    assert failed["structuredContent"] == {
        "status": "error",
        "error": "there is no topic",
        "partial_results": [],
    }


async def test_a_command_fails_as_the_seed_shows(author: Speaker) -> None:
    done = (await author.call("run_command", command="expr", arguments=["1", "+", "1"])).result
    assert (done["isError"], done["structuredContent"]["status"]) == (False, "completed")
    failed = (await author.call("run_command", command="expr", arguments=["1", "/", "0"])).result
    data = failed["structuredContent"]
    assert failed["isError"] is True
    assert data.keys() == {"status", "exit_code", "stderr"}
    assert (data["status"], data["exit_code"]) == ("error", 2)
    assert "expr: division by zero" in data["stderr"]
    assert failed["content"] == [
        {"type": "text", "text": f"Command failed (exit code 2):\n\n```\n{data['stderr']}\n```"}
    ]
