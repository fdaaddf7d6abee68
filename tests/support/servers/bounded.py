"""A server whose limits are in `LIMITS`, as JSON: `antiphon run bounded.py`, or `python bounded.py PORT`."""

from __future__ import annotations

import json
import os
import sys

from antiphon import Limits, Server

server = Server("bounded", limits=Limits(**json.loads(os.environ.get("LIMITS", "{}"))))


@server.tool
async def large(size: int) -> str:
    """Return a large text."""
    return "x" * size


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
