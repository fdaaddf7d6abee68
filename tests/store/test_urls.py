"""The URLs of task stores and artifact stores, which one function parses."""

from __future__ import annotations

import pytest

from antiphon.store.urls import is_database_url, is_store_url, parse_store_url


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("memory:", ("memory", "")),
        ("sqlite:///a/b.db", ("sqlite", "a/b.db")),
        ("sqlite:////var/c.db", ("sqlite", "/var/c.db")),
        ("postgresql://u@h/d?schema=s", ("postgresql", "postgresql://u@h/d?schema=s")),
        ("postgres://h/d", ("postgresql", "postgres://h/d")),
    ],
)
def test_both_kinds_of_store_have_the_same_urls(url: str, parsed: tuple[str, str], artifacts: bool) -> None:
    assert parse_store_url(url, artifacts=artifacts) == parsed


def test_only_artifacts_can_be_stored_in_a_folder() -> None:
    assert parse_store_url("file:///a/b", artifacts=True) == ("file", "a/b")
    assert parse_store_url("file:////a/b/", artifacts=True) == ("file", "/a/b/")
    with pytest.raises(ValueError, match="Unknown store URL 'file:///a/b'"):
        parse_store_url("file:///a/b")


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "Unknown store URL ''"),
        ("redis://h", "Unknown store URL 'redis://h'"),
        ("memory:x", "has text after `memory:`"),
        ("sqlite:x.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("postgresql:d", "names no database"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason_and_the_valid_forms(
    url: str, reason: str, artifacts: bool
) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        parse_store_url(url, artifacts=artifacts)
    assert "Use `memory:`" in str(raised.value)
    assert ("`file:///folder`" in str(raised.value)) == artifacts


def test_a_folder_url_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="names no folder"):
        parse_store_url("file:///", artifacts=True)


@pytest.mark.parametrize(
    ("text", "store", "database"),
    [
        ("memory:", True, False),
        ("sqlite:///a.db", True, True),
        ("postgres://h/d", True, True),
        ("postgresql://h/d", True, True),
        ("file:///folder", False, False),
        ("http://host/mcp", False, False),
        ("server.py", False, False),
    ],
)
def test_store_urls_are_told_from_other_targets(text: str, store: bool, database: bool) -> None:
    assert (is_store_url(text), is_database_url(text)) == (store, database)
