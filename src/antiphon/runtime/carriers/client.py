"""The client as the carrier: the journal travels through the caller as a sealed `requestState`.

The token is bound to the server, the caller, the request and its arguments. A token that was altered, has
expired or is bound to something else does not open. The caller learns only that; the log has the reason.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from antiphon import wall_clock
from antiphon.errors import InternalError, InvalidParams, SealError
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question
from antiphon.model.request import CallTool, GetPrompt, ReadResource
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.carriers.seal import Seal, Use
from antiphon.runtime.execution.fingerprints import json_spellings
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.limits import Limits
from antiphon.runtime.writable import MAX_NESTING, is_nested_deeply

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["ClientCarrier", "HeldPlace"]

logger = logging.getLogger("antiphon")

T = TypeVar("T")

HeldPlace: TypeAlias = tuple[str, str, int]
"""Where the run of a call waits: the process, the run, and the number of the round that comes next."""

_COMPRESSED, _JSON = 1, 2
"""The bits of the first byte of a sealed journal, which says how the rest is packed.

A journal is MessagePack, or JSON if a number does not fit into 64 bits.
"""
_MIN_COMPRESSED_BYTES = 512
_MAX_EXPANSION = 64
"""How many times `Limits.max_state_bytes` a journal may have after decompression."""

_SEALED_NAMES: Mapping[type[Any], str] = {
    CallTool: "CallTool",
    GetPrompt: "GetPrompt",
    ReadResource: "ReadResource",
}
"""The names of request types in sealed tokens.

Tokens that clients hold are bound to these names: they never change.
"""

_entries = msgspec.msgpack.Decoder(dict[str, Any])
_pack = msgspec.msgpack.Encoder().encode
_places = msgspec.msgpack.Decoder(HeldPlace)
_entries_in_json = msgspec.json.Decoder(dict[str, Any])
_pack_as_json = msgspec.json.Encoder().encode


class ClientCarrier:
    """Seals the journals of calls that wait for answers, and opens them again."""

    returns_questions = True
    sheds = True
    anyone_answers = False
    parking = None

    def __init__(
        self,
        seal: Seal,
        server: str,
        limits: Limits,
        *,
        use_once: Callable[..., Awaitable[bool]] | None = None,
    ) -> None:
        self._seal = seal
        self._use_once = use_once
        self._server = server.encode()
        self._limits = limits
        self._warned = seal.shared

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal in the caller's request state, or a new one; raises `InvalidParams`."""
        if call.request.request_state is None:
            return Journal()
        return Journal(await self._opened(call, "state", self._unpacked))

    async def open_place(self, call: Call[Any]) -> HeldPlace:
        """Return where the run of a call waits, from the caller's request state; raises `InvalidParams`."""
        return await self._opened(call, "held", _places.decode)

    def seal_place(self, call: Call[Any], place: HeldPlace) -> str:
        """Return a request state that says where the run of a call waits."""
        return self._sealed(call, _pack(place), "held")

    async def _opened(self, call: Call[Any], use: Use, read: Callable[[bytes], T]) -> T:
        token = call.request.request_state
        assert token is not None
        try:
            found = read(self._seal.open(token, use=use, bound_to=self._bindings(call)))
            if self._use_once is not None and not await self._first_use(token):
                raise SealError("The token has been used before.")
        except (SealError, ValueError, RecursionError, zlib.error) as error:
            logger.warning("Cannot open the request state of request %r: %s", call.id, error)
            raise InvalidParams("The request state is not valid: make the call again, without it.") from None
        return found

    async def _first_use(self, token: str) -> bool:
        assert self._use_once is not None
        until = int((wall_clock.now() + self._limits.state_lifetime) * 1000)
        return await self._use_once(hashlib.sha256(token.encode()).hexdigest(), until=until)

    def confirm(self) -> None:
        """Return `None`: the caller has the journal, and makes the request again if this process is lost."""

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Any:
        """Stop the run; the caller gets the question as the outcome of its request."""
        await run.suspend(key, question)

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Seal the journal into the outcome, if anything is recorded in it."""
        if journal.entries:
            stopped.sealed = self._sealed(call, self._packed(call, journal.entries), "state")
        return stopped

    def _sealed(self, call: Call[Any], data: bytes, use: Use) -> str:
        if not self._warned:
            self._warned = True
            logger.warning(
                "No secret is configured: only this process can continue a call after a question. "
                "Set ANTIPHON_SECRETS or Server(secrets=…), so that others can, and this one after a restart."
            )
        return self._seal.seal(
            data, use=use, bound_to=self._bindings(call)[0], lifetime=self._limits.state_lifetime
        )

    def _packed(self, call: Call[Any], entries: dict[str, Any]) -> bytes:
        """Return the entries of a journal as bytes; raises `InternalError` if they would not open again."""
        kind = 0
        try:
            raw = _pack(entries)
        except OverflowError:
            kind, raw = _JSON, _pack_as_json(entries)
        size, most = len(raw), self._limits.max_state_bytes
        if size > _MIN_COMPRESSED_BYTES:
            kind, raw = kind | _COMPRESSED, zlib.compress(raw, 6)
        if len(raw) >= most or size > most * _MAX_EXPANSION:
            logger.error(
                "The state of request %r has %d bytes, and %d if it is compressed; the limits are %d and %d. "
                "Let steps return less, for example the id of a stored object, or make the tool a task.",
                call.id,
                size,
                len(raw),
                most * _MAX_EXPANSION,
                most,
            )
            raise InternalError("The state of this call is too large to continue it.")
        if size > MAX_NESTING and is_nested_deeply(entries):  # each level takes at least a byte
            logger.error(
                "The state of request %r is nested more than %d levels deep. Let steps return flat data.",
                call.id,
                MAX_NESTING,
            )
            raise InternalError("The state of this call is nested too deeply to continue it.")
        return bytes((kind,)) + raw

    def _unpacked(self, sealed: bytes) -> dict[str, Any]:
        kind, raw = sealed[0], sealed[1:]
        if kind & _COMPRESSED:
            raw = zlib.decompressobj().decompress(raw, self._limits.max_state_bytes * _MAX_EXPANSION)
        return _entries_in_json.decode(raw) if kind & _JSON else _entries.decode(raw)

    def _bindings(self, call: Call[Any]) -> tuple[bytes, ...]:
        """Return what tokens are bound to: this server, this caller, and this request with its arguments.

        The first binding is to what the arguments mean. The second one is to how numbers are spelled: older
        versions sealed with it.
        """
        request = call.request
        kind = _SEALED_NAMES[type(request)]
        named = (
            [kind, request.uri]
            if isinstance(request, ReadResource)
            else [kind, request.name, request.arguments]
        )
        prefix = b"\0".join((b"state", self._server, call.principal.id.encode(), b""))
        return tuple([prefix + hashlib.sha256(each).digest() for each in json_spellings(named)])
