"""An expense service whose process kills itself in the middle of an import.

`antiphon run killed.py` serves `examples/expenses.py`, and `python killed.py PORT FOLDER` serves the service
with FastMCP. The process makes as many bookings as the variable `BOOKINGS` says. After the last one it waits
for the file `kill` in its folder, and kills itself before anybody records that the booking was made.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.polling import wait_until
from tests.support.process import ROOT

EXPENSES = ROOT / "examples" / "expenses.py"
FASTMCP = ROOT / "tests" / "examples" / "expenses_fastmcp.py"


def load(path: Path) -> Any:
    """Return the module of a service. Its process kills itself after some bookings."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    book, bookings = module.book, count(1)

    @functools.wraps(book)
    def killed(*args: Any) -> None:
        book(*args)
        if next(bookings) == int(os.environ.get("BOOKINGS", "0")):
            wait_until(Path("kill").exists, within=3600)
            os.kill(os.getpid(), signal.SIGKILL)

    module.book = killed
    return module


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    load(FASTMCP).mcp.run("http", port=int(sys.argv[1]), show_banner=False)
else:
    server = load(EXPENSES).server
    tasks = server.engine.tasks
    tasks.limits = dataclasses.replace(tasks.limits, lease_seconds=3600)
