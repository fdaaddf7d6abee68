"""What the seeds print, in the order in which it is said: requests, each with the message that answers it.

A scenario has a stage, which is the server that plays it. A step is named by the block of its answer, or of
its request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.seeds.blocks import printed

__all__ = ["SCENARIOS", "Scenario", "Step"]

SEEDS = "examples/seeds.py"
STAGES = "tests/seeds/stages.py"


@dataclass(frozen=True)
class Step:
    """A printed message to the server, and what is printed as its answer."""

    ask: str
    answers: tuple[str, ...]
    """The blocks of the answer: two for a stream in two messages; none if there is no answer."""
    named: str = ""
    before: str = ""
    """A tool to be called while the answer is read, before its last block."""

    @property
    def name(self) -> str:
        """The block by which the table of differences names the step."""
        return self.named or (self.answers[-1] if self.answers else self.ask)


@dataclass(frozen=True)
class Scenario:
    """A conversation that a seed prints."""

    name: str
    stage: str
    steps: Sequence[Step]

    @property
    def methods(self) -> set[str]:
        """The methods of its requests."""
        return {printed(step.ask).message.get("method", "") for step in self.steps} - {""}

    @property
    def wants_tasks(self) -> bool:
        """Whether a request is for a task."""
        return any("task" in printed(step.ask).message.get("params", {}) for step in self.steps)

    @property
    def chooses_how(self) -> bool:
        """Whether a request says in which way it is answered: in segments, or at once."""
        return any(
            '"stream"' in (text := printed(step.ask).json) or "responseModes" in text for step in self.steps
        )

    @property
    def answers_by_key(self) -> bool:
        """Whether a request has answers by the keys of the questions."""
        return any('"inputResponses"' in printed(step.ask).json for step in self.steps)

    @property
    def asks_at_once(self) -> bool:
        """Whether the server asks two things at once."""
        return any("maxTokens" in printed(name).json for step in self.steps for name in step.answers)

    @property
    def asks(self) -> bool:
        """Whether the server asks something."""
        answers = [printed(name).json for step in self.steps for name in step.answers]
        return any("requestedSchema" in answer for answer in answers)


def _steps(*pairs: str) -> tuple[Step, ...]:
    """Read steps: `000:22 > 000:37`, and nothing after the arrow if nothing answers.

    With an `@`, the answer is printed after another request, and the step is named by its own.
    """
    found = []
    for pair in pairs:
        ask, _, answers = (part.strip() for part in pair.removesuffix("@").partition(">"))
        found.append(Step(ask, tuple(answers.split()), named=ask if pair.endswith("@") else ""))
    return tuple(found)


SCENARIOS = (
    Scenario("000 answer, complete", SEEDS, _steps("000:22 > 000:37")),
    Scenario("000 answer, failure", f"{STAGES}:failing", _steps("000:22 > 000:53")),
    Scenario("000 promise", SEEDS, _steps("000:74 > 000:93")),
    Scenario(
        "000 the answer of a task",
        f"{STAGES}:asking_for_more",
        _steps("000:74 > 000:93", "002:967 > 002:980 @", "000:240 >", "002:1125 > 000:37 @"),
    ),
    Scenario("000 option 1", f"{STAGES}:asking", _steps("000:123 > 000:137", "000:158 > 000:37 @")),
    Scenario("000 option 2", f"{STAGES}:asking_twice", _steps("000:123 > 000:181", "000:214 > 000:37 @")),
    Scenario(
        "002 the requests and their responses",
        f"{STAGES}:asking_twice",
        _steps("000:123 > 002:247", "002:297 > 000:37 @"),
    ),
    Scenario("000 streaming of an answer", SEEDS, [Step("000:265", ("004:271", "004:299"), named="000:265")]),
    Scenario(
        "000 streaming of a promise",
        f"{STAGES}:incremental",
        [
            *_steps("000:74 > 000:93"),
            Step("000:282", ("004:271", "004:299"), named="000:282", before="go_on"),
        ],
    ),
    Scenario(
        "001 the twelve steps",
        SEEDS,
        _steps(
            "001:20 > 001:35",
            "001:53 > 001:65",
            "001:82 > 001:94",
            "001:123 >",
            "001:145 > 001:156",
            "001:174 > 001:186",
        ),
    ),
    Scenario(
        "001 option two",
        SEEDS,
        _steps(
            "001:20 > 001:35",
            "001:53 > 001:65",
            "001:82 > 001:227",
            "001:123 >",
            "001:145 > 001:156",
            "001:174 > 001:186",
        ),
    ),
    Scenario("002 the four steps", SEEDS, _steps("002:464 > 002:482", "002:514 > 002:539")),
    Scenario(
        "002 the work item",
        SEEDS,
        _steps("002:583 > 002:604", "002:636 > 002:665", "002:698 > 002:727"),
    ),
    Scenario(
        "002 the twelve steps",
        SEEDS,
        _steps(
            "002:930 > 002:946",
            "002:967 > 002:980",
            "002:999 > 002:1012",
            "002:1046 > 002:1076",
            "002:1093 > 002:1106",
            "002:1125 > 002:1138",
        ),
    ),
    Scenario("002 a task that asks", SEEDS, _steps("002:930 > 002:946", "002:967 > 002:980")),
    Scenario("002 what was not asked", SEEDS, _steps("002:1216 > 002:1240")),
    Scenario(
        "002 what was not asked, in a task",
        SEEDS,
        _steps("002:930 > 002:946", "002:967 > 002:980", "002:1273 > 002:1298"),
    ),
    Scenario("004 case 1", f"{STAGES}:quick", _steps("004:110 > 004:140")),
    Scenario("004 case 2", f"{STAGES}:pending", _steps("004:110 > 004:174")),
    Scenario(
        "004 case 3",
        f"{STAGES}:incremental",
        [Step("004:110", ("004:271", "004:299"), before="go_on"), *_steps("004:359 > 004:381")],
    ),
    Scenario(
        "004 a task with a segment, and an event",
        f"{STAGES}:partial",
        [Step("004:110", ("004:240", "004:215"), before="go_on")],
    ),
)
