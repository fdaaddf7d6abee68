"""A gateway of Antiphon under measurement, in front of the server at `BENCH_UPSTREAM`."""

import os

from run_antiphon import run

from antiphon import Limits, Server

server = Server("bench", limits=Limits(max_connections=8192, max_connections_per_address=8192))
server.mount("upstream", os.environ.get("BENCH_UPSTREAM", "http://127.0.0.1:9/mcp"), prefix=False)

if __name__ == "__main__":
    run(__file__)
