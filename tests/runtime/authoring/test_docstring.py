"""Docstrings in the Google, Sphinx and NumPy styles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.runtime.authoring.docstring import read


def google(a, b, c):
    """Do it.

    At length, with a colon: here.

    Args:
        a: The first.
        b (int, optional): The second,
            on two lines.
        c: A ratio a:b.

    Returns:
        something: not a parameter.

    Raises:
        ValueError: never.
    """


def sphinx(a, b, c):
    """Do it.

    At length, with a colon: here.

    :param a: The first.
    :param int b: The second,
        on two lines.
    :type b: int
    :param c: A ratio a:b.
    :returns: something
    :raises ValueError: never
    """


def numpy(a, b, c):
    """Do it.

    At length, with a colon: here.

    Parameters
    ----------
    a : str
        The first.
    b : int, optional
        The second,
        on two lines.
    c
        A ratio a:b.

    Returns
    -------
    something
        Not a parameter.
    """


@pytest.mark.parametrize("function", [google, sphinx, numpy], ids=lambda f: f.__name__)
def test_all_styles_are_read_alike(function: Callable[..., Any]) -> None:
    assert read(function) == (
        "Do it.\n\nAt length, with a colon: here.",
        {"a": "The first.", "b": "The second, on two lines.", "c": "A ratio a:b."},
    )


def test_a_function_without_a_docstring_has_no_description() -> None:
    def f(): ...

    assert read(f) == (None, {})


def test_a_docstring_with_arguments_only() -> None:
    def f(a):
        """
        Args:
            a: The first.
        """

    assert read(f) == (None, {"a": "The first."})


def test_one_line_is_the_whole_description() -> None:
    def f():
        """Do it."""

    assert read(f) == ("Do it.", {})


def test_words_that_look_like_sections_and_are_none() -> None:
    def f():
        """Do it.

        Note: this is a sentence.
        Returns nothing.
        """

    assert read(f) == ("Do it.\n\nNote: this is a sentence.\nReturns nothing.", {})


def test_text_after_a_section_belongs_to_the_description() -> None:
    def f(a):
        """Do it.

        Args:
            a: The first.

        More about it.
        """

    description, meanings = read(f)
    assert description is not None
    assert description.split() == ["Do", "it.", "More", "about", "it."]
    assert meanings == {"a": "The first."}
