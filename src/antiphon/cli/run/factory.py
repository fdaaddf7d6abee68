"""The app of one worker process, made from what the parent handed down."""

from __future__ import annotations

from antiphon.cli.exit_codes import CommandError, leave
from antiphon.cli.run.serve import build, loaded
from antiphon.cli.run.settings import Settings
from antiphon.transport.server.http.app import App

__all__ = ["create"]


def create() -> App:
    """Load the file and make its app; ends the process if that fails."""
    from uvicorn.config import STARTUP_FAILURE

    settings = Settings.inherited()
    try:
        server = loaded(settings)
    except CommandError as error:
        # The code by which uvicorn knows that another try would fail as well.
        error.code = STARTUP_FAILURE
        leave(error)
    settings.configure_logging()
    return build(server, settings)
