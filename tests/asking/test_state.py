"""The sealed `requestState`: it opens only for the call that it belongs to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from antiphon import BearerTokens, Context, Limits, Server
from antiphon.errors import InvalidParams
from antiphon.model.identity import Principal
from antiphon.model.outcome import InputRequired
from antiphon.model.request import CallTool
from antiphon.runtime.carriers.client import REFUSAL, ClientCarrier
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.supervisor import Supervised
from tests.asking.driving import Able, accept, once
from tests.support.serving import serving

SECRET = "a secret of these tests"


class Name(BaseModel):
    name: str


def make(secrets: list[str] | None = None, name: str = "states", **options: Any) -> Server:
    server = Server(name, secrets=[SECRET] if secrets is None else secrets, **options)

    @server.tool
    async def ask(ctx: Context, about: str = "x") -> str:
        ctx.uuid()  # so that there is something to carry
        await ctx.elicit(about, Name, key="name")
        await ctx.elicit("And?", Name, key="more")
        return "done"

    @server.tool
    async def other(ctx: Context, about: str = "x") -> str:
        ctx.uuid()
        await ctx.elicit(about, Name, key="name")
        return "done"

    @server.tool
    async def heavy(ctx: Context) -> str:
        await ctx.step(a_lot)
        await ctx.elicit("Name?", Name, key="name")
        return "done"

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


def a_lot() -> str:
    return "".join(chr(33 + (n * n) % 90) for n in range(300_000))


async def state_of(server: Server, headers: dict[str, str] | None = None, **arguments: Any) -> str:
    async with serving(server) as address:
        return str(
            (await once(Able(address.port, headers=headers), "ask", arguments))["result"]["requestState"]
        )


async def tried(
    server: Server, state: str, tool: str = "ask", headers: dict[str, str] | None = None, **arguments: Any
) -> Any:
    async with serving(server) as address:
        speaker = Able(address.port, headers=headers)
        return await once(speaker, tool, arguments, answers={"name": accept(name="Ada")}, state=state)


def refused(frame: Any) -> bool:
    return bool(frame.get("error", {}) == {"code": -32602, "message": REFUSAL})


async def test_a_state_opens_for_its_own_call() -> None:
    frame = await tried(make(), await state_of(make(), about="y"), about="y")
    assert list(frame["result"]["inputRequests"]) == ["more"]


async def test_other_arguments_another_tool_and_another_server_are_refused_with_the_same_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = await state_of(make(), about="y")
    assert refused(await tried(make(), state, about="z"))
    assert refused(await tried(make(), state, tool="other", about="y"))
    assert refused(await tried(make(), state, tool="plain"))
    assert refused(await tried(make(name="another"), state, about="y"))
    assert sum("Cannot open the request state" in record.message for record in caplog.records) == 4


@pytest.mark.parametrize(
    ("sealed", "opened"),
    [
        ({"n": 4522}, {"n": 4522.0}),
        ({"n": 4522.0}, {"n": 4522}),
        ({"a": [1e2, {"b": -0.0}], "c": 1}, {"c": 1.0, "a": [100, {"b": 0}]}),
        ({"big": 1e20}, {"big": 100000000000000000000}),
    ],
)
async def test_a_state_is_bound_to_what_arguments_mean(sealed: Any, opened: Any) -> None:
    state = (
        await _rounds.close(_call(arguments=sealed), Journal({"n": 1, "id": "a"}), InputRequired())
    ).sealed
    assert (await _rounds.open(_call(state, opened))).entries == {"n": 1, "id": "a"}


@pytest.mark.parametrize(
    ("sealed", "opened"),
    [({"n": 1}, {"n": "1"}), ({"n": 1}, {"n": True}), ({"n": 1}, {"n": 1.5}), ({"n": 0}, {"n": None})],
)
async def test_values_that_mean_something_else_do_not_open(sealed: Any, opened: Any) -> None:
    state = (
        await _rounds.close(_call(arguments=sealed), Journal({"n": 1, "id": "a"}), InputRequired())
    ).sealed
    with pytest.raises(InvalidParams):
        await _rounds.open(_call(state, opened))


async def test_a_state_that_was_bound_to_the_spelling_of_numbers_still_opens() -> None:
    """Versions before bound states to the arguments as the client spelled them."""
    spelled = hashlib.sha256(b'["CallTool","t",{"n":4522.0}]').digest()
    state = Seal([SECRET]).seal(
        b"\0" + msgspec.msgpack.encode({"n": 1}),
        use="state",
        bound_to=b"state\0server\0ada\0" + spelled,
        lifetime=60,
    )
    assert (await _rounds.open(_call(state, {"n": 4522.0}))).entries == {"n": 1}
    with pytest.raises(InvalidParams):
        await _rounds.open(_call(state, {"n": 4523.0}))


async def test_answers_that_a_version_does_not_use_are_kept_smallest_first() -> None:
    answers = {
        "large": accept(value="x" * 5000),
        "small": accept(value="s"),
        "middle": accept(value="m" * 2000),
        "another": accept(value="a" * 2500),
    }
    async with serving(make()) as address:
        asked = (await once(Able(address.port), "ask", answers=answers))["result"]
    assert list(asked["inputRequests"]) == ["name"]
    opened = ClientCarrier(Seal([SECRET]), "states", Limits())
    request = CallTool(name="ask", arguments={}, request_state=asked["requestState"])
    call = Call(request, carrier=opened, caller=Caller(), work=Supervised())
    kept = [key for key in (await opened.open(call)).entries if key.startswith("ask:")]
    assert kept == ["ask:small", "ask:middle"]


async def test_a_retired_key_is_refused_and_a_key_of_the_ring_opens() -> None:
    state = await state_of(make())
    assert refused(await tried(make(secrets=["quite another secret"]), state))
    assert "result" in await tried(make(secrets=["quite another secret", SECRET]), state)


async def test_another_user_is_refused() -> None:
    def authenticated() -> Server:
        return make(authenticate=BearerTokens({"one": "ada", "two": "bob"}))

    ada, bob = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    state = await state_of(authenticated(), ada)
    assert "result" in await tried(authenticated(), state, headers=ada)
    assert refused(await tried(authenticated(), state, headers=bob))


async def test_an_expired_state_is_refused() -> None:
    state = await state_of(make(limits=Limits(state_lifetime=0)))
    assert refused(await tried(make(), state))


async def test_a_state_that_is_too_large_is_an_error_that_tells_the_author_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(make(limits=Limits(max_state_bytes=1000))) as address:
        frame = await once(Able(address.port), "heavy")
    assert frame["error"]["code"] == -32603
    assert "Let steps return less" in caplog.text


async def test_a_large_journal_is_packed() -> None:
    async with serving(make()) as address:
        result = (await once(Able(address.port), "heavy"))["result"]
        assert len(result["requestState"]) < 100_000
        last = await once(
            Able(address.port), "heavy", answers={"name": accept(name="x")}, state=result["requestState"]
        )
    assert last["result"]["content"][0]["text"] == "done"


async def test_without_a_secret_a_warning_says_what_that_means(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await state_of(make(secrets=[]))
        await state_of(make(secrets=[]))
    warnings = [record.message for record in caplog.records if "ANTIPHON_SECRETS" in record.message]
    assert len(warnings) == 2  # one for each server, not one for each call


def _call(state: str | None = None, arguments: Any = None) -> Call[CallTool]:
    return Call(
        CallTool(name="t", arguments={"a": 1} if arguments is None else arguments, request_state=state),
        principal=Principal("ada"),
        carrier=ConnectionCarrier(),  # not used: the carrier under test is called by hand
        caller=Caller(),
        work=Supervised(),
    )


_rounds = ClientCarrier(Seal([SECRET]), "server", Limits())


def _opened(state: str) -> Journal:
    return asyncio.run(_rounds.open(_call(state)))


def _closed() -> str:
    journal = Journal({"ask:name": {"action": "accept"}, "id": "a"})
    return asyncio.run(_rounds.close(_call(), journal, InputRequired())).sealed or ""


_sealed = _closed()


@given(st.data())
def test_no_changed_byte_opens(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(_sealed) - 1))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ .\n\0é"
    changed = _sealed[:place] + data.draw(st.sampled_from(alphabet)) + _sealed[place + 1 :]
    if changed != _sealed:
        with pytest.raises(InvalidParams):
            _opened(changed)


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda raw: raw.hex())))
def test_nothing_made_up_opens(text: str) -> None:
    for made_up in (text, _sealed + text, text + _sealed, _sealed[: len(text)]):
        if made_up != _sealed:
            with pytest.raises(InvalidParams):
                _opened(made_up)


def test_what_was_sealed_comes_back() -> None:
    assert _opened(_sealed).entries == {"ask:name": {"action": "accept"}, "id": "a"}


def test_two_seals_of_the_same_journal_differ() -> None:
    assert _closed() != _sealed


async def test_two_retries_with_one_state_both_go_through() -> None:
    # Without a store nothing can be remembered, so a state can be used again until it expires.
    async with serving(make()) as address:
        state = (await once(Able(address.port), "ask"))["result"]["requestState"]
        frames = await asyncio.gather(
            *(once(Able(address.port), "ask", answers={"name": accept(name=n)}, state=state) for n in "ab")
        )
    assert all(list(frame["result"]["inputRequests"]) == ["more"] for frame in frames)
