"""A server over standard streams that behaves badly, in the way that its first argument names."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.polling import wait_until  # it is a script

WAY = sys.argv[1]
FOLDER = Path(os.environ.get("FOLDER", "."))
"""Where the test and this server tell each other by files how far they are."""
MANY = int(sys.argv[2]) if len(sys.argv) > 2 else 0
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}
TOOL = {"inputSchema": {"type": "object"}}
lock = threading.Lock()
refused = threading.Event()
pages = 0
calls = 0


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
    global calls
    calls += 1
    if WAY == "hangs":
        (FOLDER / f"called-{os.getpid()}").touch()
        return
    if WAY == "withdraws":
        send({"id": "q", **QUESTION})
        wait_until((FOLDER / "asked").exists)
        send({"method": "notifications/cancelled", "params": {"requestId": "q", "reason": "never mind"}})
        answer(id, {**text("it was withdrawn"), "isError": True})
        (FOLDER / "withdrawn").touch()
    elif WAY == "leaks":
        print("password=hunter2", flush=True)
        os._exit(4)
    elif WAY == "dies":
        send({"id": "q", **QUESTION})
        wait_until((FOLDER / "asked").exists)
        (FOLDER / "withdrawn").touch()
        os._exit(7)
    elif WAY == "floods":
        for number in range(1000):
            send({"id": f"q{number}", **QUESTION})
        refused.wait()
        answer(id, text("done"))
    elif WAY == "changes":
        for _ in range(5000 if calls == 1 else 0):
            send({"method": "notifications/tools/list_changed"})
        answer(id, text(f"{pages} lists"))
    elif WAY == "marked":
        send({"method": "notifications/tools/list_changed"})
        answer(id, text("done"))
    elif WAY == "renames":
        answer(id, text(str(pages)))
    elif WAY == "late":
        answer(id, text("done"))
        wait_until((FOLDER / "ended").exists)
        send({"id": f"late{id}", **QUESTION})
    elif WAY == "ignores":
        (FOLDER / f"called-{os.getpid()}").touch()
        wait_until((FOLDER / "ask").exists)
        send({"id": f"q{id}", **QUESTION})
        wait_until((FOLDER / f"answered-{os.getpid()}").exists)
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
        if "FOLDER" in os.environ:
            (FOLDER / f"pinged-{os.getpid()}").touch()
    elif method == "notifications/cancelled" and WAY in ("hangs", "ignores"):
        pass
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "no"}})
    elif method is None:
        if "error" in message:
            refused.set()
        if "FOLDER" in os.environ:
            (FOLDER / f"answered-{os.getpid()}").touch()
