"""The memory budget of a process, and the shares of principals."""

from __future__ import annotations

import pytest

from antiphon import Limits
from antiphon.errors import BodyTooLarge, Busy, DefinitionError
from antiphon.runtime.budget import Account, MemoryBudget, Usages, decoded_size, share_of


def budget(**limits: float) -> MemoryBudget:
    return MemoryBudget(Limits(**{"max_memory_bytes": 1000, **limits}), Usages())  # type: ignore[arg-type]


def test_a_principal_gets_its_share_and_the_others_the_rest() -> None:
    shared = budget()
    shared.reserve("ada", 500, "the session")
    with pytest.raises(Busy, match="You use 500 of at most 500 bytes.*the session needs 1"):
        shared.reserve("ada", 1, "the session")
    shared.reserve("bob", 400, "the session")
    with pytest.raises(Busy, match="The server uses 900 of at most 1000 bytes"):
        shared.reserve("eve", 200, "the session")
    shared.release("ada", 500)
    shared.reserve("eve", 200, "the session")
    assert shared.reserved == 600


def test_without_authentication_there_are_no_shares() -> None:
    shared = budget()
    shared.reserve("", 1000, "the session")
    with pytest.raises(Busy, match="The server uses 1000 of at most 1000"):
        shared.reserve("", 1, "the session")


def test_what_can_never_fit_is_too_large_and_not_refused_for_now() -> None:
    with pytest.raises(BodyTooLarge, match="501 bytes of memory for the body.*at most 500"):
        budget().reserve("ada", 501, "the body")
    with pytest.raises(BodyTooLarge, match="at most 1000"):
        budget().reserve("", 1001, "the body")
    budget(principal_share=1.0).reserve("ada", 1000, "the body")


def test_the_budget_reclaims_memory_of_the_one_who_needs_more() -> None:
    shared = budget()
    asked: list[str | None] = []
    idle = [Account(shared, "ada", reclaimable=True) for _ in range(2)]

    def reclaim(principal_id: str | None, wanted: int) -> None:
        asked.append(principal_id)
        idle.pop().close()

    shared.reclaim = reclaim
    for account in idle:
        account.reserve(250, "the session")
    shared.reserve("ada", 200, "the body")
    assert asked == ["ada"]
    shared.reserve("bob", 500, "the body")
    shared.reserve("eve", 300, "the body")
    assert asked == ["ada", None]
    assert shared.reserved == 1000


def test_nothing_is_reclaimed_in_vain() -> None:
    shared = budget()
    shared.reclaim = lambda principal_id, wanted: pytest.fail("it is not enough")
    Account(shared, "ada", reclaimable=True).reserve(100, "the session")
    shared.reserve("ada", 400, "the body")
    with pytest.raises(Busy):
        shared.reserve("ada", 101, "the body")
    shared.reserve("bob", 400, "the body")
    with pytest.raises(Busy):
        shared.reserve("eve", 201, "the body")


def test_a_closed_account_holds_nothing() -> None:
    shared = budget()
    account = Account(shared, "ada")
    account.reserve(100, "the session")
    assert account.try_reserve(100)
    account.release(50)
    assert (account.size, shared.reserved) == (150, 150)
    account.close()
    account.release(50)
    assert not account.try_reserve(1)
    assert (account.size, shared.reserved) == (0, 0)


def test_principals_that_use_nothing_are_forgotten() -> None:
    usages = Usages()
    busy = usages.of("busy")
    busy.calls = 1
    for number in range(100_000):
        usages.of(f"principal {number}")
    assert len(usages) < 5000
    assert usages.of("busy") is busy


def test_every_principal_gets_something() -> None:
    assert [share_of(limit, 0.5) for limit in (0, 1, 2, 3, 1000)] == [0, 1, 1, 1, 500]
    assert share_of(1000, 1.0) == 1000


@pytest.mark.parametrize("share", [0, 1.1, float("nan")])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(DefinitionError, match="principal_share"):
        Limits(principal_share=share)


def test_the_size_of_decoded_json_is_not_that_of_its_text() -> None:
    hollow = b"[" + b"[]," * 10_000 + b"[]]"
    assert decoded_size(hollow) > 10 * len(hollow)
    text = b'"' + b'one, two, [three], {four} \\"' * 1000 + b'"'
    assert decoded_size(text) < 2 * len(text)
    assert decoded_size(text.decode()) == decoded_size(text)


@pytest.mark.parametrize("end", [b"", b"\\", b'"'])
def test_a_string_without_an_end_is_read_once(end: bytes) -> None:
    # A search that began again at each quote would take hours.
    body = b"[" + 1_000_000 * b"," + 1_000_000 * b'\\"' + end
    assert len(body) < decoded_size(body) < 200 * len(body)
