"""The part of the server under test that asks for additional information."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from pydantic import BaseModel, Field

from antiphon import Context, Elicit, InputRequired, Server

__all__ = ["register"]

OPTIONS = ["option1", "option2", "option3"]
TITLED = [
    {"const": f"value{n}", "title": f"{word} Option"}
    for n, word in enumerate(("First", "Second", "Third"), 1)
]
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


class Contact(BaseModel):
    username: Annotated[str, Field(description="User's response")]
    email: Annotated[str, Field(description="User's email address")]


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmed(BaseModel):
    ok: bool


class Situation(BaseModel):
    context: str


def register(server: Server) -> None:
    """Add what asks to a server."""

    @server.tool
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Asks the client's model."""
        sampled = await ctx.sample(prompt, max_tokens=100)
        return f"LLM response: {sampled.text}"

    @server.tool
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Asks for a contact."""
        contact = await ctx.elicit(message, Contact)
        return f"User response: action=accept, content={contact.model_dump_json()}"

    @server.tool
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks with defaults."""
        content = await ctx.elicit("Please review and update the form fields with defaults", DEFAULTS)
        return f"Elicitation completed: action=accept, content={json.dumps(content)}"

    @server.tool
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks for choices."""
        content = await ctx.elicit("Please select options from the enum fields", ENUMS)
        return f"Elicitation completed: action=accept, content={json.dumps(content)}"

    @server.tool
    async def test_input_required_result_elicitation(ctx: Context) -> str:
        """Asks for a name."""
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        return f"Hello, {answer.name}!"

    @server.tool
    async def test_input_required_result_sampling(ctx: Context) -> str:
        """Asks the client's model."""
        sampled = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
        return f"The model said: {sampled.text}"

    @server.tool
    async def test_input_required_result_list_roots(ctx: Context) -> str:
        """Asks for the client's roots."""
        roots = await ctx.roots(key="client_roots")
        return f"Roots: {', '.join(root.uri for root in roots)}"

    @server.tool
    async def test_input_required_result_request_state(ctx: Context) -> str:
        """Asks, and keeps something meanwhile."""
        ticket = ctx.uuid()
        await ctx.elicit("Please confirm", Confirmed, key="confirm")
        return f"state-ok: {ticket}"

    @server.tool
    async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
        """Asks for three things at once."""
        ticket = ctx.uuid()
        name, sampled, roots = await asyncio.gather(
            ctx.elicit("What is your name?", Name, key="user_name"),
            ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
            ctx.roots(key="client_roots"),
        )
        return f"{ticket}: {name.name}, {sampled.text}, {len(roots)} roots"

    @server.tool
    async def test_input_required_result_multi_round(ctx: Context) -> str:
        """Asks twice, one after the other."""
        started = ctx.now()
        name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
        answer = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
        return f"{name.name} likes {answer.color} since {started:%Y}."

    @server.tool
    async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequired:
        """Asks in the explicit style, with a state of its own."""
        if "confirm" in ctx.input_responses and ctx.state == {"step": 1}:
            return "state-ok"
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
        }
        return InputRequired({"confirm": Elicit("Please confirm", schema)}, state={"step": 1})

    @server.tool
    async def test_input_required_result_capabilities(ctx: Context) -> str:
        """Asks in whichever way the client can answer."""
        if "elicitation" in ctx.capabilities:
            name = await ctx.elicit("What is your name?", Name, key="user_name")
            return f"Hello, {name.name}!"
        sampled = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
        return f"The model said: {sampled.text}"

    @server.prompt
    async def test_input_required_result_prompt(ctx: Context) -> str:
        """A prompt that asks before it is written."""
        situation = await ctx.elicit("What context should the prompt use?", Situation, key="user_context")
        return f"Use this context: {situation.context}"
