"""The settings of `antiphon run` and `antiphon worker`.

The parent process passes them to its worker processes in an environment variable.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import msgspec

from antiphon.cli.gateway.settings import GatewaySettings
from antiphon.cli.run import LogLevel

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["Settings"]

_VARIABLE = "ANTIPHON_RUN"
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Settings(msgspec.Struct, frozen=True):
    """Which server to serve, and how. Only the parent process knows the host and the port."""

    target: str
    path: str = "/mcp"
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] | None = None
    log_level: LogLevel = "info"
    access_log: bool = False
    store: str | None = None
    tasks: tuple[str, ...] = ()
    """The tools of an adopted server that callers can run as tasks."""
    allow_anonymous: bool = False
    """Whether an adopted server is served without the authentication that it has itself."""
    is_private: bool = False
    """Whether nobody can reach the process over HTTP, so that an adopted server needs no authentication."""
    run_tasks: bool = True
    """Whether this process runs tasks. If not, it only serves."""
    gateway: GatewaySettings | None = None
    """The servers that a gateway offers, in place of a target."""
    console: bool = False
    """Whether the console is served beside the endpoint."""
    otel: bool = False
    """Whether the process exports traces, metrics and logs with OpenTelemetry."""

    def __repr__(self) -> str:
        return f"Settings({self.target!r})"  # without the store's URL, which may have a password

    def without_authentication(self) -> Settings:
        """Return the settings for a process that nobody can reach over HTTP."""
        return msgspec.structs.replace(self, is_private=True)

    def to_environment(self) -> None:
        """Store the settings in the environment, for the processes that this process starts."""
        os.environ[_VARIABLE] = msgspec.json.encode(self).decode()

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings that the parent process stored in the environment."""
        return msgspec.json.decode(os.environ[_VARIABLE], type=cls)

    def observe(self, server: Server) -> None:
        """Configure logging, and OpenTelemetry with `--otel`. Raises `CommandError`."""
        self.configure_logging()
        if self.otel:
            from antiphon.cli.run.otel import start_otel

            start_otel(server)

    def configure_logging(self) -> None:
        """Log to standard error, unless the author's file has configured logging."""
        level = self.log_level.upper()
        logging.basicConfig(level=level, format=_LOG_FORMAT)
        # The log of calls has a line for each call, so it is opt-in.
        shows_calls = self.access_log or self.log_level == "debug"
        logging.getLogger("antiphon.calls").setLevel(level if shows_calls else "WARNING")
        # The command prints its own line when it listens; uvicorn's messages would repeat it.
        logging.getLogger("uvicorn.error").setLevel(level if self.log_level != "info" else "WARNING")
