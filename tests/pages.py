"""Runs what a page of the documentation shows: its Python, and what it types at a prompt.

- The ```python blocks of a page run in order, in one namespace, in a directory of the page's own. A block
  whose first line is `# name.py` is also written to that file, and is the server from there on, unless it is
  a test (`# test_name.py`), which is only written. A ```toml block whose first line is `# name.toml` is
  written to that file.
- `<!-- file: path -->` puts a file of the project, or of a package of the tests, into the directory.
- The ```console blocks are typed at a shell, line by line after `$ `; what is printed must be what the page
  shows. A line `…` in it stands for any number of lines, and a `…` in a line for a part of it. `antiphon run`
  and `antiphon gateway` start a server that stays, and `antiphon worker` a worker.
- The ```terminal blocks are one command each, with a person in front of it, who types what stands after each
  prompt.
- The address http://127.0.0.1:8000 stands for that server, wherever it really listens.
- A block after `<!-- skip: reason -->` is not run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.command import COMMAND, PATIENCE, Running, plain_environment, running
from tests.cli.pseudo_terminal import in_terminal
from tests.support.process import ROOT

ADDRESS = "http://127.0.0.1:8000/mcp"
RUN = ("python", "console", "terminal")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SKIPPED = re.compile(r"<!-- skip: \S.*? -->\s*\Z")
_FILE = re.compile(r"<!-- file: (\S+) -->\s*\Z")
_NAMED = re.compile(r"# (\w+\.(?:py|toml))\n")
_PROMPT = re.compile(r"(.+[)\]]:) ?(.*)")


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    language: str
    text: str
    line: int
    skipped: bool
    file: str | None = None
    """The file that the block needs, relative to the project."""


def blocks(page: Path) -> Iterator[Block]:
    """The code on a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        needed = _FILE.search(before)
        skipped, file = bool(_SKIPPED.search(before)), needed[1] if needed else None
        yield Block(match[1], match[2], before.count("\n") + 1, skipped, file)


class Reader:
    """Someone who follows a page from its top to its end."""

    def __init__(self, page: Path, directory: Path) -> None:
        self._page = page
        self._directory = directory
        self._module = types.ModuleType("page")
        self._command: list[str] = []
        self._server: Running | None = None
        self._servers = ExitStack()
        self._environment = plain_environment({"PATH": f"{self._shim()}{os.pathsep}{os.environ['PATH']}"})

    def follow(self) -> int:
        """Do what the page says; how many blocks were run."""
        done = 0
        sys.modules["page"] = self._module
        with self._servers:
            for block in blocks(self._page):
                if block.language == "toml":
                    self._write(block)
                if block.skipped or block.language not in RUN:
                    continue
                if block.file is not None:
                    (self._directory / Path(block.file).name).symlink_to(ROOT / block.file)
                {"python": self._run, "console": self._type, "terminal": self._sit}[block.language](block)
                done += 1
        return done

    def _run(self, block: Block) -> None:
        if name := self._write(block):
            if name.startswith("test_"):
                return  # pytest runs it
            self._become(["run", name])
        source = "\n" * block.line + self._here(block.text)
        code = compile(source, str(self._page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, vars(self._module)))
        else:
            exec(code, vars(self._module))

    def _write(self, block: Block) -> str | None:
        """Write a block to the file that its first line names; return the name."""
        named = _NAMED.match(block.text)
        if named is None:
            return None
        (self._directory / named[1]).write_text(block.text, encoding="utf-8")
        return named[1]

    def _type(self, block: Block) -> None:
        for command, expected in _typed(block.text):
            where = f"{self._page.name}, line {block.line}: {command}"
            words = shlex.split(command)
            if words[:2] in (["antiphon", "run"], ["antiphon", "gateway"]):
                self._become(words[1:])
                printed = self._announced()
            elif words[:2] == ["antiphon", "worker"]:
                printed = self._servers.enter_context(self._working(words[1:]))
            else:
                printed = self._shell(self._here(command))
            assert _matches(expected, printed), f"{where}\nprinted:\n{printed}\nand the page has:\n{expected}"

    def _sit(self, block: Block) -> None:
        """Sit in front of a terminal, and answer what the command asks there."""
        ((command, expected),) = _typed(block.text)
        assert command.startswith("antiphon "), "a person at a terminal runs antiphon"
        words = shlex.split(self._here(command))[1:]
        with in_terminal(*words, cwd=self._directory, env={"COLUMNS": "200"}) as terminal:
            for line in expected.splitlines():
                if prompt := _PROMPT.fullmatch(line):
                    terminal.expect(f"{prompt[1]} ")
                    terminal.type_line(prompt[2])
            _, printed = terminal.wait()
        seen = re.sub(r" +$", "", f"{terminal.screen}{printed}", flags=re.MULTILINE)
        where = f"{self._page.name}, line {block.line}: {command}"
        assert _matches(expected, seen), f"{where}\nprinted:\n{seen}\nand the page has:\n{expected}"

    def _become(self, command: list[str]) -> None:
        """Serve this from now on, once it is needed."""
        self._command, self._server = command, None

    def _serve(self) -> Running:
        if self._server is None:
            assert self._command, "the page has no server yet"
            command, target, *options = self._command
            kept = [word for word in options if word != "--port" and not word.isdigit()]
            logs = self._directory / f"logs{len(list(self._directory.iterdir()))}"
            logs.mkdir()
            self._server = self._servers.enter_context(
                running(target, *kept, directory=logs, cwd=self._directory, command=command)
            )
        return self._server

    def _announced(self) -> str:
        server = self._serve()
        return server.log.replace(server.url, ADDRESS)

    @contextmanager
    def _working(self, words: list[str]) -> Iterator[str]:
        """A worker that stays until the end of the page: what it says first."""
        with subprocess.Popen(
            [*COMMAND, *words],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline()
            finally:
                process.terminate()

    def _here(self, text: str) -> str:
        """The text with the address of the server that is really there."""
        base = ADDRESS.removesuffix("mcp")
        return text.replace(base, self._serve().url.removesuffix("mcp")) if base in text else text

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        printed = done.stdout
        return printed.replace(self._server.url, ADDRESS) if self._server is not None else printed

    def _shim(self) -> Path:
        """A folder with the commands `antiphon`, `pytest` and `python` in it."""
        folder = self._directory / "bin"
        folder.mkdir()
        for name, words in (("antiphon", "-m antiphon"), ("pytest", "-m pytest"), ("python", "")):
            shim = folder / name
            shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            shim.chmod(0o755)
        return folder


def _typed(text: str) -> Iterator[tuple[str, str]]:
    """Each command, and what the page shows after it."""
    command: str | None = None
    shown: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, "\n".join(shown)
            command, shown = line[2:], []
        elif command is not None and command.endswith("\\"):
            command = f"{command[:-1]}{line.strip()}"
        else:
            shown.append(line)
    assert command is not None, "a console block without a command"
    yield command, "\n".join(shown)


def _matches(expected: str, printed: str) -> bool:
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^…$", expected, flags=re.MULTILINE)]
    parts = [part.replace("…", r"[^\n]*") for part in parts]
    return re.fullmatch(r"\s*" + r"\n?.*\n?".join(parts) + r"\s*", printed, re.DOTALL) is not None
