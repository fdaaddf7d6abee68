"""Runs one target in this process: `python -m tests.fuzz.one NAME hypothesis|atheris SECONDS`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Verbosity
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.fuzz.targets import load
from tests.support.polling import Stopwatch

# Nothing here may import the library: Atheris instruments only modules that it imports itself.
FOLDER = Path(__file__).parent.parent.parent / ".fuzz"
EXAMPLES = 200
"""How many examples Hypothesis draws before it looks at the clock."""
LONGEST_EXAMPLE_SECONDS = 60


def main() -> None:
    """Run a target until its time is up, or until an example fails."""
    name, engine, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    os.environ["FUZZ_EXAMPLES"] = str(EXAMPLES)
    hypothesis.settings.register_profile(
        "fuzz",
        database=DirectoryBasedExampleDatabase(FOLDER / "examples"),
        deadline=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.normal,
    )
    hypothesis.settings.load_profile("fuzz")
    if engine == "hypothesis":
        _draw(load(name), seconds)
    else:
        _mutate(name, seconds)


def _draw(target: Callable[[], Any], seconds: float) -> None:
    """Run a target with random examples, those that failed before first."""
    took, rounds = Stopwatch(), 0
    while rounds == 0 or took.seconds < seconds:
        target()
        rounds += 1
    print(f"{rounds * EXAMPLES} examples")
    _end(0)


def _mutate(name: str, seconds: float) -> None:
    """Let Atheris choose the bytes of the examples, by the code of the library that they reach."""
    import atheris

    with atheris.instrument_imports(include=["antiphon"]):
        target = load(name)
    corpus = FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    failed: list[BaseException] = []
    count = 0
    took = Stopwatch()
    use = target.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def one(data: bytes) -> None:
        nonlocal count
        count += 1
        try:
            use(data)
        except Exception as error:
            failed.append(error)
        if failed or took.seconds > seconds:
            _finish(target, failed, count, corpus)

    options = [f"-timeout={LONGEST_EXAMPLE_SECONDS}", "-rss_limit_mb=2048", "-verbosity=0", "-len_control=20"]
    atheris.Setup([sys.argv[0], str(corpus), *options, f"-artifact_prefix={FOLDER}/{name}-"], one)
    atheris.Fuzz()


def _finish(target: Callable[[], Any], failed: list[BaseException], count: int, corpus: Path) -> None:
    """End the process: with the smallest failing example, or with the number of examples."""
    if not failed:
        print(f"{count} examples, {len(list(corpus.iterdir()))} of them reached new code")
        _end(0)
    try:
        # The failing example is in the database now: Hypothesis repeats it and makes it small.
        target()
    except BaseException as error:
        traceback.print_exception(error)
    else:
        print(f"This example failed once, and not again: {failed[0]!r}")
    _end(1)


def _end(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # libFuzzer takes any other end for a crash, and servers of targets still run


if __name__ == "__main__":
    main()
