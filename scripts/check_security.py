"""Run bandit over the library, and check that each exception from it names a check and a reason.

An exception is a comment of two parts: `nosec` with the id of the check, and the reason.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path("src")
_EXCEPTION = re.compile(r"#\s*nosec\b(?P<checks>[^#]*)(?:#\s*(?P<reason>.*))?")
_NOISE = "nosec encountered"
"""Bandit warns about every part of a statement that an exception covers and that needs none."""


def unexplained(path: Path) -> list[str]:
    """Return the lines of a file whose exception has no check or no reason."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _EXCEPTION.search(line)
        if match and not (re.search(r"\bB\d{3}\b", match["checks"]) and match["reason"]):
            found.append(f"{path}:{number}: write `# nosec B000 # the reason`: {line.strip()}")
    return found


def main() -> None:
    """Exit with 1 if bandit has findings, or if an exception is not explained."""
    problems = [problem for path in sorted(SOURCES.rglob("*.py")) for problem in unexplained(path)]
    print("\n".join(problems), end="\n" if problems else "")
    command = [sys.executable, "-m", "bandit", "--quiet", "--configfile", "pyproject.toml", "--recursive"]
    done = subprocess.run([*command, str(SOURCES)], stderr=subprocess.PIPE, encoding="utf-8", check=False)
    shown = [line for line in done.stderr.splitlines() if _NOISE not in line]
    print("\n".join(shown), file=sys.stderr, end="\n" if shown else "")
    sys.exit(1 if problems else done.returncode)


if __name__ == "__main__":
    main()
