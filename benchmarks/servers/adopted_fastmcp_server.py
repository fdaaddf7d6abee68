"""The server of `fastmcp_server.py` under measurement, adopted."""

from pathlib import Path

from run_antiphon import run

if __name__ == "__main__":
    run(str(Path(__file__).with_name("fastmcp_server.py")))
