"""Reads and writes JSON-RPC 2.0 messages. Knows no methods.

https://www.jsonrpc.org/specification
"""

from __future__ import annotations

import json
import reprlib
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.errors import InvalidParams, InvalidRequest, ParseError, RequestError
from antiphon.model.request import RequestId
from antiphon.printable import printable

__all__ = [
    "Frame",
    "PlainRequest",
    "decode",
    "decode_plain",
    "encode",
    "excerpt",
    "failure",
    "notification",
    "request",
    "response",
]

Method = TypeVar("Method")
Params = TypeVar("Params")


class Frame(msgspec.Struct, dict=True):
    """One message: a request, a notification, or a response. Its parameters are read on first use."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: str | int | UnsetType | None = UNSET
    raw: msgspec.Raw | UnsetType = msgspec.field(default=UNSET, name="params")
    result: Any = UNSET
    error: Any = UNSET
    beside: Any = msgspec.field(default=UNSET, name="_meta")
    """Metadata outside of the parameters, where drafts of the specification sometimes put it."""
    stream: Any = UNSET
    """A request for segments, outside of the parameters, where drafts sometimes put it."""
    elicitation: Any = UNSET
    """Answers of persons, outside of the parameters, where one draft puts them."""
    sampling: Any = UNSET
    """Answers of models, outside of the parameters, where one draft puts them."""

    @cached_property
    def params(self) -> dict[str, Any] | UnsetType:
        """The parameters; raises `ParseError`."""
        if self.raw is UNSET:
            return UNSET
        try:
            params: dict[str, Any] = _lenient.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ParseError(f"The params are not JSON: {error}.") from None
        return params

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of the parameters; empty without one."""
        if self.params is UNSET:
            return {}
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def raw_params(self) -> bytes:
        """The parameters as JSON; empty without any."""
        return b"" if self.raw is UNSET else bytes(self.raw)

    @property
    def raw_meta(self) -> bytes:
        """The `_meta` of the parameters as JSON; empty without one."""
        return b"" if self.raw is UNSET else bytes(_meta_decoder.decode(self.raw).meta)

    @property
    def request_id(self) -> RequestId | None:
        """The id; `None` for a notification."""
        return None if self.id is UNSET else self.id


class PlainRequest(msgspec.Struct, Generic[Method, Params], forbid_unknown_fields=True):
    """A request with an id and parameters, and with nothing else: other requests are read in full."""

    jsonrpc: Literal["2.0"]
    id: str | int
    method: Method
    params: Params


class _HasMeta(msgspec.Struct):
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


_meta_decoder = msgspec.json.Decoder(_HasMeta)
_decoder = msgspec.json.Decoder(Frame)
_lenient = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_MAX_ID = 2**63
_short = reprlib.Repr()
# A value of the other side may be large or deep: no more of it is written than a message quotes.
_short.maxlevel, _short.maxdict, _short.maxlist, _short.maxstring = 4, 16, 16, 80


def decode(body: bytes | bytearray | memoryview | str) -> Frame:
    """Read one message.

    Raises `ParseError` if the body is not JSON, and `InvalidRequest` if it is not one message. The error has
    the `request_id`, if it could be read.
    """
    try:
        frame = _decoder.decode(body)
    except (msgspec.ValidationError, RecursionError):
        raise _diagnose(body) from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ParseError(f"The body is not JSON: {error}.") from None
    if frame.method is UNSET:
        if (frame.result is UNSET) == (frame.error is UNSET):
            invalid = InvalidRequest("A message has a method, a result or an error.")
            raise _refusal(body, _with_id(invalid, frame.id))
        if frame.id is UNSET and frame.error is UNSET:
            raise _refusal(body, InvalidRequest("A response names the id of the request that it answers."))
    elif frame.id is None:
        raise _refusal(body, InvalidRequest("The id of a request is a string or a whole number, not null."))
    if frame.raw is not UNSET and bytes(frame.raw)[:1] != b"{":
        raise _diagnose(body)
    if type(frame.id) is int and not -_MAX_ID <= frame.id < _MAX_ID:
        raise _refusal(body, InvalidRequest("The id of a request must fit in 64 bits."))
    return frame


def decode_plain(
    decoder: msgspec.json.Decoder[PlainRequest[Any, Params]], body: bytes | bytearray
) -> PlainRequest[Any, Params] | None:
    """Read a plain request; `None` for any other body, which has to be read in full."""
    try:
        frame = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if type(frame.id) is int and not -_MAX_ID <= frame.id < _MAX_ID else frame


def _refusal(body: bytes | bytearray | memoryview | str, error: RequestError) -> RequestError:
    """Return the error, or that of a body that is not UTF-8: the decoder skips unknown fields."""
    try:
        if not isinstance(body, str):
            bytes(body).decode()
    except UnicodeDecodeError as reason:
        return ParseError(f"The body is not JSON: {reason}.")
    return error


def _diagnose(body: bytes | bytearray | memoryview | str) -> RequestError:
    """Return the error for a body that is not a frame."""
    try:
        value = _lenient.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        return ParseError(f"The body is not JSON: {error}.")
    except RecursionError:
        return ParseError("The body is nested too deeply.")
    if isinstance(value, list):
        return InvalidRequest("Batches are not supported: send each message by itself.")
    if not isinstance(value, dict):
        return InvalidRequest("A message is a JSON object.")
    request_id = value.get("id")
    if value.get("jsonrpc") != "2.0":
        return _with_id(InvalidRequest('A message has "jsonrpc": "2.0".'), request_id)
    if not isinstance(value.get("method", ""), str):
        return _with_id(InvalidRequest("The method is a string."), request_id)
    if "id" in value and (type(request_id) not in (str, int) and request_id is not None):
        return InvalidRequest("The id of a request is a string or a whole number.")
    if isinstance(value.get("params"), list):
        return _with_id(InvalidParams("The params are an object: MCP has no positional ones."), request_id)
    return _with_id(InvalidRequest("The params are an object."), request_id)


def _with_id(error: RequestError, request_id: Any) -> RequestError:
    if type(request_id) is str or (type(request_id) is int and -_MAX_ID <= request_id < _MAX_ID):
        error.request_id = request_id
    return error


def encode(value: Any) -> bytes:
    """Write a value as JSON."""
    try:
        return _encoder.encode(value)
    except OverflowError:  # msgspec stops at 64 bits; JSON does not
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def excerpt(value: Any, most: int = 80) -> str:
    """Return a value as text for a message: one printable line, shortened to `most` characters."""
    text = value if isinstance(value, str) else _short.repr(value)
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")


def request(request_id: RequestId, method: str, params: Any) -> bytes:
    """Write a request."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def response(request_id: RequestId, result: Any, **beside: Any) -> bytes:
    """Write a response with a result, and with fields beside it, which drafts of the specification have."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result, **beside})


def failure(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """Write a response with an error; without an id if it could not be read."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    if request_id is None:
        return encode({"jsonrpc": "2.0", "error": error})
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def notification(method: str, params: Any = None) -> bytes:
    """Write a notification."""
    if params is None:
        return encode({"jsonrpc": "2.0", "method": method})
    return encode({"jsonrpc": "2.0", "method": method, "params": params})
