"""Creates many tasks on one connection."""

from __future__ import annotations

import json

from tests.promises.speaking import Patient, wanted
from tests.support import http


async def flood(port: int, count: int) -> list[str]:
    """Create tasks, and return their ids."""
    speaker = Patient(port)
    ids = []
    async with http.connect(port) as connection:
        for number in range(count):
            params = {"name": "quick", "arguments": {"number": number}}
            headers, frame = speaker.build("tools/call", params, id=number)
            body = json.dumps(frame).encode()

            async def create(headers: dict[str, str] = headers, body: bytes = body) -> str | None:
                await connection.send("POST", "/mcp", headers, body)
                response = await connection.receive()
                # After 503 nothing was made: the disk stood still for longer than a server waits for others.
                return None if response.status == 503 else str(response.result["taskId"])

            ids.append(await wanted(create))
    return ids
