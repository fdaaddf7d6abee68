"""What the tiers of the tests have, and how tests are run again and again."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.support.polling import wait_until
from tests.support.process import ROOT
from tests.tiers import FEATURES


def collected(*words: str) -> subprocess.CompletedProcess[str]:
    """Return what a pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")


def test_the_first_tier_has_its_tests_and_says_what_it_leaves() -> None:
    done = collected("--tier", "first")
    assert done.returncode == 0, done.stdout
    tests = {line for line in done.stdout.splitlines() if "::" in line}
    assert set(FEATURES.values()) <= {each.partition("[")[0] for each in tests}
    assert any(each.startswith("tests/conformance/") for each in tests)
    assert not any(each.startswith("tests/soak/") for each in tests)
    assert "Left to `make test-all`: " in done.stdout
    assert "CPU time of all processes: " in done.stdout


def test_a_file_that_is_named_runs_as_a_whole() -> None:
    whole, first = (collected(*tier, "tests/test_tiers.py").stdout for tier in ((), ("--tier", "first")))
    names = [line for line in whole.splitlines() if "::" in line]
    assert len(names) >= 4
    assert [line for line in first.splitlines() if "::" in line] == names


def again(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `scripts/test_again.py`."""
    command = [sys.executable, "scripts/test_again.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")


def test_tests_that_fail_are_not_run_again() -> None:
    done = again("--runs", "3", "--busy", "1", "false")
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "Run 1 of 3, with 1 busy loops" in done.stdout
    assert "FAILED, exit code 1" in done.stdout


def test_tests_that_pass_are_run_as_often_as_asked() -> None:
    done = again("--runs", "3", "--busy", "0", "true")
    assert done.returncode == 0
    assert [line.partition(",")[0] for line in done.stdout.splitlines()] == [
        f"Run {n} of 3" for n in (1, 2, 3)
    ]


def test_the_busy_loops_end_with_the_process_that_started_them() -> None:
    command = [sys.executable, "scripts/test_again.py", "--runs", "1", "--busy", "2", "sleep", "3600"]
    process = psutil.Popen(command, cwd=ROOT)
    started = wait_until(lambda: len(found := process.children()) == 3 and found)
    loops = [each for each in started if "sleep" not in each.cmdline()]
    process.kill()
    process.wait()
    for each in set(started) - set(loops):
        each.kill()
    wait_until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in loops))
