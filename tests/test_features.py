"""The list of public features is complete, and each feature is run by the test that it names."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import coverage
import pytest
import typer

from antiphon.cli.commands import app
from tests.support.process import ROOT
from tests.support.scripts import load_script
from tests.tiers import FEATURES, NAMED

HOUR = 3600.0


def public() -> dict[str, Any]:
    """Return each feature of the API reference and the command line, with its own function or `None`."""
    found = load_script("write_reference").functions() | dict(
        commands(typer.main.get_command(app), "antiphon")
    )
    return {name: function and inspect.unwrap(function) for name, function in found.items()}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Return the commands below a command, by the words that call them, and their functions."""
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")
    if not getattr(command, "commands", {}):
        yield name, command.callback


def test_the_list_has_each_public_feature_and_nothing_else() -> None:
    known = set(public())
    assert sorted(known - set(FEATURES)) == [], "name a test for each of these in tests/first_tier.ini"
    assert sorted(set(FEATURES) - known) == [], "these are no public features"


def test_each_test_that_is_named_exists() -> None:
    missing = []
    for path in sorted({each.partition("::")[0] for each in NAMED}):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        named = {each for each in NAMED if each.partition("::")[0] == path}
        missing += [each for each in named if each.partition("::")[2] not in names]
    assert missing == []


def test_each_feature_is_executed_by_its_test(tmp_path: Path) -> None:
    """Runs the tests of the list once more, under coverage, with a context for each.

    Whether they pass is not looked at: the first tier does, and the tracer of Python 3.11 disturbs some.
    """
    run_under_coverage(tmp_path)
    data = coverage.CoverageData(str(tmp_path / "coverage"))
    data.read()
    unseen = [
        f"{feature}: {FEATURES[feature]} does not execute it, but {others(data, function.__code__)}"
        for feature, function in public().items()
        if function is not None and FEATURES[feature] not in executing(data, function.__code__)
    ]
    assert not unseen, "\n".join(unseen)


def run_under_coverage(folder: Path) -> None:
    """Run the tests of the list, and write what each of them executed, in all of its processes."""
    words = ["-m", "pytest", "-q", "-n", "2", "--tier", "features", "-p", "no:cacheprovider"]
    measured = [
        "--cov",
        "--cov-context=test",
        "--cov-report=",
        "--cov-fail-under=0",
        "-p",
        "tests.support.contexts",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))
    }
    done = subprocess.run(
        [sys.executable, *words, *measured],
        cwd=ROOT,
        env={**environment, "COVERAGE_FILE": str(folder / "coverage")},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=HOUR,
    )
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), done.stdout
    print(done.stdout)


def executing(data: coverage.CoverageData, code: CodeType) -> set[str]:
    """Return the tests that executed a line of a function's body."""
    contexts = data.contexts_by_lineno(code.co_filename)
    lines = {line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno}
    return {named_in(context) for line in lines for context in contexts.get(line, ())}


def named_in(context: str) -> str:
    """Return the test function of a context: before its phase, and after the test of the fork server."""
    return [part for part in context.split("|") if "::" in part or not part][-1].partition("[")[0]


def others(data: coverage.CoverageData, code: CodeType) -> str:
    """Return some of the tests that do execute a function."""
    return ", ".join(sorted(executing(data, code))[:3]) or "no other test of the list does"
