"""Carries journals through the client: sealed, and bound to the call that they belong to.

A state that was altered, has expired, or belongs to another caller, another request or another server
does not open. The caller learns only that; the reason is in the log.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.errors import InternalError, InvalidParams, SealError
from antiphon.model.outcome import InputRequired
from antiphon.model.request import ReadResource
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.limits import Limits

__all__ = ["ClientCarrier"]

logger = logging.getLogger("antiphon")

_PLAIN, _PACKED = b"\0", b"\1"
_WORTH_PACKING = 512
_MOST_UNPACKED = 64
"""How many times its own size a state may have when it is unpacked."""

_arguments = msgspec.json.Encoder(order="deterministic").encode
_entries = msgspec.msgpack.Decoder(dict[str, Any])
_pack = msgspec.msgpack.Encoder().encode


class ClientCarrier:
    """Seals the journals of calls that wait for answers, and opens them again."""

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
        """The journal that a caller brought along, or a new one; raises `InvalidParams`."""
        token = call.request.request_state
        if token is None:
            return Journal()
        try:
            journal = self._opened(call, token)
            if self._use_once is not None and not await self._first_use(token):
                raise SealError("The token has been used before.")
        except (SealError, msgspec.DecodeError, zlib.error) as error:
            logger.warning("Request %r brought a state that does not open: %s", call.id, error)
            raise InvalidParams("The request state is not valid: make the call again, without it.") from None
        return journal

    def _opened(self, call: Call[Any], token: str) -> Journal:
        raw = self._seal.open(token, bound_to=self._binding(call))
        return Journal(_entries.decode(self._unpacked(raw)))

    async def _first_use(self, token: str) -> bool:
        assert self._use_once is not None
        until = int((time.time() + self._limits.state_lifetime) * 1000)
        return await self._use_once(hashlib.sha256(token.encode()).hexdigest(), until=until)

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Let the caller carry the journal, if there is anything in it."""
        if not journal.entries:
            return stopped
        if not self._warned:
            self._warned = True
            logger.warning(
                "No secret is configured, so only this process can carry on the calls that it asked "
                "something in. Set ANTIPHON_SECRETS, or Server(secrets=…), to let others do so, or a restart."
            )
        raw = _pack(journal.entries)
        raw = _PACKED + zlib.compress(raw, 6) if len(raw) > _WORTH_PACKING else _PLAIN + raw
        if len(raw) > self._limits.max_state_bytes:
            logger.error(
                "The state of request %r has %d bytes, and %d are allowed. Let steps return less, keep "
                "what is large elsewhere and return its id, or make the tool a task.",
                call.id,
                len(raw),
                self._limits.max_state_bytes,
            )
            raise InternalError("The state of this call is too large to carry on with.")
        stopped.sealed = self._seal.seal(
            raw, bound_to=self._binding(call), lifetime=self._limits.state_lifetime
        )
        return stopped

    def _unpacked(self, raw: bytes) -> bytes:
        if raw[:1] == _PLAIN:
            return raw[1:]
        return zlib.decompressobj().decompress(raw[1:], self._limits.max_state_bytes * _MOST_UNPACKED)

    def _binding(self, call: Call[Any]) -> bytes:
        """What a state is bound to: this server, this caller, and this request with its arguments."""
        request = call.request
        if isinstance(request, ReadResource):
            named = _arguments(["ReadResource", request.uri])
        else:
            named = _arguments([type(request).__name__, request.name, request.arguments])
        digest = hashlib.sha256(named).digest()
        return b"\0".join((b"state", self._server, call.principal.id.encode(), digest))
