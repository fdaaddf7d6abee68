"""Results in a pipe and on a terminal."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from antiphon.cli import render
from antiphon.model.content import (
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment


def encoded(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard output claim to be a terminal without colours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (Audio(encoded(3), "audio/wav"), "[audio/wav, 3 bytes]"),
        (ResourceLink("file:///a.txt", "a"), "a: file:///a.txt"),
        (ResourceLink("file:///a.txt", "a", "The file"), "The file: file:///a.txt"),
        (EmbeddedResource(TextContents("file:///a.txt", "in it")), "in it"),
        (
            EmbeddedResource(BlobContents("file:///a.bin", encoded(4))),
            "[file:///a.bin, application/octet-stream, 4 bytes]",
        ),
        (
            EmbeddedResource(BlobContents("file:///a.zip", encoded(4), "application/zip")),
            "[file:///a.zip, application/zip, 4 bytes]",
        ),
        ({"type": "hologram", "depth": 3}, '{"type":"hologram","depth":3}'),
        ({"type": "video", "text": "A town", "url": "https://a/b.mp4"}, "A town: https://a/b.mp4"),
        ({"type": "hologram", "text": "A town"}, "A town"),
    ],
)
def test_prints_a_summary_of_a_block_that_is_not_text(
    block: Any, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    render.print_result(Result([Text("Look:"), block]))
    assert capsys.readouterr().out == f"Look:\n{shown}\n"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (10 * 1024 - 1, "10239 bytes"),
        (10 * 1024, "10 KiB"),
        (10 * 1024**2 - 1, "10239 KiB"),
        (10 * 1024**2, "10 MiB"),
    ],
)
def test_prints_a_size_in_a_suitable_unit(size: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    render.print_result(Result(Image(encoded(size), "image/png")))
    assert capsys.readouterr().out == f"[image/png, {shown}]\n"


def test_data_without_content_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_result(Result([], data={"a": [1, 2]}))
    assert capsys.readouterr().out == '{"a":[1,2]}\n'


def test_a_failure_without_content_prints_a_default_message(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_failure(Result([], is_error=True))
    assert capsys.readouterr().err == "The tool failed and gave no reason.\n"


def test_a_terminal_shows_data_once_if_the_text_repeats_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_terminal(monkeypatch)
    render.print_result(Result(['{"a":1}'], data={"a": 1}))
    assert json.loads(capsys.readouterr().out) == {"a": 1}


@pytest.mark.parametrize("content", [["One.", "Two."], ["One."], ['{"a":2}']])
def test_a_terminal_shows_content_that_differs_from_the_data(
    content: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    render.print_result(Result(content, data={"a": 1}))
    shown = capsys.readouterr().out.splitlines()
    assert shown[: len(content)] == content
    assert json.loads("".join(shown[len(content) :])) == {"a": 1}


def test_a_tool_without_a_description_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    render.print_signatures([("mute(x: string)", ""), ("told()", "It is told.")])
    assert capsys.readouterr().out == "mute(x: string)\ntold()\n    It is told.\n"


def test_removes_control_characters_from_a_segment_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    render.print_segment(Segment(1, Text("red: \x1b[31m")), as_json=False)
    assert capsys.readouterr().out == "red: [31m\n"
