"""Calls that begin in one version of a tool and go on in another: what is safe, and what is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from antiphon import Client, Context, InternalError, RetriesExhausted, Retry, Server
from antiphon.errors import DefinitionError, ReplayMismatch
from antiphon.testing import check_replay, rehearse
from tests.support.memory import in_memory
from tests.support.polling import turns
from tests.support.speakers import KEY

done: list[str] = []
CHANGED = "The server has changed since this call began, and cannot continue it"


@pytest.fixture(autouse=True)
def forget() -> None:
    done.clear()


def charge(amount: int) -> str:
    done.append(f"charge {amount}")
    return f"charged {amount}"


def bill(amount: int) -> str:
    done.append(f"bill {amount}")
    return f"billed {amount}"


def note(text: str) -> str:
    done.append(f"note {text}")
    return text


async def unasked(question: Any) -> Any:
    raise AssertionError("these tests answer by hand")


async def across(
    old: Callable[..., Any], new: Callable[..., Any], answer: Any = None, key: str = "sure", **options: Any
) -> Any:
    """Call a tool of an old version until it asks, and answer it in a new version."""
    versions = [Server("shop", secrets=["a secret that both versions have"]) for _ in range(2)]
    for server, function in zip(versions, (old, new), strict=True):
        server.add_tool(function, name="buy", **options)
    async with Client(versions[0], elicit=unasked) as before, Client(versions[1], elicit=unasked) as after:
        first = await before.call_once("buy")
        given = {"value": True} if answer is None else answer
        return await after.call_once("buy", resume=first, answers={key: given})


async def charges_and_asks(ctx: Context) -> str:
    paid = await ctx.step(charge, 5)
    await ctx.elicit("Sure?", bool, key="sure")
    return paid


async def test_a_renamed_step_is_not_done_again(caplog: pytest.LogCaptureFixture) -> None:
    async def renamed(ctx: Context) -> str:
        paid = await ctx.step(bill, 5)
        await ctx.elicit("Sure?", bool, key="sure")
        return paid

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, renamed)
    assert done == ["charge 5"]
    (error,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "about to run the step 'bill', where the journal has the step 'charge'" in error.getMessage()


async def test_a_renamed_step_with_the_key_of_the_old_one_goes_on() -> None:
    async def renamed(ctx: Context) -> str:
        paid = await ctx.step(bill, 5, key="charge")
        await ctx.elicit("Sure?", bool, key="sure")
        return paid

    assert (await across(charges_and_asks, renamed)).text == "charged 5"
    assert done == ["charge 5"]


async def test_an_inserted_step_is_stopped_unless_it_has_a_key() -> None:
    def inserted(**key: Any) -> Callable[[Context], Awaitable[str]]:
        async def tool(ctx: Context) -> str:
            await ctx.step(note, "first", **key)
            return await charges_and_asks(ctx)

        return tool

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, inserted())
    assert done == ["charge 5"]
    done.clear()
    assert (await across(charges_and_asks, inserted(key="noted"))).text == "charged 5"
    assert done == ["charge 5", "note first"]


async def test_an_inserted_step_of_the_same_function_does_not_get_the_result_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def inserted(ctx: Context) -> str:
        fee = await ctx.step(charge, 1)
        return f"{fee}, {await charges_and_asks(ctx)}"

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, inserted)
    assert done == ["charge 5"]
    assert "For the step 'charge', the journal has a result of 'charge' with other arguments" in caplog.text


async def test_another_function_of_the_same_name_does_not_get_the_result() -> None:
    class Cheap:
        @staticmethod
        def charge(amount: int) -> str:
            raise AssertionError("never done")

    async def other(ctx: Context) -> str:
        return await ctx.step(Cheap.charge, 5)

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, other)


async def test_steps_with_keys_may_be_moved_and_renamed() -> None:
    async def old(ctx: Context) -> str:
        one = await ctx.step(charge, 1, key="one")
        two = await ctx.step(charge, 2, key="two")
        await ctx.elicit("Sure?", bool, key="sure")
        return f"{one}, {two}"

    async def new(ctx: Context) -> str:
        two = await ctx.step(bill, 2, key="two")
        one = await ctx.step(bill, 1, key="one")
        three = await ctx.step(bill, 3)
        await ctx.elicit("Sure?", bool, key="sure")
        return f"{one}, {two}, {three}"

    assert (await across(old, new)).text == "charged 1, charged 2, billed 3"


async def test_a_step_with_a_key_has_its_own_arguments_too() -> None:
    def buying(amount: int) -> Callable[[Context], Awaitable[str]]:
        async def buy(ctx: Context) -> str:
            paid = await ctx.step(charge, amount, key="pay")
            await ctx.elicit("Sure?", bool, key="sure")
            return paid

        return buy

    with pytest.raises(InternalError, match=CHANGED):
        await across(buying(5), buying(6))


async def test_a_function_cannot_swallow_the_mismatch() -> None:
    suspending: list[bool] = []

    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.step(bill, 5)
        except Exception:
            await ctx.step(note, "refunded")
        except BaseException:
            suspending.append(ctx.suspending)
            with pytest.raises(asyncio.CancelledError):
                await ctx.step(note, "refunded")
        return "all is well"

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, stubborn)
    assert (done, suspending) == (["charge 5"], [True])


async def test_a_function_that_breaks_on_its_way_out_has_not_failed() -> None:
    async def breaks(ctx: Context) -> str:
        try:
            await ctx.step(bill, 5)
        except BaseException:
            raise ZeroDivisionError from None
        return "never"

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, breaks)


async def test_a_mismatch_in_a_group_of_tasks_stops_the_function() -> None:
    async def old(ctx: Context) -> str:
        await ctx.step(charge, 5, key="pay")
        await ctx.elicit("Sure?", bool, key="sure")
        return "done"

    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(charge, 6, key="pay"))
            group.create_task(ctx.step(note, "beside"))
        await ctx.step(note, "after")
        return "done"

    with pytest.raises(InternalError, match=CHANGED):
        await across(old, grouped)
    assert "note after" not in done


async def test_functions_in_threads_are_compared_too() -> None:
    def old(ctx: Context) -> str:
        paid = ctx.wait(ctx.step(charge, 5))
        ctx.wait(ctx.elicit("Sure?", bool, key="sure"))
        return paid

    def renamed(ctx: Context) -> str:
        try:
            return ctx.wait(ctx.step(bill, 5))
        except Exception:
            return "swallowed"

    assert (await across(old, old)).text == "charged 5"
    with pytest.raises(InternalError, match=CHANGED):
        await across(old, renamed)
    assert done == ["charge 5", "charge 5"]


async def test_resources_are_compared_too() -> None:
    def version(step: Callable[[int], str]) -> Server:
        server = Server("shop", secrets=["a secret that both versions have"])

        @server.resource("bill://today")
        async def today(ctx: Context) -> str:
            paid = await ctx.step(step, 5)
            await ctx.elicit("Sure?", bool, key="sure")
            return paid

        return server

    able = {KEY + "clientCapabilities": {"elicitation": {"form": {}}}}
    async with in_memory(version(charge)) as before, in_memory(version(bill)) as after:
        asked = await before.result("resources/read", {"uri": "bill://today"}, meta=able)
        again = {
            "uri": "bill://today",
            "requestState": asked["requestState"],
            "inputResponses": {"sure": {"action": "accept", "content": {"value": True}}},
        }
        assert (await after.error("resources/read", again, meta=able))["message"].startswith(CHANGED)
        assert (await before.result("resources/read", again, meta=able))["contents"][0]["text"] == "charged 5"
    assert done == ["charge 5"]


async def test_entries_that_a_finished_replay_did_not_use_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async def removed(ctx: Context) -> str:
        return "nothing to do"

    assert (await across(charges_and_asks, charges_and_asks)).text == "charged 5"
    assert "without using" not in caplog.text
    assert (await across(charges_and_asks, removed)).text == "nothing to do"
    (warning,) = (record.getMessage() for record in caplog.records if "without using" in record.message)
    assert "step:charge" in warning


# Questions


class Size(BaseModel):
    size: str = "medium"


class SizeAndColour(Size):
    colour: str = "white"


class Colour(BaseModel):
    colour: str = "white"


def asking(message: str, form: Any) -> Callable[[Context], Awaitable[str]]:
    async def buy(ctx: Context) -> str:
        first = await ctx.elicit(message, form, key="sure")
        await ctx.elicit("More?", bool, key="more")
        return str(first)

    return buy


async def answered(first: Any, second: Any) -> Any:
    """Answer a question in the first version, and replay the answer in the second."""
    versions = [Server("shop", secrets=["a secret that both versions have"]) for _ in range(2)]
    for server, function in zip(versions, (first, second), strict=True):
        server.add_tool(function, name="buy")
    async with Client(versions[0], elicit=unasked) as before, Client(versions[1], elicit=unasked) as after:
        asked = await before.call_once("buy")
        more = await before.call_once("buy", resume=asked, answers={"sure": {"size": "large"}})
        return await after.call_once("buy", resume=more, answers={"more": {"value": True}})


@pytest.mark.parametrize(
    ("message", "form", "text"),
    [("Which size?", Size, "size='large'"), ("Sure?", SizeAndColour, "size='large' colour='white'")],
)
async def test_a_question_may_get_another_wording_and_more_fields(message: str, form: Any, text: str) -> None:
    assert (await answered(asking("Sure?", Size), asking(message, form))).text == text


async def test_a_form_with_other_fields_does_not_get_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InternalError, match=CHANGED):
        await answered(asking("Sure?", Size), asking("Sure?", Colour))
    assert "answer to the question 'sure'" in caplog.text


async def test_a_question_of_another_kind_does_not_get_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def other(ctx: Context) -> str:
        return (await ctx.sample("Sure?", key="sure")).text

    with pytest.raises(InternalError, match=CHANGED):
        await answered(asking("Sure?", Size), other)
    assert "'elicit size'. This version asks 'sample'" in caplog.text


class Narrow(BaseModel):
    size: Literal["small", "medium"]


async def test_an_answer_that_a_run_went_on_with_must_fit_in_the_next_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InternalError, match=CHANGED):
        await answered(asking("Sure?", Size), asking("Sure?", Narrow))
    assert "an answer to the question 'sure' that this version does not accept" in caplog.text
    assert "large" not in caplog.text


async def test_an_answer_that_no_run_has_used_is_asked_for_again_if_it_does_not_fit() -> None:
    again = await across(asking("Sure?", Size), asking("Sure?", Narrow), {"size": "large"})
    assert list(again.questions) == ["sure"]


async def test_a_response_to_a_question_of_another_kind_is_no_error_that_a_function_can_catch() -> None:
    async def samples(ctx: Context) -> str:
        paid = await ctx.step(charge, 5)
        try:
            await ctx.sample("Sure?", key="sure")
        except Exception:
            await ctx.step(note, "refunded")
        return paid

    with pytest.raises(InternalError, match=CHANGED):
        await across(charges_and_asks, samples)
    assert done == ["charge 5"]


# Results of another type


class Receipt(BaseModel):
    id: str


class DatedReceipt(Receipt):
    date: str


class Refused(Receipt):
    @field_validator("id")
    @classmethod
    def refuse(cls, id: str) -> str:
        raise ValueError("never")


def paying(returns: Any, made: Any, *, refunds: list[str], nested: bool = False) -> Callable[..., Any]:
    """A tool that gives the money back if anything fails; its step `pay` has this return annotation."""

    def pay() -> Any:
        done.append("pay")
        return made

    pay.__annotations__["return"] = returns

    async def pay_inside(ctx: Context) -> Any:
        paid = await ctx.step(pay)
        await turns()
        if len(done) == 1:
            raise ConnectionError
        return str(paid)

    async def buy(ctx: Context) -> str:
        try:
            if nested:
                try:
                    paid = await ctx.step(pay_inside, ctx)
                except ConnectionError:
                    await ctx.elicit("Sure?", bool, key="sure")
                    paid = await ctx.step(pay_inside, ctx)
            else:
                paid = await ctx.step(pay)
            await ctx.elicit("Sure?", bool, key="sure")
        except Exception as error:
            refunds.append(type(error).__name__)
            return "refunded"
        return str(paid)

    return buy


DATED = DatedReceipt(id="a", date="today")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((Receipt, Receipt(id="a")), (DatedReceipt, DATED)),
        ((str, "many"), (int, 7)),
        ((int, 7), (str, "many")),
        ((list[str], ["a"]), (dict[str, int], {})),
    ],
    ids=["a required field", "str to int", "int to str", "list to dict"],
)
async def test_a_result_that_the_new_version_cannot_read_stops_the_run(
    old: Any, new: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refunds: list[str] = []
    with pytest.raises(InternalError, match=CHANGED):
        await across(paying(*old, refunds=refunds), paying(*new, refunds=refunds))
    assert (done, refunds) == (["pay"], [])
    assert "a result of the step 'pay' that this version cannot read" in caplog.text
    assert "many" not in caplog.text


async def test_a_result_inside_a_step_that_the_new_version_cannot_read_stops_the_run() -> None:
    refunds: list[str] = []
    old = paying(Receipt, Receipt(id="a"), refunds=refunds, nested=True)
    new = paying(DatedReceipt, DATED, refunds=refunds, nested=True)
    with pytest.raises(InternalError, match=CHANGED):
        await across(old, new)
    assert (done, refunds) == (["pay"], [])


async def test_a_result_that_still_fits_is_used() -> None:
    refunds: list[str] = []
    old = paying(DatedReceipt, DATED, refunds=refunds)
    assert (await across(old, paying(Receipt, Receipt(id="b"), refunds=refunds))).text == "id='a'"
    assert (done, refunds) == (["pay"], [])


async def test_a_type_whose_validator_breaks_stops_the_run_too() -> None:
    class Broken(Receipt):
        @field_validator("id")
        @classmethod
        def look_up(cls, id: str) -> str:
            raise KeyError(id)

    refunds: list[str] = []
    new = paying(Broken, Broken.model_construct(id="a"), refunds=refunds)
    with pytest.raises(InternalError, match=CHANGED):
        await across(paying(Receipt, Receipt(id="a"), refunds=refunds), new)
    assert refunds == []


async def test_a_result_that_no_version_can_read_is_the_same_error_in_every_run() -> None:
    def pay() -> Refused:
        done.append("pay")
        return Refused.model_construct(id="a")

    async def buy(ctx: Context) -> str:
        try:
            return str(await ctx.step(pay, retry=Retry(attempts=3, first=0.0)))
        except DefinitionError as error:
            await ctx.step(note, "refunded")
            await ctx.elicit("Sure?", bool, key="sure")
            return str(error)

    text = (await across(buy, buy)).text
    assert done == ["pay", "note refunded"]
    assert "The result of the step 'pay' cannot be read back through its return annotation" in text


@pytest.mark.parametrize("nested", [False, True])
async def test_a_result_that_only_the_new_version_can_read_stops_the_run(
    nested: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def paying_as(returns: Any) -> Callable[[Context], Awaitable[str]]:
        def pay() -> Any:
            done.append("pay")
            return Refused.model_construct(id="a")

        pay.__annotations__["return"] = returns

        async def pay_inside(ctx: Context) -> str:
            return str(await ctx.step(pay))

        async def buy(ctx: Context) -> str:
            try:
                paid = str(await ctx.step(pay_inside, ctx) if nested else await ctx.step(pay))
            except DefinitionError:
                paid = "refunded"
                await ctx.elicit("Sure?", bool, key="sure")
            await ctx.step(note, paid)
            return paid

        return buy

    with pytest.raises(InternalError, match=CHANGED):
        await across(paying_as(Refused), paying_as(Receipt))
    assert done == ["pay"]
    assert "a result of the step 'pay' that the version which recorded it could not read" in caplog.text


async def test_a_step_that_succeeded_keeps_its_result_if_it_is_tried_less_often() -> None:
    def flaky() -> str:
        done.append("flaky")
        if len(done) < 3:
            raise OSError
        return "worked"

    def trying(attempts: int) -> Callable[[Context], Awaitable[str]]:
        async def buy(ctx: Context) -> str:
            found = await ctx.step(flaky, retry=Retry(attempts=attempts, first=0.0))
            await ctx.elicit("Sure?", bool, key="sure")
            return found

        return buy

    assert (await across(trying(3), trying(2))).text == "worked"
    assert done == ["flaky"] * 3


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2)])
async def test_a_step_that_was_given_up_stays_so_however_often_a_version_tries_it(
    before: int, after: int
) -> None:
    def flaky() -> str:
        done.append("flaky")
        if len(done) <= 2:
            raise OSError
        return "worked"

    def trying(attempts: int) -> Callable[[Context], Awaitable[str]]:
        async def buy(ctx: Context) -> str:
            try:
                found = await ctx.step(flaky, retry=Retry(attempts=attempts, first=0.0))
            except RetriesExhausted as error:
                found = await ctx.step(note, f"gave up after {error.attempts}")
            await ctx.elicit("Sure?", bool, key="sure")
            return found

        return buy

    expected = "worked" if before > 2 else "gave up after 2"
    assert (await across(trying(before), trying(after))).text.endswith(expected)
    assert done[2:] == ["flaky" if before > 2 else "note gave up after 2"]


async def test_check_replay_names_a_result_that_does_not_load_again() -> None:
    kinds: list[Any] = [Receipt, DatedReceipt]

    async def buy(ctx: Context) -> str:
        def pay() -> Any:
            return Receipt(id="a")

        pay.__annotations__["return"] = kinds.pop(0) if len(kinds) > 1 else kinds[0]
        return str(await ctx.step(pay))

    found = await check_replay(buy)
    assert any(
        "a result of the step 'pay' that this version cannot read: date: Field required" in each
        for each in found
    )


# What is no mismatch


async def test_a_step_that_failed_is_tried_again() -> None:
    async def primary(amount: int) -> str:
        done.append("primary")
        raise OSError

    async def buy(ctx: Context) -> str:
        try:
            await ctx.step(primary, 5)
        except OSError:
            await ctx.step(note, "fallback")
        await ctx.elicit("Sure?", bool, key="sure")
        return await ctx.step(charge, 5)

    assert (await across(buy, buy)).text == "charged 5"
    assert done == ["primary", "note fallback", "primary", "charge 5"]


async def test_a_step_that_failed_may_succeed_later() -> None:
    async def flaky() -> str:
        done.append("flaky")
        if len(done) == 1:
            raise OSError
        return "worked"

    async def buy(ctx: Context) -> str:
        for _ in range(3):
            try:
                await ctx.step(flaky)
                break
            except OSError:
                continue
        await ctx.elicit("Sure?", bool, key="sure")
        return await ctx.step(charge, 5)

    assert (await across(buy, buy)).text == "charged 5"


async def test_a_question_may_be_inserted_before_a_step() -> None:
    async def inserted(ctx: Context) -> str:
        await ctx.elicit("Already?", bool, key="already")
        return await charges_and_asks(ctx)

    first = await across(charges_and_asks, inserted)
    assert list(first.questions) == ["already"]


async def test_objects_that_are_not_data_are_not_compared() -> None:
    async def with_context(ctx: Context, connection: object, amount: int) -> str:
        return charge(amount)

    async def buy(ctx: Context) -> str:
        paid = await ctx.step(with_context, ctx, connection=object(), amount=5)
        await ctx.elicit("Sure?", bool, key="sure")
        return paid

    assert (await across(buy, buy)).text == "charged 5"


# The key of a step


async def test_a_key_is_a_text_that_is_not_meant_for_the_function() -> None:
    def put(key: str, value: int = 0) -> str:
        return f"{key}={value}"

    async def buy(ctx: Context, how: str) -> str:
        if how == "positional":
            return await ctx.step(put, "a", 1, key="put")
        if how == "lost":
            return await ctx.step(put, key="a")
        return await ctx.step(charge, 1, key="" if how == "empty" else 7)  # type: ignore[call-overload]

    assert (await rehearse(buy, arguments={"how": "positional"})).result.text == "a=1"  # type: ignore[union-attr]
    for how in ("lost", "empty", "number"):
        result = (await rehearse(buy, arguments={"how": how})).result
        assert result is not None
        assert result.is_error, how
    assert done == []


def test_definition_errors_say_what_to_write() -> None:
    from antiphon.runtime.authoring import step as steps

    def put(key: str) -> str:
        return key

    with pytest.raises(DefinitionError, match=r"functools\.partial"):
        steps.of(put).check_key("a", (), {})
    with pytest.raises(DefinitionError, match="must be a text"):
        steps.of(put).check_key("", (), {})


async def test_a_repeated_key_gets_a_count() -> None:
    async def buy(ctx: Context) -> str:
        paid = [await ctx.step(charge, amount, key="pay") for amount in (1, 2)]
        await ctx.elicit("Sure?", bool, key="sure")
        return ", ".join(paid)

    assert (await across(buy, buy)).text == "charged 1, charged 2"
    assert done == ["charge 1", "charge 2"]


# In tests


async def by_chance(ctx: Context) -> str:
    done.append("run")
    await ctx.step(note, f"in run {done.count('run')}")
    await ctx.elicit("Sure?", bool, key="sure")
    return "done"


async def test_a_rehearsal_meets_the_mismatch() -> None:
    with pytest.raises(ReplayMismatch, match="'note' with other arguments") as met:
        await rehearse(by_chance, answers={"sure": True})
    assert (met.value.found, met.value.recorded) == ("step:note", "step:note")


async def test_check_replay_describes_the_mismatch() -> None:
    found = await check_replay(by_chance, answers={"sure": True})
    assert found[0].startswith(
        "after 'step:note': For the step 'note', the journal has a result of 'note' with"
    )
