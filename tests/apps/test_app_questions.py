"""Questions that an App asks in place of a form, where the client and the server let it."""

from __future__ import annotations

import pytest

from antiphon import Client, Context, Server
from antiphon.client.callbacks import Elicitation
from antiphon.model.question import Elicit, question_key
from antiphon.model.ui import UI_EXTENSION, UI_QUESTIONS, asks_in_ui

ASKS = {"extensions": {UI_EXTENSION: UI_QUESTIONS}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def server() -> Server:
    server = Server("travel")
    server.add_ui("<p>", "ui://travel/city")

    @server.tool
    async def book(ctx: Context) -> str:
        return str((await ctx.elicit("Where to?", CITY, ui="ui://travel/city"))["city"])

    return server


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize(
    ("capabilities", "ui"),
    [(ASKS, "ui://travel/city"), ({"extensions": {UI_EXTENSION: {}}}, None), ({}, None)],
)
async def test_the_app_is_named_to_clients_that_let_apps_ask(
    server: Server, protocol: str, capabilities: dict[str, object], ui: str | None
) -> None:
    asked: list[Elicitation] = []

    def elicit(question: Elicitation) -> dict[str, str]:
        asked.append(question)
        return {"city": "Oslo"}

    async with Client(server, protocol=protocol, elicit=elicit, capabilities=capabilities) as client:
        assert asks_in_ui(client.capabilities)
        assert (await client.call("book")).text == "Oslo"
    assert [(each.message, each.ui) for each in asked] == [("Where to?", ui)]


def test_questions_without_an_app_keep_their_keys() -> None:
    assert question_key(Elicit("Where to?", CITY)) == "where_to_65a31a43"
