"""Antiphon under measurement as people run it: `antiphon run`, with `ANTIPHON_WORKERS` processes."""

import os
import sys
from pathlib import Path

SERVER = Path(__file__).resolve().parent / "antiphon_server.py"

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "antiphon", "run", str(SERVER), "--port", sys.argv[1]])
