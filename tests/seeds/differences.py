"""Where a server's answer differs from the printed one: each difference by its name, with the reason.

A difference changes the printed answer into ours. The replay applies those of a step in the order of this
table, and what comes out has to be the answer, to the letter. One that changes nothing fails the test.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.seeds.blocks import Frame, printed

__all__ = ["DIFFERENCES", "Difference", "differences_at"]

Change: TypeAlias = Callable[[list[Frame], Frame], list[Frame]]
"""Changes messages; also gets the request."""

DRAFT, SESSION, STATELESS = ("DRAFT-2026-v1",), ("2025-11-25",), ("2026-07-28",)
MESSAGES, LISTS = ("DRAFT-000-messages", "DRAFT-001-messages"), ("DRAFT-000-additional-info",)
CONTENT = ("DRAFT-001-content",)

CORE = DRAFT + MESSAGES + LISTS + CONTENT + SESSION
"""The dialects with tasks in the core."""
EARLIER = ("2025-06-18", "2025-03-26", "2024-11-05")
EVERY = CORE + STATELESS + EARLIER

INFO = "io.modelcontextprotocol/serverInfo"
RELATED = {"io.modelcontextprotocol/related-task": {"taskId": "<task>"}}
KEYS = {
    "Please provide your GitHub username": "github_login",
    "What is the capital of France?": "capital_of_france",
    "Please provide the input string to echo back": "echo_input",
}


@dataclass(frozen=True)
class Difference:
    """One way in which answers differ from what is printed."""

    name: str
    printed: str
    """What the seed prints."""
    ours: str
    """What a server sends."""
    why: str
    change: Change
    where: Sequence[tuple[str, Sequence[str]]]
    """The steps, by their names, and the dialects."""

    def concerns(self, step: str, dialect: str) -> bool:
        """Return whether an answer differs in this way."""
        return any(step in steps.split() and dialect in dialects for steps, dialects in self.where)


def differences_at(step: str, dialect: str) -> list[Difference]:
    """The differences of an answer, in the order in which they apply."""
    return [difference for difference in DIFFERENCES if difference.concerns(step, dialect)]


def _each(change: Callable[[Frame], None]) -> Change:
    """A change to every message by itself."""

    def all_of_them(frames: list[Frame], request: Frame) -> list[Frame]:
        changed = copy.deepcopy(frames)
        for frame in changed:
            change(frame)
        return changed

    return all_of_them


def _text(old: str, new: str) -> Change:
    """A change of the text."""
    return lambda frames, request: list(json.loads(json.dumps(frames, ensure_ascii=False).replace(old, new)))


def _result(**fields: Any) -> Change:
    return _each(lambda frame: frame["result"].update(copy.deepcopy(fields)))


def _own_id(frames: list[Frame], request: Frame) -> list[Frame]:
    return [{**frame, "id": request.get("id", 1)} for frame in frames]


def _questions(frame: Frame) -> list[tuple[str, str, dict[str, Any]]]:
    """The questions in any of the shapes that the seeds print: the key, the method and the parameters."""
    if "method" in frame:
        found = [("", frame["method"], frame["params"])]
    elif "inputRequests" in frame["result"]:
        asked = frame["result"]["inputRequests"]
        return [(key, question["method"], question["params"]) for key, question in asked.items()]
    elif "AdditionalInfoRequested" in frame["result"]:
        methods = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage"}
        lists = frame["result"]["AdditionalInfoRequested"]
        found = [("", methods[kind], each["params"]) for kind in methods for each in lists[kind]]
    else:
        blocks = frame["result"]["content"]
        found = [
            ("", "elicitation/create", {name: block[name] for name in block if name != "type"})
            for block in blocks
        ]
    return [(_key(params), method, params) for _, method, params in found]


def _key(params: dict[str, Any]) -> str:
    return KEYS[params["message"] if "message" in params else params["messages"][0]["content"]["text"]]


def _by_key(frames: list[Frame], request: Frame) -> list[Frame]:
    asked = {key: {"method": method, "params": params} for key, method, params in _questions(frames[0])}
    beside = {"_meta": frames[0]["_meta"]} if "_meta" in frames[0] else {}
    result = {"inputRequests": asked, "resultType": "input_required"}
    return [{"jsonrpc": "2.0", "id": request["id"], "result": result, **beside}]


def _as_requests(frames: list[Frame], request: Frame) -> list[Frame]:
    related = {"_meta": RELATED} if request["method"] == "tasks/result" else {}
    return [
        {"jsonrpc": "2.0", "id": "<question>", "method": method, "params": {**params, **related}}
        for _, method, params in _questions(frames[0])
    ]


def _without(*names: str) -> Change:
    def change(frame: Frame) -> None:
        for name in names:
            frame["result"].pop(name, None)

    return _each(change)


def _as_message(frames: list[Frame], request: Frame) -> list[Frame]:
    ((_, method, params),) = _questions(frames[0])
    return [{"jsonrpc": "2.0", "id": request["id"], "method": method, "params": params, "_meta": RELATED}]


def _as_lists(frames: list[Frame], request: Frame) -> list[Frame]:
    lists: dict[str, list[Any]] = {}
    for _, method, params in _questions(frames[0]):
        lists.setdefault(method.partition("/")[0], []).append({"params": params})
    return _asking({"AdditionalInfoRequested": lists}, request)


def _as_content(frames: list[Frame], request: Frame) -> list[Frame]:
    content = [{"type": method.partition("/")[0], **params} for _, method, params in _questions(frames[0])]
    return _asking({"content": content}, request)


def _keyed(frame: Frame) -> None:
    if "method" in frame:
        asked = [frame]
    elif "AdditionalInfoRequested" in frame["result"]:
        lists = frame["result"]["AdditionalInfoRequested"].values()
        asked = [question["params"] for questions in lists for question in questions]
    else:
        asked = frame["result"]["content"]
    for question in asked:
        question["_meta"] = {**question.get("_meta", {}), "dev.antiphon/question": "echo_input"}


def _asking(fields: Frame, request: Frame) -> list[Frame]:
    related = {"_meta": RELATED} if request["method"] == "tasks/result" else {}
    return [{"jsonrpc": "2.0", "id": request["id"], "result": {**fields, "isError": False, **related}}]


def _meta_inside(frame: Frame) -> None:
    frame.pop("_meta", None)
    frame["result"]["_meta"] = RELATED


def _ignored(frames: list[Frame], request: Frame) -> list[Frame]:
    question = "000:181" if "sampling" in request else "000:137"
    return _by_key([printed(question).message], request)


def _ignored_as_content(frames: list[Frame], request: Frame) -> list[Frame]:
    return _as_content(_ignored(frames, request), request)


def _first_id(frames: list[Frame], request: Frame) -> list[Frame]:
    first = {"get_weather": 2, "update_work_item": 1}[request["params"]["name"]]
    return [{**frame, "id": first} for frame in frames]


def _task_in(frame: Frame) -> dict[str, Any]:
    """The task in an answer."""
    task: dict[str, Any] = frame["result"].get("task", frame["result"])
    return task


def _spelled(frame: Frame) -> None:
    spelled = {"Working": "working", "input_require": "input_required", "Completed": "completed"}
    task = _task_in(frame)
    task["status"] = spelled[task["status"]]


def _message(frames: list[Frame], request: Frame) -> list[Frame]:
    changed = copy.deepcopy(frames)
    task = _task_in(changed[0])
    if task["status"] == "working":
        task["statusMessage"] = "Task has been created for get_weather tool invocation."
    else:
        task["statusMessage"] = task["statusMessage"].replace("get/result", "tasks/result")
    return changed


def _all_fields(frame: Frame) -> None:
    if "status" in (task := _task_in(frame)):
        task.setdefault("createdAt", "<time>")
        task.setdefault("lastUpdatedAt", "<time>")


def _task_first(frames: list[Frame], request: Frame) -> list[Frame]:
    changed = copy.deepcopy(frames)
    task = printed("004:174").message["result"]["task"]
    changed[0]["result"]["task"] = task
    return changed


def _with_meta(frame: Frame) -> Frame:
    return {**frame, "result": {**frame["result"], "_meta": RELATED}}


def _extension_task(frames: list[Frame], request: Frame) -> list[Frame]:
    task = _task_in(frames[0])
    result = {
        **{name: task[name] for name in ("taskId", "status", "createdAt")},
        "lastUpdatedAt": "<time>",
        "ttlMs": None,
        "pollIntervalMs": task["pollInterval"],
        "resultType": "task" if task["status"] == "working" else "complete",
    }
    if task["status"] == "input_required":
        asked = printed("002:1012").message["result"]["inputRequests"]
        result["inputRequests"] = asked
    return [{**frames[0], "result": result}]


DIFFERENCES: Sequence[Difference] = (
    Difference(
        "characters encoded twice",
        "`72Â° F`",
        "`72° F`",
        "The text of the seed was encoded twice.",
        _text("Â°", "°"),
        [
            ("000:37", EVERY),
            ("002:1125", CORE),
            ("000:158", SESSION + MESSAGES + LISTS),
            ("000:214", SESSION + LISTS),
            ("002:297", DRAFT + SESSION + STATELESS),
        ],
    ),
    Difference(
        "the id of another request",
        "an answer with another id than its request",
        "the id of the request",
        "JSON-RPC matches an answer to its request by the id.",
        _own_id,
        [
            ("000:37 000:53", EVERY),
            ("000:158", SESSION + MESSAGES + LISTS),
            ("000:181", LISTS),
            ("000:214", SESSION + LISTS),
            ("000:282 002:1125", CORE),
            ("002:297", DRAFT + SESSION + STATELESS),
            ("002:1240", DRAFT + STATELESS),
        ],
    ),
    Difference(
        "the spelling of a status",
        "`Working`, `input_require`, `Completed`",
        "`working`, `input_required`, `completed`",
        "The protocol and 002 spell them so.",
        _each(_spelled),
        [("001:35 001:65 001:156", CORE)],
    ),
    Difference(
        "a task in the first message of a stream",
        "segments without the task",
        "the task beside its first segments",
        "004 allows both. A caller then knows how often to poll.",
        _task_first,
        [("004:299", CORE)],
    ),
    Difference(
        "the status message of a task",
        "`The operation is now in progress.`; `call get/result`",
        "`Task has been created for get_weather tool invocation.`; `call tasks/result`",
        "The messages are those of 002, for every tool. There is no method `get/result`.",
        _message,
        [("000:93 001:156 004:174 004:299 004:215", CORE)],
    ),
    Difference(
        "the fields of a task",
        "a task without `lastUpdatedAt`, `createdAt` or `statusMessage`",
        "all fields in every task",
        "2025-11-25 requires the times, and one shape for all is easier to read.",
        _each(_all_fields),
        [("000:93 001:35 001:65 001:156 004:215", CORE)],
    ),
    Difference(
        "related-task metadata in every message of a stream",
        "a first message with a task and without `_meta`",
        "`_meta` with the task",
        "004 asks for it wherever a task was made.",
        lambda frames, request: [_with_meta(frames[0]), *frames[1:]],
        [("004:215", CORE)],
    ),
    Difference(
        "isError in every message of a stream",
        "a message without `isError`",
        "`isError`",
        "003 asks that it is always set.",
        _each(lambda frame: frame["result"].update(isError=False)),
        [("004:215", CORE)],
    ),
    Difference(
        "a result at once makes no task",
        "related-task metadata in an immediate result, and in the segments of an answer",
        "no metadata",
        "There is nothing left to track, and 004 then forbids the metadata.",
        _without("_meta"),
        [("004:140 000:265", CORE)],
    ),
    Difference(
        "a question by its key",
        "`elicitation/create` as the answer, `AdditionalInfoRequested`, or content of the type `elicitation`",
        "`inputRequests`",
        "002 is the later seed, and the protocol accepted it.",
        _by_key,
        [("000:137 000:181", DRAFT + STATELESS), ("001:94 001:227", DRAFT)],
    ),
    Difference(
        "a question as a message",
        "`AdditionalInfoRequested`, or content of the type `elicitation`",
        "`elicitation/create`, with the id of the request",
        "A dialect has one shape: this is that of 000, option 1, and of 001, option one.",
        _as_message,
        [("001:227", MESSAGES)],
    ),
    Difference(
        "a question in lists",
        "`elicitation/create` as the answer, or content of the type `elicitation`",
        "`AdditionalInfoRequested`",
        "A dialect has one shape: this is that of 000, option 2.",
        _as_lists,
        [("000:137 001:94 001:227", LISTS)],
    ),
    Difference(
        "a question as content",
        "`elicitation/create` as the answer, or `AdditionalInfoRequested`",
        "content of the types `elicitation` and `sampling`",
        "A dialect has one shape: this is that of 001, option two.",
        _as_content,
        [("000:137 000:181 001:94", CONTENT)],
    ),
    Difference(
        "the task of a question",
        "a question without related-task metadata",
        "`_meta` with the task",
        "001 prints it in every other message about a task.",
        _result(_meta=RELATED),
        [("001:227", CONTENT)],
    ),
    Difference(
        "the key of a question",
        "a question of a task, without a key",
        "`dev.antiphon/question` in its `_meta`",
        "An answer that names it may be repeated, and cannot be taken for the answer to another question.",
        _each(_keyed),
        [("001:94 001:227", MESSAGES + LISTS + CONTENT)],
    ),
    Difference(
        "members beside the params",
        "answers in `elicitation` and `sampling`, beside `params`",
        "ignored: the question is asked again",
        "`inputResponses` in `params` is where this dialect looks for answers.",
        _ignored,
        [("000:158 000:214", DRAFT + STATELESS)],
    ),
    Difference(
        "members beside the params, where questions are content",
        "answers in `elicitation` and `sampling`, beside `params`",
        "ignored: the question is asked again",
        "`inputResponses` in `params`, a list, is where this dialect looks for answers.",
        _ignored_as_content,
        [("000:158 000:214", CONTENT)],
    ),
    Difference(
        "metadata inside the result",
        "related-task metadata beside `result`, or none",
        "`_meta` inside the result",
        "The protocol defines `_meta` inside `params` and `result`.",
        _each(_meta_inside),
        [("001:94 001:227 002:1012", DRAFT)],
    ),
    Difference(
        "the state of which the sentence speaks",
        "a question without `requestState`",
        "a `requestState`",
        "The sentence above has it: what the tool has found out before it asks is kept there.",
        _result(requestState="ours"),
        [("002:1240", DRAFT + STATELESS)],
    ),
    Difference(
        "what the task is",
        "a task with another id, status or interval",
        "those of this task",
        "The message is printed for a task of another tool.",
        _each(lambda frame: frame["result"].update(pollInterval=5000)),
        [("002:967", CORE)],
    ),
    Difference(
        "metadata of a task's result",
        "a result without `_meta`",
        "related-task metadata",
        "001 and 002 print it in the result of a task.",
        _each(lambda frame: frame["result"].update(_meta=RELATED)),
        [("002:1125", CORE)],
    ),
    Difference(
        "a question as a request of the server",
        "a question as the answer to a call",
        "`elicitation/create` or `sampling/createMessage`, with an id of its own, on the stream of the call",
        "2025-11-25 asks so: the call goes on while it waits.",
        _as_requests,
        [
            (
                "000:137 000:181 001:94 001:227 002:247 002:482 002:604 002:665 002:1240",
                SESSION,
            )
        ],
    ),
    Difference(
        "an answer on the stream of the first request",
        "the call again, with the answers",
        "the answers to the requests of the server; the result has the id of the first request",
        "2025-11-25 has no second call.",
        _first_id,
        [("002:539 002:727", SESSION)],
    ),
    Difference(
        "no type of a result",
        "`resultType`",
        "none",
        "2025-11-25 has no such field.",
        _without("resultType"),
        [("002:539 002:727", SESSION)],
    ),
    Difference(
        "a task of the extension",
        "`task` with `ttl`, `pollInterval` and a message",
        '`resultType: "task"`, `ttlMs` and `pollIntervalMs`; questions in `tasks/get`',
        "On 2026-07-28 tasks are an extension, in which the server decides how long a task is kept.",
        _extension_task,
        [("000:93 002:946 002:980", STATELESS)],
    ),
    Difference(
        "the type of a result",
        "a result without `resultType`",
        "`resultType`",
        "002 asks for it in every result.",
        _each(lambda frame: frame["result"].setdefault("resultType", "complete")),
        [
            (
                "000:37 000:53 000:93 000:265 000:282 001:35 001:65 001:156 001:186 002:946 002:967 002:980 "
                "002:1076 002:1106 002:1125 002:1298 002:297 004:140 004:174 004:299 004:381 004:215",
                DRAFT,
            ),
            ("000:37 000:53 002:297", STATELESS),
        ],
    ),
    Difference(
        "the name of the server",
        "a result without `_meta`",
        "`io.modelcontextprotocol/serverInfo` in `_meta`",
        "2026-07-28 has no session in which a server would introduce itself.",
        _each(lambda frame: frame["result"].update(_meta={INFO: "<server>"})),
        [
            (
                "000:37 000:53 000:93 000:137 000:158 000:181 000:214 002:247 002:297 002:482 002:539 "
                "002:604 002:665 002:727 002:946 002:980 002:1240",
                STATELESS,
            )
        ],
    ),
)
