"""`antiphon install` and `antiphon mcp-json`: the configuration with which hosts start or reach a server.

A host is a program that uses MCP servers, such as Claude Desktop or VS Code. Each has a JSON file of its own.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["HostName"]

HostName: TypeAlias = Literal["claude-desktop", "claude-code", "cursor", "vscode"]
"""The hosts that `antiphon install --host` accepts."""
