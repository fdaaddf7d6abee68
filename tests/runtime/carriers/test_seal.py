"""Sealed tokens."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import time

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SealError
from antiphon.runtime.carriers import seal as module
from antiphon.runtime.carriers.seal import Seal

OLD, NEW = "an old secret of ours", "a new secret of ours"
seal = Seal([NEW])


def sealed(data: bytes = b"data", bound_to: bytes = b"me", lifetime: float = 60, by: Seal = seal) -> str:
    return by.seal(data, use="state", bound_to=bound_to, lifetime=lifetime)


@given(st.binary(max_size=300), st.binary(max_size=50))
def test_sealed_data_opens(data: bytes, bound_to: bytes) -> None:
    token = sealed(data, bound_to)
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token
    assert seal.open(token, use="state", bound_to=bound_to) == data


TOKEN = sealed(b"some data that matters", lifetime=3600)


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("ABCabc019-_=+/ .\n\u00e9"))
def test_no_character_can_be_changed(position: int, character: str) -> None:
    altered = TOKEN[:position] + character + TOKEN[position + 1 :]
    if altered != TOKEN:
        with pytest.raises(SealError):
            seal.open(altered, use="state", bound_to=b"me")


@given(st.integers(0, 59), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4)))
    raw[position % len(raw)] ^= change
    with pytest.raises(SealError):
        seal.open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), use="state", bound_to=b"me")


@pytest.mark.parametrize(
    "token",
    ["", "a", "=", "é", TOKEN + "=", TOKEN + "A", TOKEN[:-1], TOKEN[1:], TOKEN * 2, f" {TOKEN}"],
    ids=range(10),
)
def test_an_invalid_token_does_not_open(token: str) -> None:
    with pytest.raises(SealError):
        seal.open(token, use="state", bound_to=b"me")


@given(st.text())
def test_any_text_is_refused_as_a_token(token: str) -> None:
    with pytest.raises(SealError):
        seal.open(token, use="state", bound_to=b"me")


@given(st.binary(min_size=21, max_size=40), st.integers(0, 60), st.sampled_from("+/=-_ \nAQgw\u00e9\ud800"))
def test_the_bytes_of_a_token_have_one_spelling(raw: bytes, position: int, character: str) -> None:
    token = module.encode(raw)
    assert token == base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    assert module.decode(token) == raw
    for changed in (token[:position] + character + token[position + 1 :], token + character):
        if changed != token:
            try:
                other = module.decode(changed)
            except SealError:
                continue
            assert other != raw
            assert module.encode(other) == changed


@given(st.binary(max_size=20))
def test_a_token_opens_only_with_its_binding(other: bytes) -> None:
    if other != b"me":
        with pytest.raises(SealError):
            seal.open(TOKEN, use="state", bound_to=other)


def test_a_token_opens_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    token = sealed(lifetime=60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 59)
    assert seal.open(token, use="state", bound_to=b"me") == b"data"
    monkeypatch.setattr(time, "time", lambda: now + 62)
    with pytest.raises(SealError, match="expired"):
        seal.open(token, use="state", bound_to=b"me")


def test_the_first_key_seals_and_all_open() -> None:
    before, during, after = Seal([OLD]), Seal([NEW, OLD]), Seal([NEW])
    assert during.open(sealed(by=before), use="state", bound_to=b"me") == b"data"
    assert after.open(sealed(by=during), use="state", bound_to=b"me") == b"data"
    with pytest.raises(SealError):
        after.open(sealed(by=before), use="state", bound_to=b"me")


def test_without_secrets_each_ring_has_a_key_of_its_own() -> None:
    one, other = Seal(), Seal()
    assert not one.shared
    assert one.open(sealed(by=one), use="state", bound_to=b"me") == b"data"
    with pytest.raises(SealError):
        other.open(sealed(by=one), use="state", bound_to=b"me")


def test_two_tokens_of_the_same_data_differ() -> None:
    assert sealed() != sealed()


def test_the_data_cannot_be_read() -> None:
    raw = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))
    assert b"matters" not in raw


def test_secrets_may_be_bytes_and_must_be_long() -> None:
    assert Seal([NEW.encode()]).open(TOKEN, use="state", bound_to=b"me") == b"some data that matters"
    with pytest.raises(ValueError, match="16"):
        Seal(["short"])


def test_a_token_opens_for_its_use_only() -> None:
    token = seal.seal(b"data", use="session", bound_to=b"me", lifetime=60)
    assert seal.open(token, use="session", bound_to=b"me") == b"data"
    with pytest.raises(SealError):
        seal.open(token, use="state", bound_to=b"me")


def salt(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[1:17]


FORKING = """
import os
from antiphon.runtime.carriers.seal import Seal

ring = Seal(["a secret that is long enough"])
own = ring.seal(b"", use="state", bound_to=b"", lifetime=1)
if (child := os.fork()) != 0:
    os.waitpid(child, 0)
print(own, ring.seal(b"", use="state", bound_to=b"", lifetime=1), flush=True)
"""


def test_a_forked_process_has_a_key_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    (own, of_child), (same, of_parent) = (map(salt, line.split()) for line in done.stdout.splitlines())
    assert own == same == of_parent
    assert of_child != own


def test_each_seal_and_each_use_has_a_key_of_its_own() -> None:
    ring = Seal([NEW])
    own = salt(sealed(by=ring))
    assert salt(sealed(by=ring)) == own
    assert salt(ring.seal(b"", use="session", bound_to=b"", lifetime=1)) != own
    assert salt(sealed(by=Seal([NEW]))) != own


def test_a_key_seals_a_bounded_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.MAX_TOKENS_PER_KEY == 2**30
    monkeypatch.setattr(module, "MAX_TOKENS_PER_KEY", 3)
    ring = Seal([NEW])
    tokens = [sealed(by=ring) for _ in range(7)]
    assert [len({salt(token) for token in some}) for some in (tokens[:3], tokens[3:6], tokens)] == [1, 1, 3]
    assert {seal.open(token, use="state", bound_to=b"me") for token in tokens} == {b"data"}


def test_invented_salts_do_not_fill_the_memory_or_evict_keys() -> None:
    ring = Seal([NEW])
    ring.open(TOKEN, use="state", bound_to=b"me")
    kept = dict(ring.ciphers)
    raw = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))
    for n in range(300):
        invented = raw[:1] + n.to_bytes(16, "big") + raw[17:]
        with pytest.raises(SealError):
            ring.open(base64.urlsafe_b64encode(invented).rstrip(b"=").decode(), use="state", bound_to=b"me")
    assert ring.ciphers == kept
    for _ in range(300):
        ring.open(sealed(by=Seal([NEW])), use="state", bound_to=b"me")
    assert len(ring.ciphers) == 256


@pytest.mark.parametrize("use", ["state", "session"])
def test_tokens_of_the_first_format_still_open(use: module.Use) -> None:
    nonce, expiry = os.urandom(12), int((time.time() + 60) * 1000).to_bytes(8, "big")
    for first in (b"\2", b"\3"):  # a random byte, which may be the one of the present format
        nonce = first + nonce[1:]
        cipher = AESGCM(hashlib.sha256(b"antiphon seal\0" + NEW.encode()).digest())
        raw = nonce + expiry + cipher.encrypt(nonce, b"old data", expiry + b"me")
        token = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
        assert seal.open(token, use=use, bound_to=b"me") == b"old data"


@pytest.mark.parametrize("secret", ["a" * 64, "0123" * 16, b"\0" * 32, "passwordpassword"])
def test_a_secret_that_repeats_itself_is_refused(secret: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"too easy to guess.*openssl rand -hex 32"):
        Seal([NEW, secret])
