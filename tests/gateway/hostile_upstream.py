"""A server over standard streams that behaves badly, in the way that its first argument names."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

WAY = sys.argv[1]
MANY = int(sys.argv[2]) if len(sys.argv) > 2 else 0
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}
TOOL = {"inputSchema": {"type": "object"}}
lock = threading.Lock()
pages = 0


def send(message: dict[str, Any]) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(id: Any, result: Any) -> None:
    send({"id": id, "result": result})


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def tools(id: Any) -> None:
    global pages
    pages += 1
    if WAY == "endless":
        answer(id, {"tools": [{"name": f"t{pages}", **TOOL}], "nextCursor": str(pages)})
    elif WAY == "huge":
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[],"x":"')
        while True:
            sys.stdout.write("x" * (1 << 20))
    elif (
        WAY == "renames"
    ):  # every list has other names, and is announced to have changed as soon as it is read
        answer(
            id, {"tools": [{"name": "do", **TOOL}, *({"name": f"t{pages}x{n}", **TOOL} for n in range(MANY))]}
        )
        send({"method": "notifications/tools/list_changed"})
    elif WAY == "marked":  # as a gateway does whose own servers were connected late
        protected = {"_meta": {"dev.antiphon/protected": True}} if pages > 1 else {}
        answer(id, {"tools": [{"name": "do", **TOOL}, {"name": "wipe", **TOOL, **protected}]})
    elif WAY != "silent":
        strange = {"name": "", **TOOL}, {"name": "bad", "inputSchema": "none"}, {"name": "do", **TOOL}
        answer(id, {"tools": [*strange, {"name": "do", **TOOL}]})


def call(id: Any) -> None:
    if WAY == "hangs":
        return
    if WAY == "withdraws":
        send({"id": "q", **QUESTION})
        time.sleep(0.3)
        send({"method": "notifications/cancelled", "params": {"requestId": "q", "reason": "never mind"}})
        time.sleep(0.1)
        answer(id, {**text("it was withdrawn"), "isError": True})
    elif WAY == "leaks":
        print("password=hunter2", flush=True)
        os._exit(4)
    elif WAY == "dies":
        send({"id": "q", **QUESTION})
        time.sleep(0.3)
        os._exit(7)
    elif WAY == "floods":
        for number in range(1000):
            send({"id": f"q{number}", **QUESTION})
        answer(id, text("done"))
    elif WAY == "changes":
        for _ in range(5000):
            send({"method": "notifications/tools/list_changed"})
        answer(id, text(f"{pages} lists"))
    elif WAY == "marked":
        send({"method": "notifications/tools/list_changed"})
        answer(id, text("done"))
    elif WAY == "renames":
        answer(id, text(str(pages)))
    elif WAY == "late":
        answer(id, text("done"))
        time.sleep(0.2)
        send({"id": f"late{id}", **QUESTION})
    elif WAY == "ignores":
        time.sleep(1)
        send({"id": f"q{id}", **QUESTION})
        time.sleep(0.5)
        answer(id, text("done"))
    elif WAY == "nonsense":
        sys.stdout.write("\x1b[31mnot JSON\n")
        send({"id": "nobody", "result": 3})
        answer(id, {"content": 17})
    elif WAY == "escapes":
        send({"id": id, "error": {"code": -32000, "message": "\x1b[31mred\nlines"}})


for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        capabilities = {"tools": {"listChanged": WAY in ("changes", "renames", "marked")}}
        answer(
            id,
            {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "serverInfo": {"name": "hostile", "version": "1"},
            },
        )
    elif method == "tools/list":
        tools(id)
    elif method == "tools/call":
        threading.Thread(target=call, args=(id,), daemon=True).start()
    elif method == "ping":
        answer(id, {})
    elif method == "notifications/cancelled" and WAY in ("hangs", "ignores"):
        pass
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "no"}})
    elif method is None and "result" in message:
        sys.stderr.write(f"answered {id}\n")
