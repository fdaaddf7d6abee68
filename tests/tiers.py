"""Which tests `make test` runs, and what it leaves to `make test-all`.

The first tier is what a change has to pass before anybody looks at it: the official conformance suite and the
design documents whole, the contract of the stores, each public feature once, every example, one pass of the
console in a browser, and one crash of each kind. The rest is the other tier. `first_tier.ini` names the tests
of features, crashes and the console.
"""

from __future__ import annotations

import configparser
import re
import resource
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TIERS = ("first", "other", "all", "features")

WHOLE = (
    "tests/conformance/",
    "tests/seeds/",
    "tests/test_deploy.py",
    "tests/test_examples.py",
    "tests/examples/",
    "tests/model/",
    "tests/errors/",
    "tests/store/test_claims.py",
    "tests/store/test_events.py",
    "tests/store/test_fairness.py",
    "tests/store/test_filters.py",
    "tests/store/test_heads.py",
    "tests/store/test_lists.py",
    "tests/store/test_logs.py",
    "tests/store/test_stored_bytes.py",
    "tests/store/test_tallies.py",
    "tests/store/test_topics.py",
    "tests/store/test_waking.py",
    "tests/store/test_watching.py",
)
"""What the first tier runs whole: with all parameters, so the contract of the stores on each of them."""

ONCE = (
    "tests/asking/",
    "tests/authorization/",
    "tests/client/",
    "tests/held/",
    "tests/middleware/",
    "tests/patterns/",
    "tests/promises/",
    "tests/runtime/",
    "tests/server/",
    "tests/streaming/",
    "tests/transport/",
    "tests/waiting/",
    "tests/wire/",
)
"""What the first tier runs with the first parameters of each test alone."""

LONG = (
    "tests/test_features.py",
    "tests/conformance/",
    "tests/seeds/",
    "tests/waiting/test_killed.py",
    "tests/test_docs.py",
)
"""Long files: a worker that began one of them last would leave the other cores idle."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the tier."""
    parser.addoption(
        "--tier",
        choices=TIERS,
        default="all",
        help="first: those of `make test`; other: the rest; features: the list",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect only the files that the first tier has tests in."""
    if hasattr(config, "workerinput"):
        return
    if config.args_source is not config.ArgsSource.TESTPATHS:
        config.option.tier = "all"  # somebody named files: those run as a whole
    elif config.getoption("--tier") in ("first", "features"):
        config.args = list(_paths())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the tier that was not asked for, and move the long files to the front."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    if (tier := config.getoption("--tier")) == "all":
        return
    first = _first(items, FEATURES.values()) if tier == "features" else _first(items, NAMED, WHOLE, ONCE)
    if missing := NAMED - {_function(item) for item in items}:
        raise pytest.UsageError(f"Named for the first tier, and not there: {', '.join(sorted(missing))}")
    left_out = first if tier == "other" else set(items) - first
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the CPU time of all processes of the tests, and what is left to the other tier."""
    minutes, seconds = divmod(round(_cpu_seconds()), 60)
    terminalreporter.write_line(f"CPU time of all processes: {minutes} min {seconds} s")
    if config.getoption("--tier") == "first":
        terminalreporter.write_line(left())


def left() -> str:
    """Return a sentence about the tests that only the other tier runs."""
    every, first = Counter[str](), Counter[str]()
    for function in _functions():
        room = function.split("/")[1] if function.count("/") > 1 else "others"
        every[room] += 1
        first[room] += function in NAMED or function.startswith(WHOLE + ONCE)
    rest = ", ".join(
        f"{room} {count - first[room]}" for room, count in sorted(every.items()) if count > first[room]
    )
    return (
        f"Left to `make test-all`: these tests in other versions, transports and stores, and "
        f"{every.total() - first.total()} of {every.total()} test functions: {rest}."
    )


def _named() -> dict[str, dict[str, str]]:
    """Return the sections of the list, with the test function of each of their names."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "tests" / "first_tier.ini", encoding="utf-8")
    return {
        section: {name: f"tests/{test}" for name, test in parser[section].items()}
        for section in parser.sections()
    }


_SECTIONS = _named()
FEATURES = _SECTIONS["features"]
"""The public features, each with the test function that shows it."""
NAMED = frozenset(test for section in _SECTIONS.values() for test in section.values())
"""The test functions that the first tier runs, each with its first parameters."""


def _paths() -> Iterator[str]:
    """Return the files and folders that have tests of the first tier."""
    yield from dict.fromkeys([*WHOLE, *ONCE, *sorted(each.partition("::")[0] for each in NAMED)])


def _first(
    items: Sequence[pytest.Item],
    named: Collection[str],
    whole: tuple[str, ...] = (),
    once: tuple[str, ...] = (),
) -> set[pytest.Item]:
    """Return the tests that are named, and those of folders that run whole or once."""
    found = {item for item in items if item.nodeid.startswith(whole)}
    seen = set()
    for item in items:
        function = _function(item)
        if function not in seen and (function in named or function.startswith(once)):
            seen.add(function)
            found.add(item)
    return found


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _functions() -> Iterator[str]:
    """Return each test function, as pytest names it."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(
            r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            yield f"{path.relative_to(ROOT).as_posix()}::{name}"


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of all that have ended below it."""
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
