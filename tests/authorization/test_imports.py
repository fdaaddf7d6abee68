"""The libraries that verify tokens are loaded where they are used, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

from tests.support.process import environment

SCRIPT = """
import sys
import antiphon
server = antiphon.Server("plain", authenticate=antiphon.BearerTokens({"s3cret": "ada"}))
server.asgi()
loaded = {"joserfc", "aiohttp", "antiphon.authorization.issued_tokens"} & sys.modules.keys()
assert not loaded, loaded
antiphon.IssuedTokens("https://id.example.com", resource="https://notes.example.com/mcp")
assert "joserfc" in sys.modules
"""


def test_a_server_without_issued_tokens_loads_nothing_for_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
