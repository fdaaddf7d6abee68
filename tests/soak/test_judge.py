"""The judge of the soak: it finds nothing in a history without fault, and each rule finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.soak.fleet import Death
from tests.soak.judge import RULES, Evidence, Logged, Stored, Violation, judge, show
from tests.soak.notes import Note, Seen
from tests.soak.ratio import too_slow

ID = "task-1"


@dataclass
class Made:
    """A made-up history of one task, which tests change."""

    tool: str = "chain"
    text: str = "chain 7"
    arguments: dict[str, Any] = field(default_factory=lambda: {"number": 7})
    head: dict[str, Any] = field(default_factory=dict)
    log: list[Logged] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    phase: str = "ended"
    worker: str | None = None
    version: int | None = None
    is_stored: bool = True
    has_right_clocks: bool = True

    def __post_init__(self) -> None:
        self.saw("created", "acknowledged", 7, at=0)
        self.entry("created", arguments=self.arguments)

    def entry(self, kind: str, at: int = 0, **data: Any) -> None:
        """Add an entry to the log."""
        self.log.append(Logged(kind, at, data))

    def step(self, step: str, at: float, run: str = "", *, process: int = 1, key: str = "") -> None:
        """Let a step begin, end and be recorded."""
        run = run or f"run of {step}"
        self.begin(step, at, run, process=process, key=key)
        self.notes.append(Note(at + 0.5, "end", 7, step, key or f"key of {step}", run, process, "new a"))
        self.entry("recorded", journal={f"step:{step}": run})

    def begin(self, step: str, at: float, run: str = "lost", *, process: int = 1, key: str = "") -> None:
        """Let a step begin."""
        self.notes.append(Note(at, "begin", 7, step, key or f"key of {step}", run, process, "new a"))

    def saw(
        self, event: str, outcome: str, value: Any = None, *, by: str = "ada", at: float = 90, of: str = ID
    ) -> None:
        """Let a caller see something."""
        self.seen.append(Seen(at, event, of, by, outcome, value))

    def end(self, state: str = "done", **head: Any) -> None:
        """End the task, with the result of its tool by default, and let a caller see the end."""
        kind, status = {"done": ("ended", "completed"), "faulted": ("faulted", "failed")}.get(
            state, ("cancelled", "cancelled")
        )
        result = {"result": {"content": [{"type": "text", "text": self.text}], "is_error": False}}
        self.head = {"state": state, **(result if state == "done" else {}), **head}
        self.entry(kind)
        self.saw("ended", status, self.text)

    def judged(self) -> list[Violation]:
        """Return what the judge finds."""
        version = len(self.log) if self.version is None else self.version
        task = Stored(ID, self.tool, self.phase, version, self.worker, 0, self.head, self.log)
        stored = {ID: task} if self.is_stored else {}
        evidence = Evidence(
            stored, sorted(self.notes), self.seen, self.deaths, has_right_clocks=self.has_right_clocks
        )
        found = judge(evidence)
        assert all(
            violation.task is None or violation.task in show(violation.task, evidence) for violation in found
        )
        return found


def chain() -> Made:
    made = Made()
    for place, step in enumerate(("one", "two", "three")):
        made.step(step, 10.0 + place)
    made.end()
    return made


def asking(*answers: tuple[str, str], got: str = "blue") -> Made:
    """Return a task that asked; each answer has a text and what became of it."""
    made = Made("ask", f"ask 7 {got}")
    made.entry("asked")
    made.entry("answered")
    for text, outcome in answers:
        made.saw("answered", outcome, by=text)
    made.end()
    return made


def stopped(state: str, *outcomes: str) -> Made:
    """Return a task that callers tried to cancel."""
    made = Made("stoppable", "stoppable 7")
    made.step("part 0", 10.0)
    for outcome in outcomes:
        made.saw("cancelled", outcome, at=20)
    made.end(state)
    return made


def streaming(*parts: Sequence[tuple[int, str]], ended: bool = True) -> Made:
    """Return a task with the segments a, b and c, of which a reader saw these parts."""
    made = Made("stream")
    made.entry("emitted", first=1, blocks=[{"text": "a"}, {"text": "b"}])
    made.end(result={"content": [{"type": "text", "text": "c"}], "is_error": False, "emitted": 1})
    for part in parts:
        made.saw("segments", "acknowledged", part, by="reader")
    if ended:
        made.saw("segments", "ended", [], by="reader")
    return made


def sleeping(*, woken: Sequence[int] = (1000,), napped: float = 2.5, right: bool = True) -> Made:
    """Return a task that slept for 2.5 seconds."""
    made = Made("sleeper", "sleeper 7", has_right_clocks=right)
    made.step("awake", 10.0)
    made.entry("parked", waits={"sleep": {"until": 1000}})
    for at in woken:
        made.entry("woken", at)
    made.step("napped 2.5", 10.5 + napped)
    made.end()
    return made


def waiting(*events: str) -> Made:
    """Return a task that got these events, of which e0 and e1 were sent."""
    made = Made("waiter", " ".join(["waiter 7", *events]), {"number": 7, "topic": "t"})
    for text in ("e0", "e1"):
        made.saw("sent", "lost", text, of="t")
        made.saw("sent", "acknowledged", text, of="t")
    made.end()
    return made


def careful(*events: str) -> Made:
    """Return a task that got these events and an answer, and undoes what it did if anything raises."""
    made = waiting(*events)
    made.tool = "careful"
    made.head["result"]["content"][0]["text"] = " ".join(["careful 7", *events, "blue"])
    made.seen = [each._replace(value=made.head) if each.event == "ended" else each for each in made.seen]
    made.saw("answered", "acknowledged", by="blue")
    return made


def deadly(times: int = 5, message: str = "The task was given up after 5 attempts.") -> Made:
    """Return a task that ended its processes."""
    made = Made("deadly")
    for time in range(times):
        made.begin("deadly", 10.0 + time, process=time)
        made.deaths.append(Death(10.5 + time, time, -9, None))
    made.end("faulted", fault={"message": message})
    return made


def once(message: str) -> Made:
    """Return a task that is not to be resumed and has failed."""
    made = Made("once")
    made.begin("once", 10.0)
    made.end("faulted", fault={"message": message})
    return made


FAULTLESS: Mapping[str, Callable[[], Made]] = {
    "a chain": chain,
    "a step that a kill interrupted": lambda: changed(chain(), lambda made: made.begin("one", 9.0)),
    "one of several answers": lambda: asking(("blue", "acknowledged"), ("red", "refused"), ("green", "lost")),
    "an answer whose acknowledgement was lost": lambda: asking(("red", "refused"), ("blue", "lost")),
    "an acknowledged cancellation": lambda: stopped("cancelled", "acknowledged", "refused", "lost"),
    "a cancellation that was taken": lambda: stopped("cancelled", "taken", "refused"),
    "a cancellation that was taken after the end": lambda: stopped("done", "taken", "refused"),
    "a refused cancellation": lambda: stopped("done", "refused", "lost"),
    "a cancellation whose acknowledgement was lost": lambda: stopped("cancelled", "lost", "refused"),
    "a stream": lambda: streaming([(1, "a")], [(2, "b"), (3, "c")]),
    "a reader who left": lambda: streaming([(1, "a")], ended=False),
    "a sleeper": sleeping,
    "a sleeper under wrong clocks": lambda: sleeping(napped=0.1, right=False),
    "a waiter": lambda: waiting("e0", "e1"),
    "a task that waits for events and asks": lambda: careful("e0", "e1"),
    "a deadly task": deadly,
    "a task that is not resumed": lambda: once("Not run again: its tool has resume=False."),
    "a process that was killed": lambda: changed(
        chain(), lambda made: made.deaths.append(Death(1, 9, -9, "kill"))
    ),
}


def changed(made: Made, change: Callable[[Made], Any]) -> Made:
    """Return a history after a change."""
    change(made)
    return made


def but(change: Callable[[Made], Any]) -> Callable[[], Made]:
    """Return a history of a chain after a change."""
    return lambda: changed(chain(), change)


def attribute(**values: Any) -> Callable[[], Made]:
    """Return a history of a chain with other attributes."""
    return but(lambda made: [setattr(made, name, value) for name, value in values.items()])


BROKEN: Sequence[tuple[str, str, Callable[[], Made]]] = [
    ("kept", "the store does not have it", attribute(is_stored=False)),
    ("alive", "process 9 ended by itself", but(lambda made: made.deaths.append(Death(1, 9, -6, None)))),
    ("it ends", "has not ended, it is ready", attribute(phase="ready")),
    ("it ends", "is held by worker-1", attribute(worker="worker-1")),
    ("it ends", "has 5 entries and says 7", attribute(version=7)),
    ("one end", "has ended 2 times", but(lambda made: made.entry("ended"))),
    ("one end", "went on after its end", but(lambda made: made.entry("recorded", journal={"step:x": "y"}))),
    ("one end", "went on after its end", but(lambda made: made.entry("emitted", first=1, blocks=[]))),
    (
        "recorded once",
        "step:one was recorded 2 times",
        but(lambda made: made.log.insert(3, Logged("recorded", 0, {"journal": {"step:one": "run of one"}}))),
    ),
    (
        "outcome",
        "was destroyed",
        but(lambda made: made.end("faulted", fault={"message": "given up after 5 attempts"})),
    ),
    ("outcome", "was destroyed", but(lambda made: made.head["result"].update(is_error=True))),
    ("outcome", "has another result", lambda: changed(Made(text="refunded 7"), lambda made: made.end())),
    ("outcome", "was not given up", lambda: deadly(message="The tool failed.")),
    ("outcome", "was not given up", lambda: changed(Made("deadly", "deadly 7"), lambda made: made.end())),
    ("outcome", "was destroyed", lambda: once("The tool failed.")),
    (
        "results",
        "has results of steps that never ended",
        but(lambda made: made.log.insert(3, Logged("recorded", 0, {"journal": {"step:x": "unknown"}}))),
    ),
    ("results", "'two' is not recorded", but(lambda made: made.log.pop(2))),
    ("idempotency keys", "key of 'one' has changed", but(lambda made: made.begin("one", 9.0, key="another"))),
    ("attempts", "'one' began 31 times", but(lambda made: [made.begin("one", 9.0) for _ in range(30)])),
    ("attempts", "'deadly' began 12 times, and may 11 times", lambda: deadly(12)),
    (
        "attempts",
        "'once' began 2 times, and may 1 times",
        lambda: changed(once("resume=False"), lambda made: made.begin("once", 11.0)),
    ),
    (
        "no step again",
        "'one' began again in process 4 after 'two'",
        but(lambda made: made.begin("one", 11.5, process=4)),
    ),
    (
        "no step again",
        "'three' began in process 4 after a caller saw",
        but(lambda made: made.begin("three", 95, process=4)),
    ),
    ("segments", "segment 3 follows segment 1", lambda: changed(Made("stream"), _gap)),
    ("segments", "reader saw", lambda: streaming([(1, "a")], [(3, "c")])),
    ("segments", "reader saw", lambda: streaming([(1, "a")], [(1, "a"), (2, "b"), (3, "c")])),
    ("segments", "reader saw", lambda: streaming([(1, "a"), (2, "x"), (3, "c")])),
    ("segments", "reader saw the end and 2 of 3 segments", lambda: streaming([(1, "a"), (2, "b")])),
    (
        "answers",
        "2 different answers were acknowledged",
        lambda: asking(("blue", "acknowledged"), ("red", "acknowledged")),
    ),
    (
        "answers",
        "the run got the answer 'blue', and ['red'] was",
        lambda: asking(("red", "acknowledged"), ("blue", "lost")),
    ),
    ("answers", "'blue', which nobody gave", lambda: asking(("red", "lost"))),
    ("answers", "'blue', which was refused", lambda: asking(("blue", "refused"), ("red", "lost"))),
    ("cancellations", "was acknowledged, and it is done", lambda: stopped("done", "acknowledged")),
    (
        "cancellations",
        "was acknowledged, and it is faulted",
        lambda: stopped("faulted", "acknowledged", "lost"),
    ),
    ("cancellations", "was refused, and it is cancelled", lambda: stopped("cancelled", "refused", "refused")),
    (
        "cancellations",
        "was taken before it had ended, and it is done",
        lambda: changed(stopped("done", "taken"), lambda made: made.step("part 1", 30.0)),
    ),
    ("cancellations", "nobody asked for it", lambda: stopped("cancelled")),
    (
        "callers agree",
        "callers saw it ['failed'], and it is done",
        but(lambda made: made.saw("ended", "failed", made.text)),
    ),
    (
        "callers agree",
        "callers saw 2 different ends",
        but(lambda made: made.saw("ended", "completed", "chain 8")),
    ),
    (
        "callers agree",
        "ada was told: Task not found",
        but(lambda made: made.saw("missing", "refused", "Task not found")),
    ),
    ("sleeps", "was woken at 999, 1 ms early", lambda: sleeping(woken=[999])),
    ("sleeps", "was woken again for the same sleep", lambda: sleeping(woken=[1000, 1001])),
    ("sleeps", "slept 2.400 of 2.5 s", lambda: sleeping(napped=2.4)),
    ("events", "got the events ['e0']", lambda: waiting("e0")),
    ("events", "got the events ['e0', 'e0', 'e1']", lambda: waiting("e0", "e0", "e1")),
    ("events", "got the events ['e1', 'e0']", lambda: waiting("e1", "e0")),
    ("events", "got the events ['e1']", lambda: careful("e1")),
    (
        "no compensation",
        "paid back in process 4 (new a)",
        but(lambda made: made.begin("refund", 12.5, process=4)),
    ),
]
"""A rule, what the judge says, and the history that breaks it."""


def _gap(made: Made) -> None:
    for first in (1, 3):
        made.entry("emitted", first=first, blocks=[{"text": "a"}])
    made.end()


@pytest.mark.parametrize("name", FAULTLESS)
def test_the_judge_finds_nothing_in_a_history_without_fault(name: str) -> None:
    assert FAULTLESS[name]().judged() == []


@pytest.mark.parametrize(("rule", "sentence", "history"), BROKEN)
def test_the_judge_finds_what_breaks_a_rule(rule: str, sentence: str, history: Callable[[], Made]) -> None:
    found = history().judged()
    assert any(violation.rule == rule and sentence in violation.sentence for violation in found), found


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == {"kept", "alive", *RULES}


def test_a_ratio_to_the_ideal_is_judged() -> None:
    assert too_slow("outages", {2: 0.9, 3: 2.9}) == []
    (found,) = too_slow("outages", {2: 0.9, 3: 3.1})
    assert "after 3 times outages, tasks took 3.1 times as long as needed" in found.sentence


def test_what_is_known_about_a_task_is_shown_in_order() -> None:
    made = chain()
    stored = Stored(ID, "chain", "ended", 5, None, 0, made.head, made.log)
    evidence = Evidence({ID: stored}, made.notes[::-1], made.seen, [Death(11.7, 3, -9, "kill")])
    _, _, *lines = show(ID, evidence).splitlines()
    log, happened = lines[: len(made.log)], lines[len(made.log) :]
    assert [line.split()[2] for line in log] == [entry.kind for entry in made.log]
    words = ["created", "one", "one", "two", "two", "Death", "three", "three", "completed"]
    assert len(happened) == len(words)
    assert all(word in line for word, line in zip(words, happened, strict=True)), happened
