"""The fast path of a plain tool call, against the path that reads every request in full."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.fuzz.asgi import Answer, build_server
from tests.fuzz.plain_calls import HEADERS, META, Both, bare, plain_calls
from tests.fuzz.strategies import target

both = Both(build_server)


@target
@given(plain_calls(tools=("add", "ask")))
def test_a_call_ends_the_same_whichever_path_reads_it(request: tuple[dict[bytes, bytes], bytes]) -> None:
    fast, full = both.send(*request)
    assert shown(fast) == shown(full), request


def shown(answer: Answer) -> Any:
    """Return what a client sees of an answer, without the token that is random."""
    frame = answer.frame
    if isinstance(frame, dict) and "requestState" in frame.get("result", {}):
        frame["result"]["requestState"] = "sealed"
    return answer.status, answer.headers.get(b"content-type"), frame


def test_the_plainest_call_does_take_the_fast_path() -> None:
    dialects = both.fast.app.endpoint.dialects
    assert dialects.glance(bare(META), HEADERS) is not None
    assert both.full.app.endpoint.dialects.glance(bare(META), HEADERS) is None
