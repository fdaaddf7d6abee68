"""`antiphon store check`: reads a whole store once, and names everything that is damaged or contradictory."""

from __future__ import annotations

from collections import Counter

from antiphon.cli import render
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import run_async
from antiphon.errors import StoreUnavailable
from antiphon.printable import printable
from antiphon.runtime.tasks.task_check import problems_of
from antiphon.store.scanning import Scan, open_scan

__all__ = ["check", "check_scan"]

_MAX_PROBLEMS = 1000
"""How many problems are kept and printed. A store with more needs a backup and not a list."""

_ADVICE = (
    "Nothing was changed. Make a copy of the store before you repair anything. Restore damaged tasks from a "
    "backup: export them there with `antiphon tasks export`, delete the damaged rows here, and import them."
)


class _Findings:
    """What a check has found."""

    def __init__(self) -> None:
        self.tasks = 0
        self.entries = 0
        self.problems: list[tuple[str, str]] = []
        """The id of a task, or an empty text for the store, and a sentence."""
        self.problem_count = 0

    def add(self, id: str, sentence: str) -> None:
        """Add a problem of a task, or of the store if the id is empty."""
        self.problem_count += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append((id, sentence))


def check(url: str, *, as_json: bool) -> int:
    """Check a store, and print the problems. Return the exit code. Raises `CommandError`."""
    try:
        scan = open_scan(url)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def work() -> _Findings:
        async with scan as opened:
            return await check_scan(opened)

    found = run_async(work())
    if as_json:
        problems = [{"taskId": id or None, "problem": sentence} for id, sentence in found.problems]
        counts = {"tasks": found.tasks, "entries": found.entries, "count": found.problem_count}
        print(render.pretty({**counts, "problems": problems}))
        return FAILED if found.problem_count else 0
    for id, sentence in found.problems:
        print(printable(f"{id or 'store'}: {sentence}"))
    if found.problem_count > len(found.problems):
        print(f"… and {found.problem_count - len(found.problems)} more.")
    read = f"Read {found.tasks} tasks with {found.entries} entries"
    if not found.problem_count:
        print(f"{read}. No problem was found.")
        return 0
    number = "1 problem was" if found.problem_count == 1 else f"{found.problem_count} problems were"
    print(f"{read}. {number} found. {_ADVICE}")
    return FAILED


async def check_scan(scan: Scan) -> _Findings:
    """Read a whole store, and return what is wrong with it."""
    found = _Findings()
    for text in await scan.damages():
        found.add("", f"The database is damaged: {text}.")
    phases: Counter[str] = Counter()
    try:
        async for task in scan.tasks():
            found.tasks += 1
            found.entries += len(task.log)
            phases[task.phase] += 1
            for sentence in problems_of(task):
                found.add(task.id, sentence)
    except StoreUnavailable as error:
        if not found.problem_count:
            raise
        found.add("", str(error))
        return found
    counted = await scan.counts()
    for phase in sorted({*counted, *phases}):
        if counted.get(phase, 0) != phases[phase]:
            numbers = f"{counted.get(phase, 0)} tasks in the phase {phase}, but there are {phases[phase]}"
            found.add("", f"The store has counted {numbers}.")
    if scan.orphans:
        found.add("", f"{scan.orphans} entries belong to no task. They take space, but do no harm.")
    return found
