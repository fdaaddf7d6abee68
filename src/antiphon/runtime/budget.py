"""The budget of memory that callers can make a process use, and the share of it that one caller gets.

Owns the counts of bytes, calls and listeners by the key of a share, `Principal.share`: the id of a principal,
or the network address of a caller without one. A caller with the key "" runs the server, and may use all. The
modules that keep something for a caller reserve its size here first, and release it afterwards. It must not
know what they keep.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.errors import BodyTooLarge, Busy
from antiphon.runtime.limits import Limits

__all__ = [
    "SMALL_MESSAGE_BYTES",
    "Account",
    "MemoryBudget",
    "Usage",
    "Usages",
    "decoded_size",
    "share_of",
]

_MIN_SWEEP_CALLERS = 1024
"""How many callers may be known before idle ones are forgotten."""
_RECLAIM_PART = 16
"""The part of the budget that is reclaimed at once, so that not every request starts a search."""
_RETRY_AFTER_SECONDS = 5
"""When a caller should try again after the budget was exhausted."""
SMALL_MESSAGE_BYTES = 8 * 1024
"""The size of a message for which no memory is reserved: the limits of calls bound small ones."""
_DECODED_BYTES = ((b",", 56), (b":", 96), (b"[", 80), (b"{", 200))
"""The memory of a value of decoded JSON, about, by the character before it."""
_MAX_SPLIT_QUOTES = 10_000
"""How many quotation marks a text may have for its strings to be left out of the estimate."""


def share_of(limit: int, share: float) -> int:
    """Return the part of a limit that one caller may use: at least 1, unless the limit is 0."""
    return min(limit, max(1, int(limit * share)))


class Usage:
    """How much the callers with one share use at the moment."""

    __slots__ = ("calls", "listeners", "memory", "reclaimable")

    def __init__(self) -> None:
        self.calls = 0
        self.listeners = 0
        self.memory = 0
        self.reclaimable = 0
        """The part of the memory that can be reclaimed."""

    @property
    def is_idle(self) -> bool:
        """Whether they use nothing."""
        return not (self.calls or self.listeners or self.memory)


class Usages:
    """How much the callers with each share use. Idle ones are forgotten.

    Do not keep a `Usage` in which you have counted nothing: it may be forgotten.
    """

    def __init__(self) -> None:
        self.known: dict[str, Usage] = {}
        """The usage of those that use something, and of some that do not, by the key of the share."""
        self._sweep_at = _MIN_SWEEP_CALLERS

    def __len__(self) -> int:
        return len(self.known)

    def of(self, share: str) -> Usage:
        """Return the usage of the callers with a share."""
        usage = self.known.get(share)
        return self._add(share) if usage is None else usage

    def _add(self, share: str) -> Usage:
        known = self.known
        if len(known) >= self._sweep_at:
            for idle in [key for key, usage in known.items() if usage.is_idle]:
                del known[idle]
            self._sweep_at = max(_MIN_SWEEP_CALLERS, 2 * len(known))
        usage = known[share] = Usage()
        return usage


class MemoryBudget:
    """The bytes that a process keeps for its callers, of at most `Limits.max_memory_bytes`."""

    def __init__(self, limits: Limits, usages: Usages) -> None:
        self._size = limits.max_memory_bytes
        self._most_of_share = share_of(limits.max_memory_bytes, limits.principal_share)
        self._usages = usages
        self.reserved = 0
        """How many bytes are reserved."""
        self._reclaimable = 0
        self.reclaim: Callable[[str | None, int], None] = lambda share, wanted: None
        """Frees so many bytes of reclaimable accounts, of one share or, for `None`, of all."""

    def try_reserve(self, share: str, size: int) -> bool:
        """Reserve bytes; return false if there are not enough, even after others are reclaimed."""
        if share:
            usage = self._usages.of(share)
            missing = usage.memory + size - self._most_of_share
            if missing > 0:
                if missing <= usage.reclaimable:
                    self.reclaim(share, max(missing, self._most_of_share // _RECLAIM_PART))
                    usage = self._usages.of(share)
                if usage.memory + size > self._most_of_share:
                    return False
        missing = self.reserved + size - self._size
        if missing > 0:
            if missing <= self._reclaimable:
                self.reclaim(None, max(missing, self._size // _RECLAIM_PART))
            if self.reserved + size > self._size:
                return False
        if share:
            self._usages.of(share).memory += size
        self.reserved += size
        return True

    def reserve(self, share: str, size: int, purpose: str, *, held: int = 0) -> None:
        """Reserve bytes for a purpose, such as "the body of this request", which `held` so many before.

        Raises `BodyTooLarge` if the purpose alone needs too much, and `Busy` if there is no room now.
        """
        if self.try_reserve(share, size):
            return
        most = self._most_of_share if share else self._size
        if held + size > most:
            raise BodyTooLarge(
                f"The server needs {held + size} bytes of memory for {purpose}, and one "
                f"{'caller' if share else 'server'} may use at most {most}: send less."
            )
        used = self._usages.of(share).memory if share else 0
        if share and used + size > most:
            message = f"You use {used} of at most {most} bytes of this server's memory"
        else:
            message = (
                f"The server uses {self.reserved} of at most {self._size} bytes of memory for its callers"
            )
        raise Busy(
            f"{message}, and {purpose} needs {size}: try again later.", retry_after=_RETRY_AFTER_SECONDS
        )

    def release(self, share: str, size: int) -> None:
        """Release bytes that were reserved."""
        self.reserved -= size
        if share:
            self._usages.of(share).memory -= size

    def count_reclaimable(self, share: str, size: int) -> None:
        """Count reserved bytes as reclaimable, or no longer if the size is negative."""
        self._reclaimable += size
        if share:
            self._usages.of(share).reclaimable += size


class Account:
    """The bytes that one owner has reserved, such as a session or a request. Close it with its owner.

    A reclaimable account may be closed by `MemoryBudget.reclaim` when others need its bytes.
    """

    __slots__ = ("_budget", "_closed", "_reclaimable", "share", "size")

    def __init__(self, budget: MemoryBudget, share: str, *, reclaimable: bool = False) -> None:
        self._budget = budget
        self._closed = False
        self._reclaimable = reclaimable
        self.share = share
        self.size = 0
        """How many bytes are reserved."""

    def try_reserve(self, size: int) -> bool:
        """Reserve bytes; return false if the budget is exhausted, or the account is closed."""
        if self._closed or not self._budget.try_reserve(self.share, size):
            return False
        self._add(size)
        return True

    def reserve(self, size: int, purpose: str, *, held: int = 0) -> None:
        """Reserve bytes for a purpose, which `held` so many before; raises `BodyTooLarge` or `Busy`."""
        self._budget.reserve(self.share, size, purpose, held=held)
        self._add(size)
        if self._closed:
            self.close()

    def release(self, size: int) -> None:
        """Release some of the bytes. After `close`, nothing is left to release."""
        size = min(size, self.size)
        self._add(-size)
        self._budget.release(self.share, size)

    def close(self) -> None:
        """Release everything, and reserve nothing more."""
        self._closed = True
        self.release(self.size)

    def _add(self, size: int) -> None:
        self.size += size
        if self._reclaimable:
            self._budget.count_reclaimable(self.share, size)


def decoded_size(body: bytes | bytearray | str) -> int:
    """Return the memory that a JSON text needs once it is decoded, about.

    A list of empty lists needs twenty times the bytes of its text. Punctuation in a few long strings does not
    count. In many short strings it does, because it takes too long to find them.
    """
    if isinstance(body, str):
        body = body.encode(errors="surrogatepass")
    size, values = len(body), _values_size(body)
    if values > size:
        rest = body.replace(b"\\\\", b"").replace(b'\\"', b"")
        if rest.count(b'"') <= _MAX_SPLIT_QUOTES:
            values = _values_size(b"".join(rest.split(b'"')[::2]))
    return size + values


def _values_size(body: bytes | bytearray) -> int:
    return sum(body.count(mark) * size for mark, size in _DECODED_BYTES)
