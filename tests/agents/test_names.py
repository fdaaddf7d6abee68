"""The names of tools as the APIs accept them."""

from __future__ import annotations

import re

from antiphon.agents.names import api_names

ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_a_name_that_the_apis_accept_stays() -> None:
    assert api_names(["search", "a-b_C9"]) == {"search": "search", "a-b_C9": "a-b_C9"}


def test_other_characters_become_underscores() -> None:
    assert api_names(["files/read.all"]) == {"files/read.all": "files_read_all"}


def test_names_that_would_be_equal_end_with_a_digest() -> None:
    found = api_names(["a.b", "a/b", "c_d", "c.d"])
    assert found["c_d"] == "c_d"
    assert re.fullmatch("a_b_[0-9a-f]{8}", found["a.b"])
    assert re.fullmatch("c_d_[0-9a-f]{8}", found["c.d"])
    assert found == api_names(["c.d", "a/b", "a.b", "c_d"])


def test_a_server_cannot_take_the_name_of_another_tool() -> None:
    taken = api_names(["a.b", "a/b"])["a.b"]
    found = api_names(["a.b", "a/b", taken])
    assert found[taken] == taken
    assert len(set(found.values())) == 3


def test_all_names_are_accepted_and_unique() -> None:
    names = ["", "_", "é", "ü", "a" * 65, "a" * 64, "a" * 64 + "b", "a b", "a_b", "a\nb", "名", "\ud800", "."]
    found = api_names(names)
    assert sorted(found) == sorted(names)
    assert len(set(found.values())) == len(names)
    assert all(ACCEPTED.fullmatch(name) for name in found.values())
