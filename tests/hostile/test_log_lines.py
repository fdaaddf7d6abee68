"""Log lines that quote the other side: one printable line each, whoever handles them."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon import Client, Limits, Server
from antiphon.log_records import LOGGERS
from antiphon.middleware import AuditLog
from antiphon.transport.server.http.serve import create_config
from tests.test_printable import FORBIDDEN

SOURCE = Path(__file__).parents[2] / "src" / "antiphon"
POISON = f"a{FORBIDDEN[:-4]}\n2026-01-01 INFO antiphon: forged\x1b[2Jb"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The output of a plain handler of the root logger."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("LINE %(message)s"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def assert_clean(text: str, *, lines: int | None = None) -> None:
    assert text
    # Tracebacks have several lines, and may have tabs.
    found = set(text) & (set(FORBIDDEN) - {"\n", "\t"})
    assert not found
    if lines is not None:
        assert len(text.splitlines()) == lines
        assert all(line.startswith("LINE ") for line in text.splitlines())


def test_every_logger_of_the_library_is_cleaned() -> None:
    named = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'getLogger\("([^"]+)"\)', file.read_text())
        if name.startswith("antiphon")
    }
    assert named == set(LOGGERS)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_message_is_one_printable_line(name: str, written: io.StringIO) -> None:
    logger = logging.getLogger(name)
    logger.warning("%s refused: %s", POISON, ValueError(POISON))
    logger.warning(POISON)
    logger.warning("%r is %d", POISON, 5)
    assert_clean(written.getvalue(), lines=3)


def test_a_message_without_control_characters_keeps_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("antiphon").warning("%s has %d", "Ada", 5)
    assert (caplog.records[0].msg, caplog.records[0].args) == ("%s has %d", ("Ada", 5))


def test_a_traceback_cannot_forge_a_line(written: io.StringIO) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    try:
        try:
            raise ValueError(POISON)
        except ValueError as error:
            raise Broken from error
    except Broken:
        logging.getLogger("antiphon").exception("It failed.")
    text = written.getvalue()
    assert_clean(text)
    assert "Traceback (most recent call last):" in text
    assert "\n    2026-01-01 INFO antiphon: forged" in text
    assert "\n2026-01-01" not in text


def test_a_message_that_cannot_be_formatted_is_left_to_the_handler(
    written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("antiphon").warning("%d", "five")
    assert written.getvalue() == ""


def test_the_access_log_keeps_the_form_that_uvicorn_formats(written: io.StringIO) -> None:
    async def app(*_: object) -> None: ...

    logger = logging.getLogger("uvicorn.access")
    before = (logger.handlers[:], logger.propagate, logger.level)
    config = create_config(app, limits=Limits())
    try:
        assert config is not None
        logger.propagate = True
        logger.setLevel(logging.INFO)
        (handler,) = logger.handlers
        records: list[logging.LogRecord] = []
        handler.emit = records.append  # type: ignore[method-assign]
        logger.info('%s - "%s %s HTTP/%s" %d', "127.0.0.1", "GET", f"/{POISON}", "1.1", 200)
        assert handler.formatter is not None
        assert_clean(handler.formatter.format(records[0]).replace("\x1b", ""))
    finally:
        logger.handlers[:], logger.propagate = before[0], before[1]
        logger.setLevel(before[2])


async def test_names_of_callers_tools_and_errors_are_cleaned(written: io.StringIO) -> None:
    server = Server("mine", middleware=[AuditLog()])

    @server.tool
    async def fail(why: str) -> str:
        raise RuntimeError(why)

    async with Client(server, name=POISON, principal=POISON.replace("\0", "")) as client:
        await client.call("fail", {"why": POISON}, check=False)
        for request in (client.call(POISON), client.read(POISON), client.prompt(POISON)):
            await asyncio.gather(request, return_exceptions=True)
    text = written.getvalue()
    assert "RuntimeError" in text
    assert_clean(text)
