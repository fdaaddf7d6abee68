"""The server whose tasks, states and sessions are kept: it asks, waits, remembers and fails in every way.

`write.py` fills a store with it, and `test_kept.py` goes on with what it finds there. It uses public names
alone. A tool that a kept folder knows is not changed: add another one.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pydantic
from typing_extensions import TypedDict

from antiphon import (
    Artifact,
    BearerTokens,
    Console,
    Context,
    Declined,
    Elicit,
    Failure,
    Image,
    InputRequired,
    InvalidParams,
    Limits,
    Principal,
    Result,
    RetriesExhausted,
    Retry,
    Server,
    Text,
    Unanswered,
)

__all__ = ["CONSOLE", "NEW_SECRET", "OLD_SECRET", "TOKENS", "Desk", "World"]

OLD_SECRET = "a secret that was in use when these were written"
NEW_SECRET = "the secret that is in use today, which seals"

TOKENS = {
    "ada-token": Principal("ada", frozenset({"clerks"}), {"team": "north", "shoe": 38}),
    "bob-token": Principal("bob", frozenset({"managers"})),
    "carol-token": Principal("carol", frozenset({"managers"})),
}
CONSOLE = Console(operators=["bob"])
A_DAY = 24 * 3600.0
A_LONG_TIME = 100 * 365 * A_DAY


class Form(pydantic.BaseModel):
    """A form as a model of pydantic."""

    name: str
    age: int = 30


@dataclass
class Point:
    """A value as a dataclass."""

    x: int
    y: float


class Small(pydantic.BaseModel):
    """A form whose answers only the function can check."""

    number: int

    @pydantic.field_validator("number")
    @classmethod
    def is_small(cls, number: int) -> int:
        """Refuse large numbers."""
        if number > 9:
            raise ValueError("this is no small number")
        return number


class Options(TypedDict):
    """A value as a typed mapping."""

    colour: str
    sizes: list[int]


class Colour(enum.Enum):
    """A value as an enumeration."""

    RED = "red"
    BLUE = "blue"


class World:
    """What is outside of the server: what its steps have done, and a gate at which its functions wait."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.gate = asyncio.Event()
        self.is_down = True
        """Whether the service that `fetch` calls is down."""
        self.reached: list[str] = []
        """The functions that wait at the gate."""

    def do(self, name: str) -> str:
        """Leave a trace."""
        self.effects.append(name)
        return f"did {name}"

    async def wait(self, name: str) -> None:
        """Wait at the gate."""
        self.reached.append(name)
        await self.gate.wait()


class Desk:
    """The server, with the world around it.

    With `only`, it is a version that has just these tools. `signed_in` says whether it knows its callers.
    """

    def __init__(
        self,
        store: Any,
        *,
        artifacts: Any = None,
        secrets: Collection[str] = (NEW_SECRET, OLD_SECRET),
        only: Collection[str] | None = None,
        signed_in: bool = True,
        single_use_state: bool = False,
        lease: float = 60.0,
    ) -> None:
        self.world = World()
        self._only = only
        self.server = Server(
            "careful desk" if single_use_state else "desk" if signed_in else "open desk",
            store=store,
            artifacts=artifacts,
            secrets=list(secrets),
            authenticate=BearerTokens(TOKENS) if signed_in else None,
            task_claims=["team"],
            single_use_state=single_use_state,
            page_size=5,
            limits=Limits(drain_timeout=1.0, artifact_lifetime=A_LONG_TIME, lease_seconds=lease),
        )
        for register in (_asking, _others, _waiting, _steps, _ending, _outside_of_tasks):
            register(self)

    def tool(self, function: Any, **options: Any) -> None:
        """Register a tool that can run as a task, which is kept for ever."""
        if self._only is None or function.__name__ in self._only:
            self.server.add_tool(function, **{"task": "optional", "task_ttl": None, **options})


def _asking(desk: Desk) -> None:
    world = desk.world

    async def pay(amount: int, ctx: Context) -> str:
        """Reserve, ask twice, then charge."""
        reserved = await ctx.step(world.do, f"reserve {amount}")
        approved = await ctx.elicit(f"Pay {amount}?", bool, key="approve")
        who = await ctx.elicit("Who pays?", str, key="who")
        charged = await ctx.step(world.do, f"charge {amount}")
        return f"{reserved}, {charged}, approved={approved} by {who}"

    async def forms(ctx: Context) -> str:
        """Ask with a form of each kind, all at once, in branches without keys."""
        given = await asyncio.gather(
            ctx.elicit("Who are you?", Form),
            ctx.elicit("Where?", Point),
            ctx.elicit("How?", Literal["fast", "slow"]),
            ctx.elicit("How many?", int),
            ctx.elicit("Which one?", {"type": "object", "properties": {"which": {"type": "string"}}}),
        )
        return " ".join(map(repr, given))

    async def same(ctx: Context) -> str:
        """Ask the same question in two branches, and twice in one of them."""

        async def twice() -> list[str]:
            return [await ctx.elicit("A word?", str), await ctx.elicit("A word?", str)]

        first, second = await asyncio.gather(twice(), ctx.elicit("A word?", str))
        return f"{sorted(first)} {second}"

    async def checked(ctx: Context) -> str:
        """Ask for a number until one fits."""
        form = {
            "type": "object",
            "properties": {"value": {"type": "integer", "minimum": 10}},
            "required": ["value"],
        }
        given = await ctx.elicit("A number of at least 10?", form, key="number")
        return f"got {given['value']}"

    async def web(ctx: Context) -> str:
        """Ask for a visit to a page."""
        await ctx.elicit("Sign in there.", url="https://example.com/sign-in", key="visit")
        return "visited"

    async def think(ctx: Context) -> str:
        """Ask the model of the client."""
        return f"thought: {(await ctx.sample('What is 6 times 7?', max_tokens=10, key='think')).text}"

    async def folders(ctx: Context) -> str:
        """Ask for the folders of the client."""
        return f"folders: {[root.uri for root in await ctx.roots(key='roots')]}"

    async def everything(ctx: Context) -> str:
        """Ask for an answer of each kind at once."""
        sampled, roots, name = await asyncio.gather(
            ctx.sample("A rhyme?", max_tokens=10, key="rhyme"),
            ctx.roots(key="roots"),
            ctx.elicit("A name?", str, key="name"),
        )
        return f"{sampled.text} {len(roots)} {name}"

    async def explicit(ctx: Context) -> str | InputRequired:
        """Return questions and a state."""
        if ctx.state is None:
            form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            return InputRequired({"name": Elicit("Your name?", form)}, state={"round": 1})
        return f"{ctx.input_responses['name']['content']['name']} in round {ctx.state['round']}"

    async def declining(ctx: Context) -> str:
        """Go on although the person declines."""
        try:
            await ctx.elicit("Really?", bool, key="really")
        except Declined:
            return f"declined, and {await ctx.elicit('Why?', str, key='why')}"
        return "accepted"

    async def strict(ctx: Context) -> str:
        """Ask until the function accepts the answer."""
        return f"got {(await ctx.elicit('A small number?', Small, key='small')).number}"

    async def held(ctx: Context) -> str:
        """Ask, and wait in the process."""
        return f"held: {await ctx.elicit('Still there?', str, key='there')}"

    for function in (pay, forms, same, checked, web, think, folders, everything, explicit, declining, strict):
        desk.tool(function)
    desk.tool(held, replay=False)


def _others(desk: Desk) -> None:
    world = desk.world

    async def approve(what: str, ctx: Context) -> str:
        """Ask two managers."""
        await ctx.step(world.do, f"prepare {what}")
        answers = await ctx.elicit(
            f"Approve {what}?",
            bool,
            to="managers",
            approvals=2,
            key="approve",
            within=timedelta(days=40),
            remind=timedelta(days=39),
        )
        names = [person.id for person in ctx.approved_by("approve")]
        return f"{what}: {answers} by {names}"

    async def ask_bob(ctx: Context) -> str:
        """Ask one person, and the caller."""
        advice, own = await asyncio.gather(
            ctx.elicit("Your advice?", str, to=Principal("bob"), key="advice"),
            ctx.elicit("Your wish?", str, key="wish"),
        )
        return f"bob says {advice}, and the caller {own}"

    async def urgent(ctx: Context) -> str:
        """Ask for a day, and go on without an answer."""
        try:
            return f"answered: {await ctx.elicit('Quick?', bool, to='managers', key='quick', within=A_DAY)}"
        except Unanswered:
            return f"nobody answered, {await ctx.step(world.do, 'give up')}"

    async def soon(ctx: Context) -> str:
        """Ask the caller for a day, give up, and ask again."""
        try:
            return f"answered: {await ctx.elicit('Now?', bool, key='now', within=A_DAY)}"
        except Unanswered:
            return f"late: {await ctx.elicit('And now?', bool, key='later')}"

    async def review(ctx: Context) -> str:
        """Ask a manager every day, until the function accepts the answer."""
        given = await ctx.elicit(
            "A small number?", Small, to="managers", key="review", remind=timedelta(days=1)
        )
        return f"{ctx.answered_by('review').id} says {given.number}"

    for function in (approve, ask_bob, urgent, soon, review):
        desk.tool(function)


def _waiting(desk: Desk) -> None:
    world = desk.world

    async def nap(days: int, ctx: Context) -> str:
        """Sleep between two steps."""
        before = await ctx.step(world.do, "fall asleep")
        await ctx.sleep(days=days)
        return f"{before}, {await ctx.step(world.do, 'wake up')}"

    async def naps(ctx: Context) -> str:
        """Sleep in two branches, and once more by a key."""
        begun = ctx.now()
        await asyncio.gather(ctx.sleep(days=1), ctx.sleep(days=2))
        await ctx.sleep_until(begun + timedelta(days=3), key="third")
        return "slept three times"

    async def parcel(order: str, ctx: Context) -> str:
        """Wait for two events of an order, each with its type."""
        sent: Options = await ctx.event("sent", key=order, type=Options)
        arrived = await ctx.event("arrived", key=order, within=timedelta(days=400))
        return f"{sent['colour']} {sent['sizes']}, then {arrived}"

    async def one_of(ctx: Context) -> str:
        """Wait for an event for a day."""
        try:
            return f"got {await ctx.event('never', key='it', within=A_DAY)}"
        except Unanswered:
            return "nothing came"

    async def both(ctx: Context) -> str:
        """Wait for an event and for an answer at once."""
        rung, who = await asyncio.gather(
            ctx.event("ring", key="door"), ctx.elicit("Who is there?", str, key="who")
        )
        return f"{rung} by {who}"

    async def misfit(ctx: Context) -> str:
        """Get an event that does not fit its type, and ask."""
        try:
            await ctx.event("number", key="one", type=int)
        except Failure:
            return f"no number, and {await ctx.elicit('What then?', str, key='then')}"
        return "a number"

    for function in (nap, naps, parcel, one_of, both, misfit):
        desk.tool(function)


class _Outage(Exception):
    """The service is down."""


def _steps(desk: Desk) -> None:
    world = desk.world

    def make_point() -> Point:
        return Point(1, 2.5)

    def make_form() -> Form:
        return Form(name="Ada")

    def make_options() -> Options:
        return {"colour": "red", "sizes": [1, 2]}

    def make_colour() -> Colour:
        return Colour.BLUE

    def make_bytes() -> bytes:
        return b"some bytes"

    def make_moment() -> datetime:
        return datetime.fromisoformat("2025-02-03T04:05:06.789+02:00")

    def make_day() -> date:
        return date(2025, 2, 3)

    def make_length() -> timedelta:
        return timedelta(days=1, seconds=2.5)

    def make_number() -> Decimal:
        return Decimal("1.10")

    def make_id() -> uuid.UUID:
        return uuid.UUID(int=7)

    def make_set() -> set[int]:
        return {3}

    def make_pair() -> tuple[int, str]:
        return 1, "one"

    def make_many() -> dict[str, list[Point | None]]:
        return {"points": [Point(3, 4), None]}

    def make_large() -> int:
        return 2**70

    def make_text() -> str:
        return "ä" + "x" * 2000  # long enough that a state is compressed

    def make_nothing() -> None:
        return None

    makers = (
        make_point,
        make_form,
        make_options,
        make_colour,
        make_bytes,
        make_moment,
        make_day,
        make_length,
        make_number,
        make_id,
        make_set,
        make_pair,
        make_many,
        make_text,
        make_nothing,
    )

    async def values(ctx: Context) -> str:
        """Record a value of each type, and the sources of chance, then ask."""
        made = [await ctx.step(make) for make in makers]
        chance = ctx.now().isoformat(), ctx.random(), str(ctx.uuid())
        await ctx.elicit("Go on?", bool, key="go_on")
        made = [value[:5] if isinstance(value, str) else value for value in made]
        world.effects.append(f"chance {chance}")
        return " ".join(map(repr, made))

    async def large(ctx: Context) -> str:
        """Record a number that takes more than 64 bits, then ask."""
        made = await ctx.step(make_large)
        await ctx.elicit("Go on?", bool, key="go_on")
        return str(made)

    async def fetch() -> str:
        """Call a service that may be down."""
        if world.is_down:
            raise _Outage("the service is down")
        return world.do("fetch")

    async def flaky(ctx: Context) -> str:
        """Call the service, with a day between the attempts."""
        before = await ctx.step(world.do, "prepare")
        return f"{before}, {await ctx.step(fetch, retry=Retry(attempts=5, first=A_DAY, longest=A_DAY))}"

    async def tired(ctx: Context) -> str:
        """Give the service up, and ask."""
        try:
            await ctx.step(fetch, retry=Retry(attempts=2, first=0))
        except RetriesExhausted as error:
            return f"{error} {await ctx.elicit('Go on without?', bool, key='without')}"
        return "fetched"

    async def hopeless(ctx: Context) -> str:
        """Fail when the service was tried twice."""
        return f"hopeful: {await ctx.step(fetch, retry=Retry(attempts=2, first=0))}"

    async def outer(name: str, ctx: Context) -> str:
        """Run a step inside a step, which fails the first time."""
        inner = await ctx.step(world.do, f"inner {name}")
        if world.is_down:
            raise _Outage("the outer step failed")
        return f"outer of {inner}"

    async def nested(ctx: Context) -> str:
        """Try a step that has run a step inside it."""
        return await ctx.step(outer, "box", ctx, retry=Retry(attempts=5, first=A_DAY, longest=A_DAY))

    async def beside(ctx: Context) -> str:
        """Run steps beside each other, and one by a key, then ask."""
        keyed = await ctx.step(world.do, "keyed", key="by-key")
        many = await ctx.map(world.do, ["a", "b", "c"], key="letters")
        two = await asyncio.gather(ctx.step(world.do, "left"), ctx.step(world.do, "right"))
        await ctx.elicit("Go on?", bool, key="go_on")
        return f"{keyed} {many} {sorted(two)}"

    async def killed(ctx: Context) -> AsyncIterator[str | Image | Text]:
        """Do a step, emit segments, and wait at the gate in the middle."""
        yield await ctx.step(world.do, "begin")
        yield Image(data=b"\x89PNG", mime_type="image/png")
        await ctx.progress(3, 10, "half way")
        await world.wait("killed")
        yield await ctx.step(world.do, "end")

    async def killed_once(ctx: Context) -> str:
        """Do a step and wait at the gate: it is not run again."""
        await ctx.step(world.do, "once")
        await world.wait("killed_once")
        return "survived"

    async def stubborn(ctx: Context) -> str:
        """Wait at the gate, and once more to clean up."""
        try:
            await world.wait("stubborn")
        finally:
            await world.wait("stubborn")
        return "through the gate"

    async def one_by_one(name: str, ctx: Context) -> str:
        """Wait at the gate; one task at a time."""
        await world.wait("one_by_one")
        return f"{name} had its turn"

    for function in (
        values,
        large,
        flaky,
        tired,
        hopeless,
        nested,
        beside,
        killed,
        stubborn,
    ):
        desk.tool(function)
    desk.tool(killed_once, resume=False)
    desk.tool(one_by_one, max_running=1)


def _ending(desk: Desk) -> None:
    world = desk.world

    async def count(ctx: Context) -> AsyncIterator[Any]:
        """Emit segments, and data with the last one."""
        for number in (1, 2):
            yield f"segment {number}"
        await ctx.progress(2, 2, "counted")
        yield Result([Text("segment 3")], data={"count": 3}, meta={"example.com/note": "kept"})

    async def report(title: str) -> Artifact[Any]:
        """Make something to keep."""
        return Artifact({"title": title, "rows": [1, 2, 3]}, type="report", title=title)

    async def picture(ctx: Context) -> Artifact[bytes]:
        """Make bytes to keep, in more than one chunk."""
        return Artifact(bytes(range(256)) * 1024, mime_type="image/png", description="all bytes")

    async def total(report: Artifact[dict[str, Any]]) -> int:
        """Add up the rows of a report."""
        return sum(report.value["rows"])

    async def structured() -> Point:
        """Return a value of a type."""
        return Point(5, 6.5)

    async def fail(how: str, ctx: Context) -> str:
        """Fail, as a tool, with data, as a request, for want of a capability, or by a mistake."""
        if how == "tool":
            raise Failure("It did not work.", data={"code": 7})
        if how == "request":
            raise InvalidParams("That cannot be asked.", data={"argument": "how"})
        if how == "unable":
            ctx.require("sampling.tools")
        if how == "declined":
            await ctx.elicit("Shall it?", bool, key="shall")
        raise RuntimeError("a mistake of the author's")

    async def changing(ctx: Context) -> str:
        """Emit nothing, do a step, become a task in the middle, and ask."""
        before = await ctx.step(world.do, "before the promise")
        await ctx.promise()
        return f"{before}, then {await ctx.elicit('After?', str, key='after')}"

    for function in (report, picture, structured, fail):
        desk.tool(function)
    desk.tool(count, task_ttl=A_LONG_TIME)
    desk.tool(total, task="forbidden")
    desk.tool(changing, answer_within=A_DAY)


def _outside_of_tasks(desk: Desk) -> None:
    world, server = desk.world, desk.server

    async def told(ctx: Context) -> AsyncIterator[str]:
        """Emit a segment and progress, ask, and emit another one."""
        await ctx.progress(1, 2, "begun")
        yield await ctx.step(world.do, "tell")
        yield f"asked {await ctx.elicit('What next?', str, key='next')}"

    async def idle() -> str:
        """Do nothing: a server with no other tool serves tasks, and runs none of those that are kept."""
        return "idle"

    desk.tool(told)
    server.add_tool(idle, task="optional")

    async def letter(ctx: Context) -> str:
        """Ask for a name, in a prompt."""
        await ctx.step(world.do, "open a letter")
        return f"Dear {await ctx.elicit('To whom?', str, key='to')},"

    async def note(ctx: Context) -> str:
        """Ask for a name, in a resource."""
        await ctx.step(world.do, "open a note")
        return f"A note for {await ctx.elicit('For whom?', str, key='for')}."

    server.add_prompt(letter)
    server.add_resource(note, "note://today")
    for number in range(7):
        server.add_resource(_constant(number), f"numbered://{number}", name=f"number {number}")


def _constant(number: int) -> Any:
    def constant() -> str:
        return f"number {number}"

    return constant
