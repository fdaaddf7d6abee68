"""Check that no test depends on a time, and that none reaches into what is private.

A test waits for an event, with a deadline that a slow machine keeps too: at least 30 seconds. So outside
`tests/support/polling.py` nothing sleeps, no deadline is shorter, and no assertion reads a clock. What has to
let real time pass, or to measure it, uses the helpers of that module, and is named in `tests/real_time.txt`
with its reason, a list that only gets shorter. A test looks at an object from outside: by what it does, or by
a helper of its package.

    python scripts/check_tests.py [FILE OR FOLDER …]
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TESTS = Path("tests")
HELPER = TESTS / "support" / "polling.py"
OWN_TESTS = TESTS / "test_tests_check.py"
"""The tests of this check: their strings are tests that it refuses."""
LISTED = TESTS / "real_time.txt"
MOST_LISTED = 12
"""The number of lines of that list: lower it when the list gets shorter, and never raise it."""
RESTRICTED = {"Stopwatch", "moment", "pause", "pause_thread"}
"""What only the files of the list use of the helper."""

SHORTEST = 30.0
"""The shortest deadline of a wait, in seconds."""
DEADLINES: Mapping[str, int | None] = {
    "AsyncClient": None,
    "Barrier": None,
    "Client": None,
    "Timer": 0,
    "acquire": 1,
    "alarm": 0,
    "as_completed": None,
    "call": None,
    "call_later": 0,
    "check_call": None,
    "check_output": None,
    "communicate": None,
    "create_connection": 1,
    "exception": 0,
    "fail_after": 0,
    "get": None,
    "join": 0,
    "move_on_after": 0,
    "open_connection": None,
    "poll": 0,
    "post": None,
    "put": None,
    "request": None,
    "result": 0,
    "run": None,
    "run_process": None,
    "select": 3,
    "setdefaulttimeout": 0,
    "setitimer": 1,
    "settimeout": 0,
    "stream": None,
    "timeout": 0,
    "until": 1,
    "urlopen": 2,
    "wait": 0,
    "wait_closed": None,
    "wait_for": 1,
    "wait_procs": None,
    "wait_until": 1,
}
"""Functions that wait, and where their deadline is among the arguments; `None` if it has to be named."""
MILLISECONDS: Mapping[str, int | None] = {
    "click": None,
    "fill": None,
    "goto": None,
    "press": None,
    "set_default_navigation_timeout": 0,
    "set_default_timeout": 0,
    "set_options": None,
    "wait_for_event": None,
    "wait_for_function": None,
    "wait_for_load_state": None,
    "wait_for_selector": None,
    "wait_for_timeout": 0,
    "wait_for_url": None,
}
"""The same of a browser, which counts in milliseconds, as its expectations do (`to_be_…`, `to_have_…`)."""
NAMES_OF_DEADLINES = {"delay", "interval", "seconds", "timeout", "within"}
ONLY_OF = {"Client": {"httpx"}, "call": {"subprocess"}}
"""Names of the table that Antiphon has as well, with another meaning: where they come from if they count."""
SLEEPING = {"anyio", "asyncio", "curio", "eventlet", "gevent", "time", "trio"}
"""Modules whose `sleep` waits; that of a `Context` is the library's, and parks a task."""
EXPIRED = {"TimedOut", "TimeoutError"}
"""What is raised at a deadline: a test that expects it waits for just that, so the deadline may be short."""
MONOTONIC = {"monotonic", "perf_counter"}
CLOCKS = MONOTONIC | {"now", "time", "today", "utcnow"}
OF_CLOCKS = {"date", "datetime", "loop", "time"}
ROUNDING = {"abs", "float", "int", "max", "min", "round", "sum", "timestamp", "total_seconds"}
"""Functions whose result is a time if their argument is one."""
BY_NAME = {"attrgetter", "delattr", "delitem", "getattr", "hasattr", "object", "patch", "setattr"}
"""Functions that reach an attribute by a string."""
PUBLIC = {"_asdict", "_replace", "_fields", "_exit", "_make"}
"""Names that begin with an underscore and are documented."""

PROGRAM = re.compile(r"sleep\(|timeout\(|wait\(|join\(|monotonic\(|perf_counter\(")
"""What makes a string a program to check, if it is one in Python."""
FOREIGN = [
    (re.compile(r"\b(?:asyncio|time)\.sleep\("), 1, None),
    (re.compile(r"\bset(?:Timeout|Interval)\((?:[^;]*?),\s*(\d+)\)"), 1000, 1),
    (re.compile(r"\bsleep (\d*\.?\d+)"), 1, 1),
]
"""How other strings sleep, what they count by, and the group with the number: pieces, JavaScript, a shell."""
OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Checker(ast.NodeVisitor):
    """Collects what is wrong in one file."""

    def __init__(self, path: Path, restricted: bool) -> None:
        self.path = path
        self.found: list[tuple[int, str]] = []
        self.uses_real_time = False
        self._restricted = restricted
        self._first = 1
        self._names: dict[str, str] = {}
        """What each imported name stands for."""
        self._constants: dict[str, float] = {}
        self._timed: set[str] = set()
        """Variables whose value a clock has given."""
        self._own: set[str] = set()
        self._is_to_expire = False

    def check(self, source: str, first: int = 1) -> None:
        """Check a program that begins on a line of the file."""
        tree = ast.parse(source)
        self._first = first
        self._names = _imported(tree)
        for local, full in self._names.items():
            module, _, name = full.rpartition(".")
            if (number := _constants_of(module).get(name)) is not None:
                self._constants[local] = number
        self._constants |= _numbers(tree, self._constants)
        self._own = _own_names(tree)
        self.visit(tree)

    def visit_Call(self, node: ast.Call) -> None:
        full = self._full_name(node.func)
        name = full.rpartition(".")[2]
        if self._reads_clock(node) and name.removesuffix("_ns") in MONOTONIC:
            self._refuse(node, "reads a clock: a test says what happens, not how long it takes")
        if not self._is_to_expire and (seconds := self._deadline(node, full)) and 0 < seconds < SHORTEST:
            self._refuse(node, f"waits {seconds:g} s for `{name}`: a deadline is at least {SHORTEST:g} s")
        if name in BY_NAME:
            texts = [text for each in node.args[:2] if (text := _text(each)) is not None]
            for text in texts:
                for part in text.split("."):
                    self._private(node, part)
            if name == "getattr" and "sleep" in texts and _sleeps(f"{self._full_name(node.args[0])}.sleep"):
                self._refuse_sleep(node)
        self._check_commands(node.args)
        self.generic_visit(node)

    def visit_List(self, node: ast.List | ast.Tuple) -> None:
        self._check_commands(node.elts)
        self.generic_visit(node)

    visit_Tuple = visit_List

    def visit_Name(self, node: ast.Name) -> None:
        self._check_helper(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value
        if not (isinstance(base, ast.Name) and base.id in {"self", "cls"}):
            self._private(node, node.attr)
        if _sleeps(self._full_name(node)):
            self._refuse_sleep(node)
        self._check_helper(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        name = ast.unparse(node.value)
        if (text := _text(node.slice)) and (name.startswith("vars(") or name.endswith(".__dict__")):
            self._private(node, text)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._private_modules(node, each.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for each in node.names:
            if _sleeps(f"{module}.{each.name}"):
                self._refuse_sleep(node)
            if not module.startswith("tests"):
                self._private_modules(node, module)
                self._private(node, each.name)

    def visit_Assert(self, node: ast.Assert) -> None:
        if self._is_timed(node.test, self._timed):
            self._refuse(node, "asserts on a clock: assert what happened, and in which order")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if self._is_timed(node.test, self._timed):
            self._refuse(node, "goes on until a time: wait for an event (`until`)")
        before, self._is_to_expire = self._is_to_expire, True  # a loop looks again after each deadline
        self.visit(node.test)
        self._is_to_expire = before
        for each in (*node.body, *node.orelse):
            self.visit(each)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._timed, self._constants
        self._constants = self._constants | _numbers(node, self._constants)
        self._timed = self._timed | self._given_by_clocks(node.body)
        self.generic_visit(node)
        self._timed, self._constants = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        before = self._is_to_expire
        self._is_to_expire = before or any(_expects_expiry(item.context_expr) for item in node.items)
        self.generic_visit(node)
        self._is_to_expire = before

    visit_AsyncWith = visit_With

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._check_program(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._check_program(node, "".join(_text(each) or "_" for each in node.values))
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                self.visit(each)

    def _check_program(self, node: ast.expr, text: str) -> None:
        """Check a string, if it is a program."""
        try:
            is_python = PROGRAM.search(text) is not None
            tree = ast.parse(textwrap.dedent(text)) if is_python else None
        except SyntaxError:
            tree = None
        if tree is not None:
            inner = Checker(self.path, self._restricted)
            inner.check(textwrap.dedent(text), self._first + node.lineno - 1)
            self.found += inner.found
            self.uses_real_time |= inner.uses_real_time
            return
        for pattern, units, group in FOREIGN:
            for found in pattern.finditer(text):
                short = group is None or 0 < float(found[group]) / units < SHORTEST
                if short and "while" not in text:  # a loop that polls has to wait
                    self._refuse_sleep(node)

    def _check_commands(self, words: Sequence[ast.expr]) -> None:
        """Check the words of a command."""
        for word, following in itertools.pairwise(words):
            seconds = _text(following) or ""
            if _text(word) == "sleep" and re.fullmatch(r"[\d.]+", seconds) and float(seconds) < SHORTEST:
                self._refuse_sleep(word)

    def _check_helper(self, node: ast.Name | ast.Attribute) -> None:
        """Refuse what only the files of the list use of the helper, however it was imported."""
        full = self._full_name(node)
        if full.startswith("tests.") and full.rpartition(".")[2] in RESTRICTED:
            self.uses_real_time = True
            if not self._restricted:
                self._refuse(node, f"uses `{full.rpartition('.')[2]}`: only the files in {LISTED} may")

    def _full_name(self, node: ast.AST) -> str:
        """Return the name of a function from its module on, whatever the file calls it."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        if isinstance(node, ast.Call):
            called = self._full_name(node.func)
            is_import = called.endswith(("__import__", "import_module")) and node.args
            return (_text(node.args[0]) if is_import else None) or called
        return "?"

    def _reads_clock(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        *base, name = self._full_name(node.func).split(".")
        name = name.removesuffix("_ns")
        return name in MONOTONIC or (
            name in CLOCKS and bool(base) and (base[-1] in OF_CLOCKS or base[-1].endswith("_loop"))
        )

    def _is_timed(self, node: ast.AST, timed: set[str]) -> bool:
        """Return whether a value depends on a clock."""
        return any(
            self._reads_clock(each) or (isinstance(each, ast.Name) and each.id in timed)
            for each in ast.walk(node)
        )

    def _computes_with_time(self, node: ast.expr, timed: set[str]) -> bool:
        """Return whether a value comes from clocks, and not from a function that was told a time."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        told = any(
            not self._reads_clock(each) and self._full_name(each.func).rpartition(".")[2] not in ROUNDING
            for each in calls
        )
        return not told and self._is_timed(node, timed)

    def _given_by_clocks(self, body: Sequence[ast.stmt]) -> set[str]:
        """Return the variables whose value depends on a clock, directly or by another variable."""
        timed = set(self._timed)
        assigned = [pair for each in body for pair in _assigned(each)]
        for _ in assigned:
            more = {name for name, value in assigned if self._computes_with_time(value, timed)}
            if more <= timed:
                break
            timed |= more
        return timed

    def _deadline(self, node: ast.Call, full: str) -> float | None:
        """Return the deadline of a call that waits, in seconds; `None` if it has none that can be read."""
        *base, name = full.split(".")
        if name in ONLY_OF and not ONLY_OF[name] & set(base):
            return None
        in_milliseconds = name in MILLISECONDS or name.startswith(("expect_", "to_be_", "to_have_"))
        if name not in DEADLINES and not in_milliseconds:
            return None
        place = {**DEADLINES, **MILLISECONDS}.get(name)
        named = [each.value for each in node.keywords if each.arg in NAMES_OF_DEADLINES]
        given = named or ([] if place is None else node.args[place : place + 1])
        seconds = _number(given[0], self._constants) if given else None
        return seconds / 1000 if in_milliseconds and seconds is not None else seconds

    def _private_modules(self, node: ast.AST, module: str) -> None:
        """Refuse a private module of Antiphon; other libraries document some of theirs."""
        first, *rest = module.split(".")
        for each in rest if first == "antiphon" else []:
            self._private(node, each)

    def _private(self, node: ast.AST, name: str) -> None:
        if name.startswith("_") and not name.startswith("__") and name not in PUBLIC | self._own:
            self._refuse(node, f"reaches into `{name}`: look from outside, or use a helper of the package")

    def _refuse_sleep(self, node: ast.AST) -> None:
        why = "sleeps: wait for an event (`until`), for turns of the loop (`turns`), or `forever`"
        self._refuse(node, why)

    def _refuse(self, node: ast.AST, why: str) -> None:
        self.found.append((self._first + getattr(node, "lineno", 1) - 1, why))


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _number(node: ast.AST, constants: Mapping[str, float]) -> float | None:
    """Return the value of an expression of numbers."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _number(node.left, constants), _number(node.right, constants)
        try:
            return None if left is None or right is None else OPERATORS[type(node.op)](left, right)
        except ZeroDivisionError:
            return None
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    return None


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Return the variables that get a value anywhere in a statement, and the value of each."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            targets, value = each.targets, each.value
        elif isinstance(each, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and each.value is not None:
            targets, value = [each.target], each.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=False)
            else:
                pairs = zip([target], [value], strict=True)
            yield from ((name.id, given) for name, given in pairs if isinstance(name, ast.Name))


def _numbers(node: ast.AST, constants: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that a module or a function, but none of its functions, gives names to."""
    numbers = dict(constants)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names, defaults = [*node.args.posonlyargs, *node.args.args], node.args.defaults
        given = [(name.arg, value) for name, value in zip(names[::-1], defaults[::-1], strict=False)]
        given += [
            (name.arg, value)
            for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if value is not None
        ]
    else:
        given = []
    blocks = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body: list[ast.stmt] = getattr(node, "body", [])
    given += [pair for each in body if not isinstance(each, blocks) for pair in _assigned(each)]
    for name, value in given:
        if (number := _number(value, numbers)) is not None:
            numbers[name] = number
        else:
            numbers.pop(name, None)
    return numbers


@functools.cache
def _constants_of(module: str) -> dict[str, float]:
    """Return the numbers that a module of the tests gives names to."""
    path = Path(*module.split(".")).with_suffix(".py") if module.startswith("tests.") else TESTS
    return _numbers(ast.parse(path.read_text(encoding="utf-8")), {}) if path.is_file() else {}


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the names that a file imports, or gives to what it has imported, and what they stand for."""
    names: dict[str, str] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            names |= {name.asname: name.name for name in each.names if name.asname}
        elif isinstance(each, ast.ImportFrom):
            module = f"tests.{each.module}" if each.level else each.module
            names |= {name.asname or name.name: f"{module}.{name.name}" for name in each.names}
    for name, value in _assigned(tree):
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.attr in CLOCKS:
            names[name] = f"{names.get(value.value.id, value.value.id)}.{value.attr}"
    return names


def _sleeps(full: str) -> bool:
    """Return whether a function of this name is one that sleeps."""
    *base, name = full.split(".")
    return name in {"sleep", "sleep_until"} and bool(SLEEPING & set(base))


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


def read_list(text: str) -> tuple[set[str], list[str]]:
    """Return the files of the list, and what is wrong with it."""
    listed: set[str] = set()
    problems = []
    reason = ""
    for line in text.splitlines():
        path, _, comment = (each.strip() for each in line.partition("#"))
        if not path:
            reason = comment  # of the files below it, up to an empty line
            continue
        listed.add(path)
        if not (comment or reason):
            problems.append(f"{path} has no reason: write it after a #, or above its group")
        if not Path(path).exists():
            problems.append(f"there is no {path}")
    if len(listed) > MOST_LISTED:
        problems.append(f"it names {len(listed)} files, and it only gets shorter: at most {MOST_LISTED}")
    elif len(listed) < MOST_LISTED:
        problems.append(f"it has got shorter: lower MOST_LISTED of {Path(__file__).name} to {len(listed)}")
    return listed, [f"{LISTED}: {each}" for each in problems]


def main(arguments: list[str]) -> None:
    """Exit with 1 if a test depends on a time, or reaches into what is private."""
    roots = [Path(each) for each in arguments] or [TESTS]
    paths = {each for root in roots for each in ([root] if root.is_file() else root.rglob("*.py"))}
    listed, problems = read_list(LISTED.read_text(encoding="utf-8"))
    problems += [each for path in sorted(paths - {HELPER, OWN_TESTS}) for each in check(path, listed)]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
