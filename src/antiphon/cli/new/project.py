"""Creates the files of a new project from the templates beside this module."""

from __future__ import annotations

import os
import re
from pathlib import Path

from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.printable import printable

__all__ = ["create_project"]

_TEMPLATES = Path(__file__).with_name("template")
_FILES = {
    "server.py": "server.py.txt",
    "test_server.py": "test_server.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
"""The files of a project, and their templates, whose names no tool takes for code of this package."""
_PLACEHOLDER = "{{name}}"
_MAX_NAME_CHARACTERS = 64
# https://packaging.python.org/en/latest/specifications/name-normalization/
_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")


def create_project(name: str, folder: Path) -> None:
    """Create a project in a folder, and print what to do next. Raises `CommandError`."""
    _check_name(name)
    is_new = folder != Path()
    try:
        if is_new:
            folder.mkdir()
        elif taken := [file for file in _FILES if os.path.lexists(file)]:
            raise CommandError(f"This folder has {', '.join(taken)} already. Nothing was written.", FAILED)
        for file, template in _FILES.items():
            text = (_TEMPLATES / template).read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
            with open(folder / file, "x", encoding="utf-8") as created:
                created.write(text)
    except FileExistsError:
        raise CommandError(
            f"There is a {folder} already. Choose another name, or run antiphon new {name} --here in it.",
            FAILED,
        ) from None
    except OSError as error:
        raise CommandError(f"Cannot create {folder}: {error.strerror}.", FAILED) from None
    print(f"Created {', '.join(_FILES)}{f' in {folder}' if is_new else ''}. Next:")
    if is_new:
        print(f"  cd {folder}")
    print("  antiphon dev server.py")
    print("  pip install -e '.[test]' && pytest")
    print("The last line needs Antiphon in the same environment. README.md says how to install it.")


def _check_name(name: str) -> None:
    """Raise `CommandError` if a name cannot be the name of a Python project."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARACTERS:
        raise CommandError(
            f"{printable(name, _MAX_NAME_CHARACTERS)!r} is not a name for a project. Use at most "
            f"{_MAX_NAME_CHARACTERS} letters, digits, hyphens, dots and underscores, with a letter or digit "
            "at both ends."
        )
    if re.sub(r"[-_.]+", "-", name).lower() == "antiphon":
        raise CommandError("The project needs the package antiphon, so it needs another name.")
