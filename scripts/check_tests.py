"""Check that no test depends on a time, and that none reaches into what is private.

A test waits for an event, with a deadline that a slow machine keeps too: at least 30 seconds. So outside
`tests/support/polling.py` nothing sleeps, no deadline is shorter, and no assertion reads a clock. What has to
let real time pass, or to measure it, uses the helpers of that module, and is named in `tests/real_time.txt`,
a list that only gets shorter. A test looks at an object from outside: by what it does, or by a helper of its
package.

    python scripts/check_tests.py [FILE OR FOLDER …]
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path("tests")
HELPER = TESTS / "support" / "polling.py"
HELPER_MODULE = "tests.support.polling"
LISTED = TESTS / "real_time.txt"
RESTRICTED = {"Stopwatch", "moment", "pause", "pause_thread"}
"""What only the files of the list use of the helper."""
SHORTEST = 30.0
"""The shortest deadline of a wait, in seconds."""
DEADLINES: dict[str, int | None] = {
    "timeout": 0,
    "timeout_at": None,
    "wait_for": 1,
    "wait": 0,
    "wait_closed": None,
    "join": 0,
    "Barrier": None,
    "result": 0,
    "exception": 0,
    "communicate": None,
    "run": None,
    "run_process": None,
    "check_output": None,
    "check_call": None,
    "call": None,
    "until": 1,
    "wait_until": 1,
    "wait_procs": None,
    "create_connection": 1,
    "settimeout": 0,
    "select": 3,
    "move_on_after": 0,
    "fail_after": 0,
}
"""Functions that wait, and where their deadline is among the arguments; `None` if it has to be named."""
NAMES_OF_DEADLINES = {"timeout", "within"}
TAKEN_FOR_OURS = {"call"}
"""Functions whose `timeout` is an option of Antiphon if they are methods."""
SLEEPING = {"anyio", "asyncio", "time"}
"""Modules whose `sleep` waits; that of a `Context` is the library's, and parks a task."""
EXPIRED = {"TimedOut", "TimeoutError"}
"""What is raised at a deadline: a test that expects it waits for just that, so the deadline may be short."""
MONOTONIC = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
CLOCKS = MONOTONIC | {"time", "time_ns", "now", "utcnow"}
PUBLIC = {"_asdict", "_replace", "_fields", "_exit", "_make"}
"""Names that begin with an underscore and are documented."""


class Checker(ast.NodeVisitor):
    """Collects what is wrong in one file."""

    def __init__(self, path: Path, restricted: bool) -> None:
        self.path = path
        self.found: list[tuple[int, str]] = []
        self.uses_real_time = False
        self._restricted = restricted
        self._constants: dict[str, float] = {}
        self._first = 1
        self._timed: set[str] = set()
        self._classes: set[str] = set()
        self._of_helper: set[str] = set()
        self._is_to_expire = False

    def check(self, source: str, first: int = 1) -> None:
        """Check a program that begins on a line of the file."""
        tree = ast.parse(source)
        self._first = first
        for node in tree.body:
            if isinstance(node, ast.Assign) and (value := _number(node.value, {})) is not None:
                self._constants |= {each.id: value for each in node.targets if isinstance(each, ast.Name)}
        self._classes |= _own_names(tree)
        self._of_helper |= {
            name.asname or name.name
            for each in ast.walk(tree)
            if isinstance(each, ast.ImportFrom) and each.module == HELPER_MODULE
            for name in each.names
            if name.name in RESTRICTED
        }
        self.visit(tree)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sleep" and (_base(node.func) in SLEEPING or not isinstance(node.func, ast.Attribute)):
            self._refuse(
                node,
                "sleeps: wait for an event (`until`), for turns of the loop (`turns`), or `forever`",
            )
        elif name in MONOTONIC or (name == "time" and _base(node.func).endswith("loop")):
            self._refuse(node, "reads a clock: a test says what happens, not how long it takes")
        if (
            name in DEADLINES
            and not self._is_to_expire
            and (seconds := self._deadline(node, name)) is not None
            and 0 < seconds < SHORTEST
        ):
            self._refuse(node, f"waits {seconds:g} s for `{name}`: a deadline is at least {SHORTEST:g} s")
        if name in {"getattr", "setattr", "hasattr", "delattr", "delitem"}:
            for each in node.args[1:2]:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    self._private(each, each.value.rpartition(".")[2])
            if (
                name == "setattr"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                self._private(node, node.args[0].value.rpartition(".")[2])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._of_helper and node.id not in self._classes:
            self.uses_real_time = True
            if not self._restricted:
                self._refuse(node, f"uses `{node.id}`: only the files in {LISTED} may")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value
        if not (isinstance(base, ast.Name) and base.id in {"self", "cls"}):
            self._private(node, node.attr)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            if each.name == "sleep" and node.module in {"asyncio", "time", "anyio"}:
                self._refuse(node, "imports `sleep`")
            if not (node.module or "").startswith("tests"):
                self._private(node, each.name)

    def visit_Assert(self, node: ast.Assert) -> None:
        for each in ast.walk(node.test):
            is_clock = isinstance(each, ast.Call) and _is_clock(each)
            if is_clock or (isinstance(each, ast.Name) and each.id in self._timed):
                self._refuse(node, "asserts on a clock: assert what happened, and in which order")
                break
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._timed
        self._timed = before | {
            target.id
            for each in ast.walk(node)
            if isinstance(each, ast.Assign) and any(_is_clock(call) for call in ast.walk(each.value))
            for target in each.targets
            if isinstance(target, ast.Name)
        }
        self.generic_visit(node)
        self._timed = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        before = self._is_to_expire
        self._is_to_expire = before or any(_expects_expiry(item.context_expr) for item in node.items)
        self.generic_visit(node)
        self._is_to_expire = before

    visit_AsyncWith = visit_With

    def visit_Constant(self, node: ast.Constant) -> None:
        if (
            isinstance(node.value, str)
            and "\n" in node.value
            and ("sleep(" in node.value or "timeout(" in node.value)
        ):
            inner = Checker(self.path, self._restricted)
            try:
                inner.check(textwrap.dedent(node.value), self._first + node.lineno - 1)
            except SyntaxError:
                return
            self.found += inner.found
            self.uses_real_time |= inner.uses_real_time

    def _deadline(self, node: ast.Call, name: str) -> float | None:
        """Return the deadline of a call that waits; `None` if it has none that can be read."""
        if name in TAKEN_FOR_OURS and _base(node.func) not in {"subprocess"}:
            return None
        for keyword in node.keywords:
            if keyword.arg in NAMES_OF_DEADLINES:
                return _number(keyword.value, self._constants)
        place = DEADLINES[name]
        if place is None or len(node.args) <= place:
            return None
        return _number(node.args[place], self._constants)

    def _private(self, node: ast.AST, name: str) -> None:
        if name.startswith("_") and not name.startswith("__") and name not in PUBLIC | self._classes:
            self._refuse(node, f"reaches into `{name}`: look from outside, or use a helper of the package")

    def _refuse(self, node: ast.AST, why: str) -> None:
        self.found.append((self._first + getattr(node, "lineno", 1) - 1, why))


def _number(node: ast.AST, constants: dict[str, float]) -> float | None:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return float(node.value)
    return None


def _base(node: ast.AST) -> str:
    return ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""


def _is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in CLOCKS and _base(node.func) in {"time", "datetime", "datetime.datetime", "loop"}


def _expects_expiry(node: ast.AST) -> bool:
    """Return whether a context expects an error that is raised at a deadline."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "pytest.raises"
        and any(ast.unparse(each) in EXPIRED for each in node.args[:1])
    )


def _own_names(tree: ast.Module) -> set[str]:
    """Return the names that begin with an underscore and belong to the file itself."""
    named = {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    written = {
        each.attr
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id in {"self", "cls"}
    }
    return named | written


def check(path: Path, listed: set[str]) -> Iterator[str]:
    """Return what is wrong in a file."""
    checker = Checker(path, str(path) in listed)
    checker.check(path.read_text(encoding="utf-8"))
    for line, why in sorted(set(checker.found)):
        yield f"{path}:{line}: {why}"
    if str(path) in listed and not checker.uses_real_time:
        yield f"{LISTED}: {path} needs no real time any more: delete its line"


def main(arguments: list[str]) -> None:
    """Exit with 1 if a test depends on a time, or reaches into what is private."""
    roots = [Path(each) for each in arguments] or [TESTS]
    paths = sorted({each for root in roots for each in ([root] if root.is_file() else root.rglob("*.py"))})
    listed = {
        line for line in LISTED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    }
    problems = [problem for path in paths if path != HELPER for problem in check(path, listed)]
    problems += [f"{LISTED}: there is no {each}" for each in sorted(listed) if not Path(each).exists()]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
