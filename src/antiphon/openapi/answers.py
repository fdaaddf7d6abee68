"""Turns an answer of an API into the result of a tool or the contents of a resource.

Owns the shape of lists and of their next page, and the messages for errors. It must not know how the answer
came.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from antiphon.errors import Failure, ResourceNotFound
from antiphon.model.content import Audio, BlobContents, Block, EmbeddedResource, Image, TextContents
from antiphon.model.outcome import ReadResult, Result
from antiphon.openapi.api import Answer
from antiphon.openapi.bodies import written
from antiphon.openapi.credentials import without_secrets
from antiphon.openapi.inputs import Inputs, Parameter, media_type_of
from antiphon.openapi.schemas import bounded_text
from antiphon.printable import is_web_url, printable, printable_url

__all__ = ["NEXT_PAGE", "is_json", "to_contents", "to_result"]

logger = logging.getLogger("antiphon")

NEXT_PAGE = "next"
"""The key in a result that has the arguments for the next page."""
_MAX_ERROR_CHARACTERS = 2000
_MAX_DEPTH = 200
"""How deep JSON may be nested to become structured data. Deeper JSON is passed on as text."""
_MAX_QUERY_FIELDS = 100
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_RELATION = re.compile(r"""\brel\s*=\s*["']?([^"';,]*)""", re.IGNORECASE)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
CHARSETS = frozenset(
    {
        *("utf-8", "utf8", "us-ascii", "ascii", "latin-1", "latin1", "koi8-r", "koi8-u"),
        *("utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be"),
        *(f"iso-8859-{part}" for part in (*range(1, 12), *range(13, 17))),
        *(f"{prefix}{page}" for prefix in ("windows-", "cp") for page in range(1250, 1259)),
        *("shift-jis", "euc-jp", "iso-2022-jp", "gb2312", "gbk", "gb18030", "big5", "euc-kr"),
    }
)
"""The encodings of text that are read. Python knows others that are none, such as `unicode_escape`."""
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+\Z")
_BINARY = "application/octet-stream"
_TEXTS = (
    "application/xml",
    "application/yaml",
    "application/javascript",
    "application/x-www-form-urlencoded",
)
_CREDENTIALS = re.compile(r"\b(Bearer|Basic) [A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_HINTS: Mapping[int, str] = {
    401: "The API does not accept the credentials of this server; its operator has to set them.",
    403: "The credentials of this server do not allow it, or the API limits its use.",
    408: "Try again later.",
    429: "Try again later.",
}
"""What to do about a status. Others need no sentence, or have one for all statuses from 500 on."""


def to_result(
    answer: Answer, label: str, inputs: Inputs, arguments: Mapping[str, Any], *, is_open: bool
) -> Result:
    """Return the result of a call; raises `Failure` for an answer that is an error.

    `is_open` says whether the object that the API returns may have a further key.
    """
    if answer.location:
        return _moved(answer, label)
    _check_status(answer, label)
    if not answer.body:
        return Result(f"{label} answered {answer.phrase}.")
    kind = _kind(answer)
    if is_json(kind):
        try:
            data = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError):
            return Result(_text(answer))  # it only says that it is JSON
        if _is_too_deep(answer.body, data):
            return Result(_text(answer))
        following = _next_page(answer.link, label, inputs, arguments)
        if isinstance(data, list):
            data = {"items": data}
            is_open = True
        if isinstance(data, dict) and following and is_open and NEXT_PAGE not in data:
            data[NEXT_PAGE] = following
        return Result(data=data)
    return Result(_block(answer, kind))


def to_contents(answer: Answer, label: str, uri: str) -> ReadResult:
    """Return the contents of a resource; raises `ResourceNotFound`, and `Failure` for another error."""
    if answer.status in (404, 410):
        raise ResourceNotFound(f"Resource not found: {printable(uri, 500)}", data={"uri": uri})
    if answer.location:
        raise Failure(_moved(answer, label).text)
    _check_status(answer, label)
    kind = _kind(answer)
    if _is_text(kind):
        return ReadResult((TextContents(uri, _text(answer), kind),))
    return ReadResult((BlobContents(uri, base64.b64encode(answer.body).decode(), kind),))


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON."""
    return media_type == "application/json" or media_type.endswith("+json")


# Content


def _kind(answer: Answer) -> str:
    """Return the media type of an answer; text or bytes if it names none."""
    kind = media_type_of(answer.content_type)
    if _MEDIA_TYPE.match(kind):
        return kind
    try:
        answer.body.decode()
    except UnicodeDecodeError:
        return _BINARY
    return "text/plain"


def _is_too_deep(body: bytes, data: Any) -> bool:
    if body.count(b"[") + body.count(b"{") <= _MAX_DEPTH:
        return False
    level, depth = [data] if isinstance(data, dict | list) else [], 0
    while level and depth <= _MAX_DEPTH:
        containers = [each.values() if isinstance(each, dict) else each for each in level]
        level = [inner for each in containers for inner in each if isinstance(inner, dict | list)]
        depth += 1
    return depth > _MAX_DEPTH


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or is_json(kind) or kind in _TEXTS or kind.endswith(("+xml", "+yaml"))


def _text(answer: Answer) -> str:
    found = _CHARSET.search(answer.content_type)
    charset = found[1].lower().replace("_", "-") if found else "utf-8"
    return answer.body.decode(charset if charset in CHARSETS else "utf-8", "replace")


def _block(answer: Answer, kind: str) -> str | Block:
    if kind.startswith("image/"):
        return Image(base64.b64encode(answer.body).decode(), kind)
    if kind.startswith("audio/"):
        return Audio(base64.b64encode(answer.body).decode(), kind)
    if _is_text(kind):
        return _text(answer)
    return EmbeddedResource(BlobContents(answer.url, base64.b64encode(answer.body).decode(), kind))


def _moved(answer: Answer, label: str) -> Result:
    """Return the result for content at another origin, which gets no request with credentials."""
    if not is_web_url(answer.location):
        raise Failure(f"{label} answered {answer.phrase}, and where it leads is not a web address.")
    address = without_secrets(printable_url(answer.location), answer.secrets)
    return Result(f"{label} answered {answer.phrase}. It leads to {address}")


# Errors


def _check_status(answer: Answer, label: str) -> None:
    """Raise `Failure` for a status that is not a success, with a message that a model can act on."""
    if answer.is_success:
        return
    message = f"{label} answered {answer.phrase}."
    hint = _HINTS.get(answer.status) or ("The API failed. Try again later." if answer.status >= 500 else "")
    if answer.retry_after.isdecimal() and len(answer.retry_after) < 9:
        hint = f"Try again after {answer.retry_after} seconds."
    if hint:
        message += f" {hint}"
    detail = _detail(answer)
    if detail:
        message += f"\n{detail}"
    raise Failure(message, details={"http_status": answer.status})


def _detail(answer: Answer) -> str:
    """Return the text of an error, without secrets and bounded; nothing for a page or for bytes."""
    kind = _kind(answer)
    if not _is_text(kind) or kind == "text/html":
        return ""
    text = without_secrets(_text(answer), answer.secrets)
    text = _CREDENTIALS.sub(r"\1 ***", text)
    return bounded_text(text, _MAX_ERROR_CHARACTERS)


# Pages


def _next_page(link: str, label: str, inputs: Inputs, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in which the request for the next page differs; none without such a page."""
    target = next((url for url, attributes in _LINK.findall(link) if _leads_on(attributes)), "")
    try:
        pairs = parse_qsl(urlsplit(target).query, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:
        return {}
    sent: dict[str, list[str]] = {}
    for name, value in pairs:
        sent.setdefault(name, []).append(value)
    known = [parameter for parameter in inputs.parameters if parameter.place == "query"]
    following = {
        parameter.argument: _read(parameter, sent[parameter.name])
        for parameter in known
        if parameter.name in sent
        and not parameter.is_json
        and sent[parameter.name] != _texts_of(arguments.get(parameter.argument))
    }
    unknown = sent.keys() - {parameter.name for parameter in known}
    if unknown and not following:
        logger.warning(
            "%s has a next page, but the document does not describe the parameter %r that leads there. "
            "Add it to the document.",
            label,
            printable(min(unknown), 100),
        )
    return following


def _texts_of(argument: Any) -> list[str]:
    return [written(each) for each in (argument if isinstance(argument, list) else [argument])]


def _leads_on(attributes: str) -> bool:
    """Return whether the attributes of a link say that it leads to the next page."""
    found = _RELATION.search(attributes)
    return found is not None and "next" in found[1].lower().split()


def _read(parameter: Parameter, values: list[str]) -> Any:
    """Return the argument for the values of a query parameter."""
    if "array" in parameter.types:
        return values if parameter.explode else values[0].split(",")
    value = values[0]
    if "integer" in parameter.types and value.isdecimal() and len(value) <= 18:
        return int(value)
    if "boolean" in parameter.types and value in ("true", "false"):
        return value == "true"
    return value
