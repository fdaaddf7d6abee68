"""Antiphon under measurement as an ordinary ASGI app, under the same server as the peers."""

from antiphon_server import server
from serve import serve

if __name__ == "__main__":
    serve(server.asgi())
