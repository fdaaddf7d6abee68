"""Sealed tokens."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SealError
from antiphon.runtime.carriers.seal import Seal

OLD, NEW = "an old secret of ours", "a new secret of ours"
seal = Seal([NEW])


def sealed(data: bytes = b"data", bound_to: bytes = b"me", lifetime: float = 60, by: Seal = seal) -> str:
    return by.seal(data, bound_to=bound_to, lifetime=lifetime)


@given(st.binary(max_size=300), st.binary(max_size=50))
def test_sealed_data_opens(data: bytes, bound_to: bytes) -> None:
    token = sealed(data, bound_to)
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token
    assert seal.open(token, bound_to=bound_to) == data


TOKEN = sealed(b"some data that matters", lifetime=3600)


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("ABCabc019-_=+/ .\n\u00e9"))
def test_no_character_can_be_changed(position: int, character: str) -> None:
    altered = TOKEN[:position] + character + TOKEN[position + 1 :]
    if altered != TOKEN:
        with pytest.raises(SealError):
            seal.open(altered, bound_to=b"me")


@given(st.integers(0, 59), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4)))
    raw[position % len(raw)] ^= change
    with pytest.raises(SealError):
        seal.open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), bound_to=b"me")


@pytest.mark.parametrize(
    "token",
    ["", "a", "=", "é", TOKEN + "=", TOKEN + "A", TOKEN[:-1], TOKEN[1:], TOKEN * 2, f" {TOKEN}"],
    ids=range(10),
)
def test_an_invalid_token_does_not_open(token: str) -> None:
    with pytest.raises(SealError):
        seal.open(token, bound_to=b"me")


@given(st.text())
def test_any_text_is_refused_as_a_token(token: str) -> None:
    with pytest.raises(SealError):
        seal.open(token, bound_to=b"me")


@given(st.binary(max_size=20))
def test_a_token_opens_only_with_its_binding(other: bytes) -> None:
    if other != b"me":
        with pytest.raises(SealError):
            seal.open(TOKEN, bound_to=other)


def test_a_token_opens_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    token = sealed(lifetime=60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 59)
    assert seal.open(token, bound_to=b"me") == b"data"
    monkeypatch.setattr(time, "time", lambda: now + 62)
    with pytest.raises(SealError, match="expired"):
        seal.open(token, bound_to=b"me")


def test_the_first_key_seals_and_all_open() -> None:
    before, during, after = Seal([OLD]), Seal([NEW, OLD]), Seal([NEW])
    assert during.open(sealed(by=before), bound_to=b"me") == b"data"
    assert after.open(sealed(by=during), bound_to=b"me") == b"data"
    with pytest.raises(SealError):
        after.open(sealed(by=before), bound_to=b"me")


def test_without_secrets_each_ring_has_a_key_of_its_own() -> None:
    one, other = Seal(), Seal()
    assert not one.shared
    assert one.open(sealed(by=one), bound_to=b"me") == b"data"
    with pytest.raises(SealError):
        other.open(sealed(by=one), bound_to=b"me")


def test_two_tokens_of_the_same_data_differ() -> None:
    assert sealed() != sealed()


def test_the_data_cannot_be_read() -> None:
    raw = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))
    assert b"matters" not in raw


def test_secrets_may_be_bytes_and_must_be_long() -> None:
    assert Seal([NEW.encode()]).open(TOKEN, bound_to=b"me") == b"some data that matters"
    with pytest.raises(ValueError, match="16"):
        Seal(["short"])
