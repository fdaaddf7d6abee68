"""Sealed tokens: whatever is done to a token, it opens as it was sealed or not at all."""

from __future__ import annotations

import base64
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SealError
from antiphon.runtime.carriers.seal import Seal, Use
from tests.fuzz.strategies import near, target

OURS, OTHER = (Seal([bytes(range(start, start + 32))]) for start in (0, 64))
CONTENT = {
    (seal, binding): seal.seal(data, use="state", bound_to=binding, lifetime=3600)
    for seal, binding, data in ((OURS, b"me", b"mine"), (OURS, b"you", b"yours"), (OTHER, b"me", b"others"))
}
TOKENS = list(CONTENT.values())
MINE = TOKENS[0]
ALPHABET = string.ascii_letters + string.digits + "-_=+/. \n\0é"


@st.composite
def altered(draw: Callable[[Any], Any]) -> str:
    """Tokens that are cut, spliced or changed, as text or as the bytes within."""
    token = draw(st.sampled_from(TOKENS))
    how = draw(near("text", "end", "bytes", "splice", "repad", "as it is"))
    if how == "text":
        start = draw(st.integers(0, len(token)))
        put = draw(st.text(ALPHABET, max_size=4))
        return str(token[:start] + put + token[start + draw(st.integers(0, 4)) :])
    if how == "end":  # the last character has bits that are not part of the data
        return str(token[:-1] + draw(st.sampled_from(ALPHABET)))
    if how == "bytes":
        raw = bytearray(_decode(token))
        for _ in range(draw(st.integers(1, 3))):
            raw[draw(st.integers(0, len(raw) - 1))] ^= draw(st.integers(0, 255))
        return _encode(bytes(raw))
    if how == "splice":
        other = draw(st.sampled_from(TOKENS))
        cut = draw(st.integers(0, len(token)))
        return str(token[:cut] + other[cut:])
    if how == "repad":
        return str(token + "=" * draw(st.integers(0, 3)))
    return str(token)


def _decode(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@target
@given(altered() | st.text(ALPHABET, max_size=80) | st.text(max_size=20))
def test_only_the_token_itself_opens(token: str) -> None:
    try:
        data = OURS.open(token, use="state", bound_to=b"me")
    except SealError:
        assert token != MINE
    else:
        assert (token, data) == (MINE, b"mine")


@target
@given(altered(), st.lists(near(b"me", b"you", b"") | st.binary(max_size=6), max_size=3))
def test_a_token_opens_only_for_the_binding_that_it_has(token: str, bindings: list[bytes]) -> None:
    try:
        data = OURS.open(token, use="state", bound_to=bindings)
    except SealError:
        assert not any(CONTENT.get((OURS, binding)) == token for binding in bindings)
    else:
        assert data in [
            expected for binding, expected in ((b"me", b"mine"), (b"you", b"yours")) if binding in bindings
        ]
        assert token in TOKENS[:2]


USES: tuple[Use, ...] = ("state", "session")


@target
@given(
    st.binary(max_size=200),
    st.tuples(near(*USES), st.binary(max_size=30)),
    st.tuples(near(*USES), near(b"") | st.binary(max_size=30)),
)
def test_data_comes_back_and_uses_and_bindings_are_never_confused(
    data: bytes, one: tuple[Use, bytes], other: tuple[Use, bytes]
) -> None:
    token = OURS.seal(data, use=one[0], bound_to=one[1], lifetime=60)
    assert OURS.open(token, use=one[0], bound_to=one[1]) == data
    if one != other:
        with pytest.raises(SealError):
            OURS.open(token, use=other[0], bound_to=other[1])
