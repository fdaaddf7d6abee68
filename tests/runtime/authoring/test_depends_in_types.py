"""A `Depends` behind a type alias or inside a type: the caller never passes the value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NewType, TypeVar

import pydantic
import pytest
from typing_extensions import TypeAliasType, TypedDict

from antiphon import Client, Context, DefinitionError, Depends, Failure, Server

T = TypeVar("T")


def current_user(ctx: Context) -> str:
    return ctx.principal.id


User = TypeAliasType("User", Annotated[str, Depends(current_user)])
Documented = TypeAliasType("Documented", Annotated[User, "the caller"])
Generic = TypeAliasType("Generic", Annotated[T, Depends(current_user)], type_params=(T,))
Quoted = TypeAliasType("Quoted", "Annotated[str, Depends(current_user)]")
New = NewType("New", Annotated[str, Depends(current_user)])  # type: ignore[valid-newtype]
Ctx = TypeAliasType("Ctx", Context)
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | None")


def name_of_user(ctx: Ctx, user: User = "nobody") -> str:
    return f"{user} {ctx.principal.id}"


def tool_for(hint: Any, default: Any = ...) -> Callable[..., Any]:
    if default is ...:

        async def pay(amount: int, user) -> str:  # type: ignore[no-untyped-def]
            return f"{user} pays {amount}"
    else:

        async def pay(amount: int, user=default) -> str:  # type: ignore[no-untyped-def,misc]
            return f"{user} pays {amount}"

    pay.__annotations__["user"] = hint
    return pay


ALIASES: dict[str, Any] = {
    "alias": User,
    "alias of an alias": Documented,
    "annotated alias": Annotated[User, "x"],
    "generic alias": Generic[str],
    "quoted alias": Quoted,
    "new type": New,
}
if sys.version_info >= (3, 12):
    _names: dict[str, Any] = {**globals()}
    exec("type Statement = Annotated[str, Depends(current_user)]", _names)
    ALIASES["type statement"] = _names["Statement"]


@pytest.mark.parametrize("hint", ALIASES.values(), ids=ALIASES.keys())
async def test_a_depends_behind_an_alias_is_not_an_argument_of_the_caller(hint: Any) -> None:
    server = Server("tests")
    server.add_tool(tool_for(hint))
    async with Client(server, principal="ada") as client:
        assert list((await client.tools())[0].input_schema["properties"]) == ["amount"]
        assert (await client.call("pay", amount=3)).text == "ada pays 3"
        with pytest.raises(Failure, match="There is no such argument"):
            await client.call("pay", amount=3, user="bob")


async def test_a_dependency_and_a_context_behind_aliases_are_found_everywhere() -> None:
    server = Server("tests")

    @server.resource("data://{key}")
    async def read(key: str, user: User) -> str:
        return f"{key} of {user}"

    @server.prompt
    async def greet(user: User, name: Annotated[str, Depends(name_of_user)]) -> str:
        return f"{user}, {name}"

    async with Client(server, principal="ada") as client:
        assert (await client.read("data://x")).contents[0].text == "x of ada"
        assert not (await client.prompts())[0].arguments
        assert "ada, ada ada" in str(await client.prompt("greet"))
    with pytest.raises(DefinitionError, match="the function has no parameter of that name"):
        server.resource("other://{user}")(read)


class Model(pydantic.BaseModel):
    user: Annotated[str, Depends(current_user)]


class Outer(pydantic.BaseModel):
    inner: list[Model] = []


class Default(pydantic.BaseModel):
    user: str = Depends(current_user)


@dataclass
class Data:
    user: Annotated[str, Depends(current_user)]


@dataclass
class DataDefault:
    user: str = field(default=Depends(current_user))


class Dictionary(TypedDict):
    user: Annotated[str, Depends(current_user)]


class Row(NamedTuple):
    user: Annotated[str, Depends(current_user)]


INSIDE: dict[str, Any] = {
    "list of an alias": list[User],
    "optional alias": User | None,
    "list of a new type": list[New],
    "list of a generic alias": dict[str, Generic[str]],
    "alias of a list": TypeAliasType("Users", "list[Quoted]"),
    "model": Model,
    "model in a model": Outer | None,
    "default of a field": Default,
    "dataclass": Data,
    "default of a dataclass": DataDefault,
    "TypedDict": Dictionary,
    "NamedTuple": Row,
    "alias of a model": TypeAliasType("M", Model),
}


@pytest.mark.parametrize("hint", INSIDE.values(), ids=INSIDE.keys())
def test_a_depends_inside_a_type_is_refused(hint: Any) -> None:
    server = Server("tests")
    with pytest.raises(DefinitionError, match=r"^pay: .*Depends.* is inside "):
        server.add_tool(tool_for(hint))
    with pytest.raises(DefinitionError, match=r"^pay: .*Depends.* is inside "):
        server.add_tool(tool_for(hint, default=None))
    assert not server.tools


@pytest.mark.parametrize(
    "default",
    [pydantic.Field(default=Depends(current_user)), pydantic.Field(default_factory=Depends(current_user))],
)
def test_a_depends_in_a_field_is_refused(default: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^pay: .*Depends"):
        Server("tests").add_tool(tool_for(str, default))


async def test_an_alias_with_a_depends_may_be_the_type_of_a_result() -> None:
    server = Server("tests")

    @server.tool
    async def whoami(user: User, json: Json = None) -> User:
        return user

    async with Client(server, principal="ada") as client:
        assert (await client.call("whoami", json=[{"a": "b"}])).data == "ada"


def test_an_alias_that_cannot_be_read_is_refused() -> None:
    unknown = TypeAliasType("unknown", "Annotated[Missing, 1]")  # type: ignore[name-defined]  # noqa: F821
    with pytest.raises(
        DefinitionError, match="The type alias 'unknown' cannot be read: name 'Missing' is not"
    ):
        Server("tests").add_tool(tool_for(unknown))
