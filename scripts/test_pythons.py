"""Runs the fast part of the tests on each Python version that Antiphon supports and this machine has.

Each version has a virtual environment of its own, `.venv-3.12` for example. A version that the machine does
not have is skipped with a line that says so. The exit code is 1 if the tests fail on any version.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# These tests start few processes and need neither Node nor another MCP library.
FAST = ("model", "wire", "runtime", "server", "middleware", "transport", "asking", "store", "upgrade")
SOURCES = ("pyproject.toml", "requirements/unit.txt")
PROBE = "import ensurepip, sqlite3, ssl, sys; print('%d.%d' % sys.version_info[:2])"


def main(arguments: list[str]) -> int:
    """Test on every version, and print what came of each."""
    options = arguments or [f"tests/{folder}" for folder in FAST]
    verdicts = {version: try_version(version, options) for version in VERSIONS}
    print()
    for version, verdict in verdicts.items():
        print(f"Python {version}: {verdict}")
    return 1 if "failed" in verdicts.values() or "passed" not in verdicts.values() else 0


def try_version(version: str, options: list[str]) -> str:
    interpreter = next(interpreters(version), None)
    if interpreter is None:
        return f"skipped, there is no python{version} on PATH and none in pyenv"
    print(f"\nPython {version}, {interpreter}", flush=True)
    python = _environment(version, interpreter)
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=ROOT, env=clean, check=False)
    return "failed" if done.returncode else "passed"


def interpreters(version: str) -> Iterator[Path]:
    """Find the interpreters of a version: on PATH first, then pyenv's, the newest first."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob(f"versions/{version}.*/bin"), key=_patch, reverse=True)
    for folder in folders:
        candidate = folder / f"python{version}"
        if candidate.is_file() and _works(candidate, version):
            yield candidate


def _patch(folder: Path) -> int:
    """Return the last number of `versions/3.12.1/bin`, or 0 for a name such as `3.14.0rc1`."""
    patch = folder.parent.name.rpartition(".")[2]
    return int(patch) if patch.isdigit() else 0


def _works(candidate: Path, version: str) -> bool:
    """Tell whether an interpreter starts: a pyenv shim fails for a version that is not selected."""
    try:
        done = subprocess.run(
            [candidate, "-c", PROBE], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == version


def _environment(version: str, interpreter: Path) -> Path:
    """Return the Python of the version's virtual environment, and install what has changed."""
    folder = ROOT / f".venv-{version}"
    python, installed = folder / "bin" / "python", folder / "installed"
    sources = max((ROOT / source).stat().st_mtime for source in SOURCES)
    if installed.exists() and installed.stat().st_mtime > sources:
        return python
    subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run(
        [*install, "--editable", ".", "--requirement", "requirements/unit.txt"], cwd=ROOT, check=True
    )
    installed.touch()
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
