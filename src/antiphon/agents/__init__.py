"""Gives the tools of MCP servers to models: for the APIs of OpenAI and Anthropic, and for agent frameworks.

This package turns the tool uses of a model into calls of a `Client` or a `ClientGroup`, and the results into
messages. It must not import the packages of OpenAI and Anthropic: it reads their objects by their fields.
"""

from antiphon.agents.anthropic import anthropic_tools
from antiphon.agents.anthropic_sampling import anthropic_sampler
from antiphon.agents.model_tools import ModelToolOptions, ModelTools, SegmentCallback, ToolUse
from antiphon.agents.openai import openai_tools
from antiphon.agents.openai_sampling import openai_sampler
from antiphon.agents.sampling import Sampler

__all__ = [
    "ModelToolOptions",
    "ModelTools",
    "Sampler",
    "SegmentCallback",
    "ToolUse",
    "anthropic_sampler",
    "anthropic_tools",
    "openai_sampler",
    "openai_tools",
]
