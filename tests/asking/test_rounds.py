"""Questions through the client carrier, on both versions with multi round-trip requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from antiphon import Context, Declined, Elicit, InputRequired, Server
from tests.asking.driving import EVERYTHING, Able, accept, drive, once
from tests.support.polling import turns
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Speaker

unwound: list[str] = []
steps: list[str] = []


class Name(BaseModel):
    name: str


class Order(BaseModel):
    size: Literal["small", "large"] = "small"
    count: int = Field(default=1, ge=1, le=9)
    note: str | None = None


def work(what: str) -> str:
    steps.append(what)
    return what


def make() -> Server:
    server = Server("rounds", secrets=["a secret of these tests"])

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {(await ctx.elicit('Name?', Name, key='name')).name}!"

    @server.tool
    def greet_from_a_thread(ctx: Context) -> str:
        try:
            return f"Hello, {ctx.wait(ctx.elicit('Name?', Name, key='name')).name}!"
        finally:
            unwound.append(f"thread suspending={ctx.suspending}")

    @server.tool
    async def order(ctx: Context) -> str:
        return str(await ctx.elicit("What would you like?", Order, key="order"))

    @server.tool
    async def everything(ctx: Context) -> str:
        name, said, roots, _ = await asyncio.gather(
            ctx.elicit("Name?", Name, key="name"),
            ctx.sample("Say something", key="said"),
            ctx.roots(key="roots"),
            ctx.elicit("Log in", url="https://example.com/login", key="login"),
        )
        return f"{name.name}: {said.text} in {roots[0].uri}"

    @server.tool
    async def step_beside_a_question(ctx: Context) -> str:
        name, done = await asyncio.gather(
            ctx.elicit("Name?", Name, key="name"), ctx.step(slow_work, "beside")
        )
        return f"{name.name} {done}"

    @server.tool
    async def cleans_up(ctx: Context) -> str:
        try:
            name = await ctx.elicit("Name?", Name, key="name")
        except Exception as error:  # a pause is not an error
            unwound.append(f"error {error!r}")
            raise
        finally:
            unwound.append(f"suspending={ctx.suspending}")
        return name.name

    @server.tool
    async def persuades(ctx: Context) -> str:
        try:
            await ctx.elicit("Please?", Name, key="please")
        except Declined as declined:
            return f"so be it: {declined.action}"
        return "thanks"

    @server.tool
    async def two_in_a_row(ctx: Context) -> str:
        first = await ctx.elicit("First?", Name, key="first")
        return f"{first.name} {(await ctx.elicit('Second?', Name, key='second')).name}"

    @server.tool
    async def twice_the_same(ctx: Context) -> str:
        return " ".join([(await ctx.elicit("Name?", Name)).name for _ in range(2)])

    @server.tool
    async def explicit(ctx: Context) -> str | InputRequired:
        count = (ctx.state or {"count": 0})["count"]
        if count == 2:
            return f"{count} rounds, last {ctx.input_responses['n']['content']['x']}"
        schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
        return InputRequired({"n": Elicit("x?", schema)}, state={"count": count + 1})

    @server.tool
    async def same_in_every_round(ctx: Context) -> str:
        before = (ctx.now().isoformat(), ctx.random(), str(ctx.uuid()), str(ctx.uuid()))
        seen.append(before)
        await ctx.elicit("Name?", Name, key="name")
        return "same"

    @server.tool
    async def prepares(how: str, ctx: Context) -> str:
        match how:
            case "a step":
                await ctx.step(work, "prepared")
            case "a step that fails":
                with suppress(ConnectionError):
                    await ctx.step(break_off)
            case "the time":
                ctx.now()
            case "chance":
                ctx.random()
            case "an id":
                ctx.uuid()
            case "progress":
                await ctx.progress(1)
            case "output":
                await ctx.emit("prepared")
            case "two of a name":
                names = (ctx.elicit("Name?", Name, key="name") for _ in range(2))
                await asyncio.gather(*names)
        return (await ctx.elicit("Name?", Name, key="name")).name

    @server.tool
    async def explicit_without_state(ctx: Context) -> str | InputRequired:
        if "n" in ctx.input_responses:
            return str(ctx.input_responses["n"]["content"]["x"])
        return InputRequired({"n": Elicit("x?", {"type": "object", "properties": {"x": {"type": "string"}}})})

    @server.prompt
    async def story(hero: str, ctx: Context) -> str:
        villain = await ctx.elicit("Villain?", Name, key="villain")
        return f"{hero} against {villain.name}"

    @server.resource("story://{hero}")
    async def told(hero: str, ctx: Context) -> str:
        return f"{hero} against {(await ctx.elicit('Villain?', Name, key='villain')).name}"

    return server


seen: list[Any] = []


def break_off() -> None:
    raise ConnectionError


async def slow_work(what: str) -> str:
    await turns(20)
    steps.append(what)
    return what


@pytest.fixture(params=[Able, Bare])
async def speaker(request: pytest.FixtureRequest) -> AsyncIterator[Speaker]:
    for noted in (unwound, steps, seen):
        noted.clear()
    async with serving(make()) as address:
        yield request.param(address.port)


async def test_a_question_ends_the_call_and_the_answer_completes_it(speaker: Speaker) -> None:
    first = (await once(speaker, "greet"))["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"] == {
        "name": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        }
    }
    assert "requestState" not in first  # there is nothing to carry yet
    last = (await once(speaker, "greet", answers={"name": accept(name="Ada")}, id=2))["result"]
    assert last["resultType"] == "complete"
    assert last["content"][0]["text"] == "Hello, Ada!"


@pytest.mark.parametrize(
    "how",
    [
        "a step",
        "a step that fails",
        "the time",
        "chance",
        "an id",
        "progress",
        "output",
        "two of a name",
    ],
)
async def test_what_the_function_did_before_its_question_is_in_a_state(how: str) -> None:
    async with serving(make()) as address:
        params: dict[str, Any] = {"name": "prepares", "arguments": {"how": how}, "stream": {}}
        params["_meta"] = {"progressToken": 1}
        response = await Bare(address.port).ask("tools/call", params)
    assert response.frame["result"]["resultType"] == "input_required"
    assert response.frame["result"]["requestState"]


@pytest.mark.parametrize(
    ("tool", "keys"),
    [
        ("greet", ["name"]),
        ("greet_from_a_thread", ["name"]),
        ("everything", ["login", "name", "roots", "said"]),
        ("explicit_without_state", ["n"]),
    ],
)
async def test_a_first_question_has_no_state_if_nothing_was_done_before_it(
    speaker: Speaker, tool: str, keys: list[str]
) -> None:
    first = (await once(speaker, tool))["result"]
    assert first.keys() - {"_meta"} == {"inputRequests", "resultType"}
    assert sorted(first["inputRequests"]) == keys


async def test_the_second_question_has_the_first_answer_in_a_state(speaker: Speaker) -> None:
    answers = {"first": accept(name="Ada")}
    second = (await once(speaker, "two_in_a_row", answers=answers))["result"]
    assert second["requestState"]
    answers = {"second": accept(name="Bob")}
    last = (await once(speaker, "two_in_a_row", answers=answers, state=second["requestState"]))["result"]
    assert last["content"][0]["text"] == "Ada Bob"


async def test_a_function_in_a_thread_asks_too_and_is_unwound(speaker: Speaker) -> None:
    result, asked = await drive(speaker, "greet_from_a_thread", None, {"name": accept(name="Ada")})
    assert (result["content"][0]["text"], asked) == ("Hello, Ada!", [["name"]])
    assert unwound == ["thread suspending=True", "thread suspending=False"]


async def test_defaults_and_choices_are_in_the_form_and_an_unfitting_answer_is_asked_for_again(
    speaker: Speaker,
) -> None:
    first = (await once(speaker, "order"))["result"]
    fields = first["inputRequests"]["order"]["params"]["requestedSchema"]["properties"]
    assert fields == {
        "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
        "count": {"type": "integer", "default": 1, "minimum": 1, "maximum": 9},
        "note": {"type": "string"},
    }
    for wrong in ({"count": 0}, {"size": "huge"}, {"count": "two"}):
        again = (await once(speaker, "order", answers={"order": accept(**wrong)}))["result"]
        assert list(again["inputRequests"]) == ["order"], wrong
        message = again["inputRequests"]["order"]["params"]["message"]
        assert message.startswith("What would you like?\n\nThe last answer does not fit: ")
        assert next(iter(wrong)) in message
    last = (await once(speaker, "order", answers={"order": accept(count=2)}))["result"]
    assert last["content"][0]["text"] == "size='small' count=2 note=None"


async def test_questions_of_one_moment_go_out_in_one_round(speaker: Speaker) -> None:
    answers = {
        "name": accept(name="Ada"),
        "said": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
        "roots": {"roots": [{"uri": "file:///home"}]},
        "login": {"action": "accept"},
    }
    result, asked = await drive(speaker, "everything", None, answers)
    assert [sorted(keys) for keys in asked] == [["login", "name", "roots", "said"]]
    assert result["content"][0]["text"] == "Ada: hi in file:///home"


async def test_answers_may_come_one_by_one(speaker: Speaker) -> None:
    first = await once(speaker, "everything", answers={"name": accept(name="Ada")})
    rest = first["result"]["inputRequests"]
    assert sorted(rest) == ["login", "roots", "said"]
    again = await once(
        speaker, "everything", answers={"login": {"action": "accept"}}, state=first["result"]["requestState"]
    )
    assert sorted(again["result"]["inputRequests"]) == ["roots", "said"]


async def test_an_answer_that_comes_too_early_does_not_rename_its_question(speaker: Speaker) -> None:
    early = {"second": accept(name=7)}
    first = (await once(speaker, "two_in_a_row", answers=early))["result"]
    assert list(first["inputRequests"]) == ["first"]
    answers, state = {"first": accept(name="Ada")}, first.get("requestState")
    second = (await once(speaker, "two_in_a_row", answers=answers, state=state))["result"]
    assert list(second["inputRequests"]) == ["second"]
    answers, state = {"second": accept(name=8)}, second.get("requestState")
    again = (await once(speaker, "two_in_a_row", answers=answers, state=state))["result"]
    assert list(again["inputRequests"]) == ["second"]
    answers, state = {"second": accept(name="Bob")}, again.get("requestState")
    last = (await once(speaker, "two_in_a_row", answers=answers, state=state))["result"]
    assert last["content"][0]["text"] == "Ada Bob"


async def test_a_step_that_runs_beside_a_question_is_finished_before_the_call_ends(speaker: Speaker) -> None:
    result, asked = await drive(speaker, "step_beside_a_question", None, {"name": accept(name="Ada")})
    assert (result["content"][0]["text"], asked, steps) == ("Ada beside", [["name"]], ["beside"])


async def test_stopping_unwinds_like_a_cancellation(speaker: Speaker) -> None:
    await drive(speaker, "cleans_up", None, {"name": accept(name="Ada")})
    assert unwound == ["suspending=True", "suspending=False"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_reaches_the_function_or_fails_the_call(speaker: Speaker, action: str) -> None:
    taken, _ = await drive(speaker, "persuades", None, {"please": {"action": action}})
    assert taken["content"][0]["text"] == f"so be it: {action}"
    left, _ = await drive(speaker, "greet", None, {"name": {"action": action}})
    assert left["isError"] is True
    assert "Name?" in left["content"][0]["text"]


async def test_the_same_question_twice_has_two_keys(speaker: Speaker) -> None:
    first = (await once(speaker, "twice_the_same"))["result"]
    (key,) = first["inputRequests"]
    second = (await once(speaker, "twice_the_same", answers={key: accept(name="a")}))["result"]
    assert list(second["inputRequests"]) == [f"{key}#2"]
    last = await once(
        speaker, "twice_the_same", answers={f"{key}#2": accept(name="b")}, state=second["requestState"]
    )
    assert last["result"]["content"][0]["text"] == "a b"


async def test_the_explicit_style_gets_its_state_and_the_responses(speaker: Speaker) -> None:
    result, asked = await drive(speaker, "explicit", None, {"n": accept(x="y")})
    assert (result["content"][0]["text"], asked) == ("2 rounds, last y", [["n"], ["n"]])


async def test_time_and_chance_are_the_same_in_every_round(speaker: Speaker) -> None:
    await drive(speaker, "same_in_every_round", None, {"name": accept(name="Ada")})
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0][2] != seen[0][3]


async def test_prompts_and_resources_ask_too(speaker: Speaker) -> None:
    for method, params in (
        ("prompts/get", {"name": "story", "arguments": {"hero": "Ada"}}),
        ("resources/read", {"uri": "story://Ada"}),
    ):
        first = (await speaker.ask(method, params)).result
        assert list(first["inputRequests"]) == ["villain"]
        assert "ttlMs" not in first
        last = (
            await speaker.ask(method, {**params, "inputResponses": {"villain": accept(name="Bob")}})
        ).result
        assert "Ada against Bob" in str(last)


@pytest.mark.parametrize(
    "responses",
    [None, [], "x", {"name": 5}, {"name": []}, {"name": "Ada"}, {"name": None}, {"name": {"content": {}}}],
)
async def test_malformed_responses_are_invalid_params(speaker: Speaker, responses: Any) -> None:
    frame = (await speaker.ask("tools/call", {"name": "greet", "inputResponses": responses})).frame
    assert frame["error"]["code"] == -32602


NOT_ASKED = [accept(x=1), "text", None, 5, True, ["list"]]


@pytest.mark.parametrize("other", NOT_ASKED)
async def test_unknown_keys_are_ignored(speaker: Speaker, other: Any) -> None:
    frame = await once(speaker, "greet", answers={"other": other, "name": accept(name="Ada")})
    assert frame["result"]["content"][0]["text"] == "Hello, Ada!"
    again = await once(speaker, "greet", answers={"other": other})
    assert list(again["result"]["inputRequests"]) == ["name"]


@pytest.mark.parametrize("other", NOT_ASKED[1:])
async def test_what_is_no_response_is_not_kept_for_a_later_question(speaker: Speaker, other: Any) -> None:
    first = (await once(speaker, "two_in_a_row", answers={"second": other}))["result"]
    assert first.keys() - {"_meta"} == {"inputRequests", "resultType"}


@pytest.mark.parametrize("other", NOT_ASKED[1:])
async def test_the_explicit_style_sees_responses_only(speaker: Speaker, other: Any) -> None:
    asked = (await once(speaker, "explicit_without_state", answers={"n": other}))["result"]
    assert list(asked["inputRequests"]) == ["n"]


async def test_a_question_that_the_client_cannot_answer_is_never_asked() -> None:
    class Unable(Modern):
        capabilities = {key: EVERYTHING[key] for key in ("sampling", "roots")}

    async with serving(make()) as address:
        response = await Unable(address.port).call("greet")
        assert response.status == 400
        assert response.error["code"] == -32021
        assert response.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
