"""Creates many tasks on one connection."""

from __future__ import annotations

import asyncio
import json

from tests.promises.speaking import Patient
from tests.support import http


async def flood(port: int, count: int) -> list[str]:
    """Create tasks, and return their ids."""
    speaker = Patient(port)
    ids = []
    async with http.connect(port) as connection:
        for number in range(count):
            params = {"name": "quick", "arguments": {"number": number}}
            headers, frame = speaker.build("tools/call", params, id=number)
            while True:
                await connection.send("POST", "/mcp", headers, json.dumps(frame).encode())
                response = await connection.receive()
                if response.status != 503:
                    break
                # The disk stood still for longer than a server waits for others: nothing was made.
                await asyncio.sleep(int(response.headers["retry-after"]))
            ids.append(response.result["taskId"])
    return ids
