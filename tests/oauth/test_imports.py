"""A client that does not log in loads nothing for it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.process import environment

SCRIPT = """
import sys
from antiphon import Client
client = Client("http://127.0.0.1:1/mcp", auth="s3cret")
loaded = [name for name in sys.modules if name.startswith("antiphon.client.oauth")]
assert not loaded, loaded
from antiphon import OAuth
Client("http://127.0.0.1:1/mcp", auth=OAuth())
assert not {"joserfc", "cryptography"} & sys.modules.keys()
"""


def test_a_client_without_oauth_loads_nothing_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
