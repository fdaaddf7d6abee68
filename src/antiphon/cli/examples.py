"""The examples and exit codes at the end of each command's `--help`.

typer joins the lines of a paragraph, except of one that begins with `\\b`.
"""

from __future__ import annotations

from antiphon.cli.exit_codes import EXIT_CODES

__all__ = ["epilog"]

_EXAMPLES = {
    "antiphon": (
        "antiphon run server.py",
        "antiphon call server.py greet name=Ada",
        "antiphon doctor https://mcp.example.com/mcp",
        "antiphon --install-completion",
    ),
    "run": (
        "antiphon run server.py",
        "antiphon run server.py:admin --port 9000 --workers 4 --store sqlite:///tasks.db",
        "antiphon run server.py --stdio",
        "antiphon run server.py --host 0.0.0.0 --hosts mcp.example.com",
    ),
    "worker": (
        "antiphon worker server.py --store sqlite:///tasks.db",
        "antiphon worker server.py --store postgresql://mcp@db/tasks",
    ),
    "call": (
        "antiphon call http://localhost:8000/mcp greet name=Ada",
        "antiphon call server.py draw 'at={\"x\": 3}' tags:='[\"red\"]' note=@note.txt",
        "antiphon call server.py resolve bug=7 --answer how=Fixed --no-input",
        "antiphon call $URL report --task; antiphon call $URL report --stream --json",
    ),
    "tools": ("antiphon tools server.py", "antiphon tools $URL --json"),
    "doctor": (
        "antiphon doctor http://localhost:8000/mcp",
        "antiphon doctor https://mcp.example.com/mcp --token $TOKEN --json",
    ),
    "login": (
        "antiphon login https://mcp.example.com/mcp",
        "antiphon login https://mcp.example.com/mcp --device",
        "antiphon login $URL --client-id my-client --scope notes:write",
    ),
    "logout": ("antiphon logout https://mcp.example.com/mcp",),
    "logins": ("antiphon logins", "antiphon logins --json"),
    "tasks": (
        "antiphon tasks ls sqlite:///tasks.db",
        "antiphon tasks watch http://localhost:8000/mcp ID",
        "antiphon tasks answer http://localhost:8000/mcp ID how=Fixed",
    ),
    "tasks ls": (
        "antiphon tasks ls sqlite:///tasks.db --limit 20",
        "antiphon tasks ls sqlite:///tasks.db --failed",
        "antiphon tasks ls $URL --protocol 2025-11-25",
    ),
    "tasks show": ("antiphon tasks show sqlite:///tasks.db ID --json",),
    "tasks export": ("antiphon tasks export sqlite:///tasks.db ID -o tests/histories/pay.json",),
    "tasks watch": ("antiphon tasks watch $URL ID && echo done",),
    "tasks answer": (
        "antiphon tasks answer $URL ID how=Fixed",
        "antiphon tasks answer $URL ID --default-answer decline",
    ),
    "tasks cancel": ("antiphon tasks cancel $URL ID",),
    "tasks retry": ("antiphon tasks retry sqlite:///tasks.db ID",),
    "tasks rm": ("antiphon tasks rm --expired sqlite:///tasks.db",),
    "store": (
        "antiphon store backup sqlite:///tasks.db backups/tasks.db",
        "antiphon store compact sqlite:///tasks.db",
    ),
    "store backup": ("antiphon store backup sqlite:///tasks.db backups/tasks-$(date +%F).db",),
    "store compact": ("antiphon store compact sqlite:///tasks.db --json",),
}


def epilog(command: str) -> str:
    """Return the end of a command's help."""
    lines = [f"  $ {line}" for line in _EXAMPLES[command]]
    return "\n".join(["\b", "Examples:", *lines, "", EXIT_CODES])
