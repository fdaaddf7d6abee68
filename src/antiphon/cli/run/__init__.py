"""`antiphon run` and `antiphon worker`: load a server from a Python file, and serve it or run its tasks.

These modules own the listening socket, the processes and the signals. They use only public members of
`Server`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["LogLevel"]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
"""The levels of `--log-level`."""
