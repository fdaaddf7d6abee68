"""Reads the variables of a file such as `.env`. Messages name lines and never show values."""

from __future__ import annotations

import re
from pathlib import Path

from antiphon.cli.exit_codes import CommandError

__all__ = ["read_env_file"]

_MAX_FILE_BYTES = 1024 * 1024
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=(?P<value>[^\0]*)")
_QUOTED = re.compile(r"""(?P<mark>["'])(?P<text>.*?)(?P=mark)(?:\s+#.*)?""")
_COMMENT = re.compile(r"\s+#.*")


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file, one on a line: `NAME=VALUE`. Raises `CommandError`.

    A value may be in quotes. Lines that begin with `#` and text after ` #` are comments. Nothing is expanded.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise CommandError(f"{path} has more than {_MAX_FILE_BYTES} bytes.")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not text in UTF-8.") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise CommandError(f"{path}, line {number} is not a variable. Write NAME=VALUE.")
        quoted = _QUOTED.fullmatch(match["value"].strip())
        found[match["name"]] = quoted["text"] if quoted else _COMMENT.sub("", match["value"]).strip()
    return found
