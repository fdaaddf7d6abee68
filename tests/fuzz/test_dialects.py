"""Each dialect reads whatever the other side sends, or refuses it; a question is no success."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import AntiphonError, RequestError
from antiphon.model.identity import Implementation
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, RedeemTask, RequestMeta
from antiphon.model.segment import StreamPart
from antiphon.wire import jsonrpc
from antiphon.wire.versions import VERSIONS
from tests.fuzz.strategies import JSON_VALUES, damaged, frames, near, replaced, target

TESTS = Implementation("tests", "1")
FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {}}}}
MODEL = {"messages": [], "maxTokens": 5}
ANSWERS: list[Any] = [
    {"name": "name", "value": "Ada"},
    {"action": "accept", "content": {"name": "Ada"}},
    {"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"},
]
ASKING: list[dict[str, Any]] = [
    {"method": "elicitation/create", "params": FORM},
    {"method": "sampling/createMessage", "params": MODEL, "_meta": {"dev.antiphon/question": "q"}},
    {"result": {"AdditionalInfoRequested": {"elicitation": [{"params": FORM}]}, "isError": False}},
    {"result": {"AdditionalInfoRequested": {"sampling": [{"params": MODEL}]}, "isError": False}},
    {"result": {"content": [{"type": "elicitation", **FORM}], "isError": False}},
    {"result": {"content": [{"type": "sampling", **MODEL}], "isError": False, "requestState": "s"}},
    {
        "result": {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": "elicitation/create", "params": FORM}},
        }
    },
]
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a client takes for a result that cannot be read."""


def asks(value: Any) -> bool:
    """Return whether a message asks something in one of the shapes."""
    result = value.get("result")
    if not isinstance(result, dict):
        return False
    content = result.get("content")
    return bool(
        result.get("AdditionalInfoRequested")
        or any(
            isinstance(block, dict) and block.get("type") in ("elicitation", "sampling")
            for block in (content if isinstance(content, list) else ())
        )
    )


@st.composite
def asking(draw: Any) -> dict[str, Any]:
    """Messages that ask, some of them with odd members."""
    frame = {"jsonrpc": "2.0", "id": 1, **json.loads(json.dumps(draw(st.sampled_from(ASKING))))}
    for _ in range(draw(st.integers(0, 3))):
        replaced(draw, frame)
    return frame


@target
@given(asking(), st.sampled_from([CallTool("add"), RedeemTask("t"), RedeemTask("t", stream={})]))
def test_a_client_reads_a_question_or_refuses_it_and_never_takes_it_for_a_result(
    sent: dict[str, Any], request: Any
) -> None:
    try:
        frame = jsonrpc.decode(json.dumps(sent).encode())
    except RequestError:
        return
    for version in VERSIONS:
        if version.client is None:
            continue
        dialect = VERSIONS.client_dialect(version, TESTS, {})
        if type(request) not in dialect.methods:
            continue
        try:
            read = dialect.read(request, frame)
        except (AntiphonError, *UNREADABLE):
            continue
        if asks(sent):
            assert isinstance(read, InputRequired | StreamPart), (version.name, read)
            assert not isinstance(read, StreamPart) or read.stopped is not None, version.name
        if isinstance(read, InputRequired) and isinstance(request, CallTool):
            again = CallTool(
                "add", {}, request_state=read.sealed, input_responses={key: {} for key in read.questions}
            )
            jsonrpc.decode(dialect.request(2, again, RequestMeta()).body)
        assert not isinstance(read, Result) or frame.result is not None


@target
@given(
    frames(),
    st.dictionaries(
        near("elicitation", "sampling", "_meta", "stream"),
        st.sampled_from([*ANSWERS, ANSWERS]) | JSON_VALUES,
        max_size=2,
    ),
    st.lists(st.sampled_from(ANSWERS) | st.none(), max_size=2) | JSON_VALUES,
)
def test_a_server_reads_a_request_or_refuses_it(
    sent: dict[str, Any], beside: dict[str, Any], answers: Any
) -> None:
    sent = {**sent, **beside}
    if isinstance(sent.get("params"), dict) and answers:
        sent["params"]["inputResponses"] = answers
    try:
        frame = jsonrpc.decode(json.dumps(sent).encode())
        frame.params  # noqa: B018 - it is read on first use
    except RequestError:
        return
    for version in VERSIONS:
        dialect = version.server(version.name, TESTS, VERSIONS.advertised)
        copy = jsonrpc.decode(json.dumps(sent).encode())
        try:
            if isinstance(copy.method, str):
                dialect.request_meta(copy, None)
                dialect.parse(copy)
            else:
                dialect.answered(copy)
        except RequestError:
            continue


@target
@given(damaged(asking().map(lambda frame: json.dumps(frame).encode())))
def test_a_damaged_question_is_refused(body: bytes) -> None:
    try:
        frame = jsonrpc.decode(body)
        frame.params  # noqa: B018 - it is read on first use
    except RequestError:
        return
    for version in VERSIONS:
        if version.client is not None:
            try:
                VERSIONS.client_dialect(version, TESTS, {}).read(CallTool("add"), frame)
            except (AntiphonError, *UNREADABLE):
                continue
