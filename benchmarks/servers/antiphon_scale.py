"""Antiphon under measurement, giving promises kept in PostgreSQL; `BENCH_STORE` says where."""

import os

from antiphon_promises import server
from serve import serve

from antiphon.transport.server.http.probes import Probes

server.configure(store=os.environ["BENCH_STORE"])

if __name__ == "__main__":
    serve(Probes(server, server.asgi()))
