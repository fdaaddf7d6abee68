"""The reference for latency: a server that takes the same time for every answer, and does nothing else.

It spends `ANSWER_SECONDS` of CPU time on each request, about as much as Antiphon does, without a queue, a
garbage collector or anything else that could make one answer slower than another. What its slowest answers
take longer than the others is the doing of the machine, and of requests that come at the same time.
"""

import asyncio
import gc
import re
import sys
from time import perf_counter
from typing import cast

import uvloop

ANSWER_SECONDS = 20e-6
_NUMBERS = re.compile(rb'"a":(\d+),"b":(\d+)').search


class Connection(asyncio.Protocol):
    """Answers every request as if it were the benchmark's call, which arrives in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        ends = perf_counter() + ANSWER_SECONDS
        found = _NUMBERS(data)
        assert found is not None
        answer = b'{"result":{"content":[{"type":"text","text":"%d"}]}}' % (int(found[1]) + int(found[2]))
        while perf_counter() < ends:
            pass
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))


async def main() -> None:
    """Serve on the loopback port named by the first argument, until the process is ended."""
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", int(sys.argv[1]), backlog=4096
    )
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
