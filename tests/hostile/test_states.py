"""A request state that the server issues always opens again, whatever is in it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Context, Elicit, InputRequired, Limits, Server
from antiphon.errors import InternalError, InvalidParams
from antiphon.model.outcome import InputRequired as Stopped
from antiphon.model.request import CallTool
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.supervisor import Supervised
from tests.hostile.unwritable import nested
from tests.support.serving import serving
from tests.support.sizes import size
from tests.support.speakers import Modern

pytestmark = pytest.mark.long

NUMBERS = st.sampled_from([0, -1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**100, 10**4000])
DATA = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
TEXT = st.text(st.characters(blacklist_categories=["Cs"]))


def call(state: str | None = None, arguments: dict[str, Any] | None = None) -> Call[CallTool]:
    request = CallTool(name="t", arguments=arguments or {}, request_state=state)
    return Call(request, _carrier(), Caller(), Supervised())


def _carrier(limits: Limits = Limits()) -> ClientCarrier:  # noqa: B008 - it is frozen
    return ClientCarrier(Seal(["a secret of the tests"]), "tests", limits)


async def round_trip(entries: dict[str, Any], arguments: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Seal a journal, and open it again."""
    carrier = _carrier(limits)
    stopped = await carrier.close(call(None, arguments), Journal(entries), Stopped())
    return (await carrier.open(call(stopped.sealed, arguments))).entries


@settings(max_examples=size(80, long=200))
@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4), st.dictionaries(TEXT, DATA, max_size=2))
async def test_every_journal_opens_again(entries: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert await round_trip(entries, arguments, Limits()) == entries


@pytest.mark.parametrize("levels", [1, 150, 195, 250, 700, 5000])
async def test_a_nested_journal_opens_again_or_is_refused(levels: int) -> None:
    entries = {"step:a": nested(levels)}
    if levels < 199:
        assert await round_trip(entries, {}, Limits()) == entries
    else:
        with pytest.raises((InternalError, RecursionError)):
            await round_trip(entries, {}, Limits())


@pytest.mark.parametrize("large", [False, True], ids=["MessagePack", "JSON"])
@pytest.mark.parametrize("size", [10, 990, 1000, 1100, 63_000, 65_000, 1_000_000])
@pytest.mark.parametrize("compressible", [True, False])
async def test_a_journal_of_any_size_opens_again_or_is_refused(
    size: int, compressible: bool, large: bool
) -> None:
    digits = "0" * size if compressible else random.Random(1).randbytes(size // 2).hex()
    entries = {"step:a": digits, "step:b": 2**80 if large else 1}
    carrier, refusal, stopped = _carrier(Limits(max_state_bytes=1000)), None, Stopped()
    try:
        await carrier.close(call(), Journal(entries), stopped)
    except InternalError as error:
        refusal = error
    if refusal is not None:
        assert "too large" in str(refusal)
        assert size > 900
        return
    opened = await carrier.open(call(stopped.sealed))
    assert opened.entries == entries


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**300])
async def test_large_numbers_in_arguments_steps_answers_and_states(number: int) -> None:
    server = Server("tests")

    async def work(given: int) -> int:
        return given + 1

    @server.tool
    async def steps(ctx: Context, given: int) -> str:
        found = await ctx.step(work, given)
        answer = await ctx.elicit(
            "How many?", {"type": "object", "properties": {"n": {"type": "integer"}}}, key="a"
        )
        again = await ctx.elicit("Sure?", bool, key="b")
        return f"{found - given} {answer['n'] - given} {again}"

    @server.tool
    async def returns(ctx: Context, given: int) -> Any:
        if ctx.state is None:
            return InputRequired(
                {"q": Elicit("q", {"type": "object", "properties": {}})}, state={"given": given}
            )
        return str(ctx.state["given"] - given)

    async with serving(server) as where:
        client = Modern(where.port)
        client.capabilities = {"elicitation": {}}
        params: dict[str, Any] = {"name": "steps", "arguments": {"given": number}}
        asked = (await client.ask("tools/call", params)).result
        accept = {"action": "accept", "content": {"n": number}}
        params |= {"requestState": asked["requestState"], "inputResponses": {"a": accept}}
        asked = (await client.ask("tools/call", params)).result
        accept = {"action": "accept", "content": {"value": True}}
        params |= {"requestState": asked["requestState"], "inputResponses": {"b": accept}}
        assert (await client.ask("tools/call", params)).text == "1 0 True"
        params = {"name": "returns", "arguments": {"given": number}}
        asked = (await client.ask("tools/call", params)).result
        params |= {"requestState": asked["requestState"], "inputResponses": {"q": {"action": "decline"}}}
        assert (await client.ask("tools/call", params)).text == "0"


@pytest.mark.parametrize("state", ["", "a", "é", "\0", "A" * 100, "A" * 100_000, "=" * 40, "-_" * 30])
async def test_a_state_that_the_server_did_not_issue_is_refused(state: str) -> None:
    with pytest.raises(InvalidParams, match="request state is not valid"):
        await _carrier().open(call(state))
