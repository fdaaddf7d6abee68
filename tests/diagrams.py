"""Prints the diagrams of the documentation from the tables in the code: `python -m tests.diagrams`."""

from __future__ import annotations

from antiphon.model.task import TRANSITIONS, Task

__all__ = ["task_states"]


def task_states() -> str:
    """The life of a task, as Mermaid draws it."""
    # Mermaid draws one arrow from a state to itself, so entries that lead the same way share an arrow.
    entries: dict[tuple[str, str], list[str]] = {}
    for (state, entry), after in TRANSITIONS.items():
        entries.setdefault((state, after), []).append(entry)
    lines = ["stateDiagram-v2", "    [*] --> working: created"]
    lines += [f"    {state} --> {after}: {', '.join(named)}" for (state, after), named in entries.items()]
    states = dict.fromkeys(TRANSITIONS.values())
    ends = [state for state in states if Task("", "", 0, 0, state=state).has_ended]
    return "\n".join([*lines, *(f"    {state} --> [*]" for state in ends)])


if __name__ == "__main__":
    print(task_states())
