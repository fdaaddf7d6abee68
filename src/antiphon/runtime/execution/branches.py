"""Tells the concurrent branches of a function apart, in the same way in every run.

A branch is an asyncio task or a thread that the function has started. It has a number within the branch that
started it, by the order in which the branches use the context first. Later uses have no such order: recorded
steps return at once in the next run. Owns the numbers, and the keys of entries that several branches may have
under one name. It must not know what the entries are.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import weakref
from typing import TYPE_CHECKING

from antiphon.runtime.execution.activity import HANDOVER_TURNS
from antiphon.runtime.execution.journal import Journal, KeyKind

if TYPE_CHECKING:
    from antiphon.runtime.execution.run import Run

__all__ = ["Branch", "branch_key", "escape", "next_key"]

_ESCAPED = str.maketrans({character: f"%{ord(character):02X}" for character in "%#@"})
_ESCAPED_WITH_COLONS = _ESCAPED | str.maketrans({":": "%3A"})


class Branch:
    """A branch of one run. The path of the function itself is empty, and that of others is such as `2.1`."""

    __slots__ = ("__weakref__", "_numbers", "_owner", "_root", "path")

    def __init__(self, path: str, owner: object = None, root: Branch | None = None) -> None:
        self.path = path
        self._owner = None if owner is None else weakref.ref(owner)
        self._root = self if root is None else root
        self._numbers = itertools.count(1)

    def in_task(self) -> Branch:
        """Return the branch of the current asyncio task, below this branch of the function itself."""
        return self._of(asyncio.current_task())

    def in_thread(self) -> Branch:
        """Return the branch of the current thread. The coroutines that the thread waits for inherit it."""
        return self._of(threading.current_thread())

    def inherited(self) -> Branch | None:
        """Return the branch that started the current one, or is the current one; `None` before the first."""
        found = _current.get()
        return found if found is not None and found._root is self else None

    def _of(self, owner: object) -> Branch:
        found = self.inherited() or self
        if found._owner is not None and found._owner() is owner:
            return found
        path = f"{found.path}.{next(found._numbers)}" if found.path else str(next(found._numbers))
        branch = Branch(path, owner, self)
        _current.set(branch)
        return branch


_current: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("antiphon_branch", default=None)


def escape(text: str, *, colons: bool = False) -> str:
    """Return a text without the characters that separate the parts of a key."""
    return text.translate(_ESCAPED_WITH_COLONS if colons else _ESCAPED)


async def next_key(run: Run, kind: KeyKind, name: str) -> str:
    """Return the key of the next entry of this kind and name in the current branch, and take it."""
    own = None if run.branch else run.journal.take_key(kind, name)
    return own or await branch_key(run, kind, name)


async def branch_key(run: Run, kind: KeyKind, name: str) -> str:
    """Take the next key for the current branch, after `Journal.take_key` found none for the function itself.

    An entry that the branch has recorded in an earlier run comes first. An entry of another branch is taken
    only if that branch does not ask for it: a function may distribute its work in another way in each run.
    """
    journal, branch = run.journal, run.branch
    base = f"{kind}:{name}"
    key, others = _search(journal, base, branch)
    if others and not journal.knows(key):
        with run.activity:
            for _ in range(HANDOVER_TURNS):
                await asyncio.sleep(0)
        left = [other for other in others if not journal.is_taken(other)]
        key = left[0] if left else _search(journal, base, branch)[0]
    journal.take_for_branch(key, branch)
    return key


def _search(journal: Journal, base: str, branch: str) -> tuple[str, list[str]]:
    """Return the first key that belongs to a branch or to nobody, and the keys of others before it."""
    others: list[str] = []
    for number in itertools.count(1):
        key = base if number == 1 else f"{base}#{number}"
        if journal.is_taken(key):
            continue
        if journal.branch_of(key) == branch or not journal.knows(key):
            return key, others
        others.append(key)
    raise AssertionError("there is always another number")
