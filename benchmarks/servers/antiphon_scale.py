"""Antiphon under measurement, giving promises kept in PostgreSQL; `BENCH_STORE` says where."""

import os

from antiphon_promises import server
from run_antiphon import run

server.configure(store=os.environ["BENCH_STORE"])

if __name__ == "__main__":
    run(__file__)
