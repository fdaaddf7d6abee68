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
        "antiphon run --port 9000 --task search -- their-server --option",
    ),
    "new": ("antiphon new my-server", "antiphon new my-server --here"),
    "dev": (
        "antiphon dev server.py",
        "antiphon dev server.py --port 9000 --console-port 9001 --no-open",
    ),
    "worker": (
        "antiphon worker server.py --store sqlite:///tasks.db",
        "antiphon worker server.py --store postgresql://mcp@db/tasks",
    ),
    "gateway": (
        "antiphon gateway http://localhost:8001/mcp notes=http://localhost:8002/mcp --port 9000",
        "antiphon gateway --port 9000 -- npx -y @modelcontextprotocol/server-everything",
        "antiphon gateway --config servers.json --task git_clone --store sqlite:///tasks.db",
    ),
    "console": (
        "antiphon console --store sqlite:///tasks.db",
        "antiphon console http://localhost:8000/mcp server.py --store postgresql://mcp@db/tasks",
        "antiphon console --read-only --no-open --store sqlite:///tasks.db",
        "antiphon console -- npx -y @modelcontextprotocol/server-everything",
    ),
    "install": (
        "antiphon install server.py --host claude-desktop",
        "antiphon install server.py --host vscode --project --env TOKEN",
        "antiphon install https://mcp.example.com/mcp --host claude-code --name example --yes",
        "antiphon install --host cursor -- npx -y @modelcontextprotocol/server-everything",
    ),
    "mcp-json": (
        "antiphon mcp-json server.py --env-file .env",
        "antiphon mcp-json server.py > servers.json; antiphon gateway --config servers.json",
    ),
    "call": (
        "antiphon call http://localhost:8000/mcp greet name=Ada",
        "antiphon call server.py draw 'at={\"x\": 3}' tags:='[\"red\"]' note=@note.txt",
        "antiphon call server.py resolve bug=7 --answer value=Fixed --no-input",
        "antiphon call $URL report --task; antiphon call $URL report --stream --json",
        "antiphon call $URL draw --save pictures/",
        "antiphon call read_file path=notes.txt -- npx @modelcontextprotocol/server-filesystem .",
    ),
    "tools": (
        "antiphon tools server.py",
        "antiphon tools $URL --json",
        "antiphon tools --env TOKEN -- uvx mcp-server-git",
    ),
    "resources": ("antiphon resources server.py", "antiphon resources $URL --json"),
    "read": (
        "antiphon read http://localhost:8000/mcp notes://today",
        "antiphon read $URL pictures://logo --save logo.png --force",
        "antiphon read file:///tmp/notes.txt -- npx @modelcontextprotocol/server-filesystem /tmp",
    ),
    "prompts": ("antiphon prompts server.py", "antiphon prompts --env TOKEN -- uvx mcp-server-fetch"),
    "prompt": (
        "antiphon prompt http://localhost:8000/mcp review language=Python code=@server.py",
        "antiphon prompt $URL review code=@server.py --json",
    ),
    "complete": (
        "antiphon complete http://localhost:8000/mcp review language py",
        "antiphon complete $URL 'repo://{owner}/{name}' name ant owner=ada",
    ),
    "inbox": (
        "antiphon inbox http://localhost:8000/mcp",
        "antiphon inbox $URL --json; antiphon inbox $URL --watch",
        "antiphon inbox $URL ID comment=Fine; antiphon inbox $URL ID --default-answer decline",
    ),
    "doctor": (
        "antiphon doctor http://localhost:8000/mcp",
        "antiphon doctor https://mcp.example.com/mcp --token $TOKEN --json",
        "antiphon doctor -- uvx mcp-server-time",
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
        "antiphon tasks answer http://localhost:8000/mcp ID value=Fixed",
    ),
    "tasks ls": (
        "antiphon tasks ls sqlite:///tasks.db --limit 20",
        "antiphon tasks ls sqlite:///tasks.db --outcome failed --tool pay --newer 2h",
        "antiphon tasks ls sqlite:///tasks.db --phase waiting --older 7d",
        "antiphon tasks ls $URL --protocol 2025-11-25",
    ),
    "tasks show": ("antiphon tasks show sqlite:///tasks.db ID --json",),
    "tasks export": (
        "antiphon tasks export sqlite:///tasks.db ID -o tests/histories/pay.json",
        "antiphon tasks export sqlite:///tasks.db --all > tasks.jsonl",
        "antiphon tasks export sqlite:///tasks.db --phase waiting --tool pay -o waiting.jsonl",
    ),
    "tasks import": (
        "antiphon tasks import postgresql://mcp@db/tasks tasks.jsonl",
        "antiphon tasks export sqlite:///tasks.db --all | antiphon tasks import postgresql://mcp@db/tasks -",
    ),
    "tasks watch": ("antiphon tasks watch $URL ID && echo done",),
    "tasks answer": (
        "antiphon tasks answer $URL ID value=Fixed",
        "antiphon tasks answer $URL ID --default-answer decline",
    ),
    "tasks send": (
        "antiphon tasks send sqlite:///tasks.db payment 42 '{\"amount\": 1240}'",
        "antiphon tasks send sqlite:///tasks.db approved 42 --id delivery-7 --server shop",
    ),
    "tasks cancel": ("antiphon tasks cancel $URL ID",),
    "tasks retry": ("antiphon tasks retry sqlite:///tasks.db ID",),
    "tasks rm": ("antiphon tasks rm --expired sqlite:///tasks.db",),
    "store": (
        "antiphon store backup sqlite:///tasks.db backups/tasks.db",
        "antiphon store check sqlite:///tasks.db",
        "antiphon store prune sqlite:///tasks.db --ended-before 30d",
    ),
    "store backup": ("antiphon store backup sqlite:///tasks.db backups/tasks-$(date +%F).db",),
    "store check": ("antiphon store check postgresql://mcp@db/tasks --json",),
    "store prune": (
        "antiphon store prune sqlite:///tasks.db --ended-before 30d",
        "antiphon store prune sqlite:///tasks.db --ended-before 7d --outcome done --tool report",
    ),
    "store compact": ("antiphon store compact sqlite:///tasks.db --json",),
}


def epilog(command: str) -> str:
    """Return the end of a command's help."""
    lines = [f"  $ {line}" for line in _EXAMPLES[command]]
    return "\n".join(["\b", "Examples:", *lines, "", EXIT_CODES])
