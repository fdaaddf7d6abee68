"""The proxy of FastMCP under measurement, in front of the server at `BENCH_UPSTREAM`.

It is made as its documentation makes one, and configured for speed like the server of `fastmcp_server.py`.
"""

import os

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")

from fastmcp.server.server import create_proxy
from serve import serve

server = create_proxy(os.environ["BENCH_UPSTREAM"], name="bench")

if __name__ == "__main__":
    serve(server.http_app(path="/mcp", json_response=True, stateless_http=True))
