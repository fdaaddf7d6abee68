"""Cleans the records of the library's loggers, before any handler sees them.

Log lines name tools, methods, clients and errors of the other side. A filter on each logger makes one
printable line of each message, so a caller cannot forge a second line or control the terminal of a reader.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from antiphon.printable import printable, printable_text, redacted_url

__all__ = ["LOGGERS", "clean_records", "redact_urls"]

LOGGERS = (
    "antiphon",
    "antiphon.agents",
    "antiphon.audit",
    "antiphon.calls",
    "antiphon.client",
    "antiphon.console",
    "antiphon.gateway",
    "antiphon.tasks",
)
"""The loggers of the library. Python applies the filters of a logger to that logger only, not to children."""

_formatter = logging.Formatter()


def clean_records(names: Iterable[str] = LOGGERS) -> None:
    """Clean all records that these loggers create from now on."""
    for name in names:
        logging.getLogger(name).addFilter(_clean)


def redact_urls(name: str) -> None:
    """Log no passwords and no values of queries in the URLs that this logger of another library logs."""
    logging.getLogger(name).addFilter(_redact)


def _redact(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            redacted_url(str(arg)) if str(arg).startswith(("http://", "https://")) else arg
            for arg in record.args
        )
    return True


def _clean(record: logging.LogRecord) -> bool:
    try:
        message = record.getMessage()
    except Exception:  # the handler reports a message that cannot be formatted
        return True
    if not _is_clean(message):
        # Formatters such as the one of uvicorn's access log read the arguments, so these stay if possible.
        if isinstance(record.args, tuple):
            record.args = tuple(printable(arg) if isinstance(arg, str) else arg for arg in record.args)
        if not _is_clean(record.getMessage()):
            record.msg, record.args = printable(message, len(message)), ()
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        record.exc_text = _traceback(record.exc_info[1])
    return True


def _is_clean(message: str) -> bool:
    return printable(message, len(message)) == message


def _traceback(error: BaseException) -> str:
    """Return a traceback in which no message of an exception begins a line."""
    text = _formatter.formatException((type(error), error, error.__traceback__))
    for message in _messages(error):
        if "\n" in message:
            text = text.replace(message, message.replace("\n", "\n    "))
    return printable_text(text)


def _messages(error: BaseException) -> Iterator[str]:
    """Yield the messages of an exception and of the exceptions that it followed."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        try:
            yield str(following)
        except Exception:  # the exception of an author: its own `__str__` may fail
            yield ""
        following = following.__cause__ or following.__context__
