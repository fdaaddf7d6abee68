"""Makes Python's garbage collector run less often in a process that does nothing but serve.

Calls and tasks leave no cycles behind, so a collection finds nothing. It only looks at the objects of the
calls that are under way and, now and then, at all modules and definitions, for tens of milliseconds. Must not
be used in a process that belongs to the author: the settings of the collector concern everything in it.
"""

from __future__ import annotations

import gc

__all__ = ["collect_less_often"]

_DEFAULT_YOUNG_OBJECTS = (700, 2000)
"""The first threshold of the collector in the versions of Python."""
_YOUNG_OBJECTS = 40_000
"""How many objects are created before the collector looks at them: more than those of 1,024 calls at once.

So many connections may become readable in one turn of the event loop. With fewer objects, the collector would
look at the objects of calls that are under way in every turn, and find nothing.

Not a setting: a file that is served can call `gc.set_threshold` itself.
"""


def collect_less_often() -> None:
    """Raise the first threshold of the collector, and exempt all objects that exist from collections.

    Call it after the author's file was loaded. A threshold that the file has changed stays.
    """
    young, *older = gc.get_threshold()
    if young in _DEFAULT_YOUNG_OBJECTS:
        gc.set_threshold(_YOUNG_OBJECTS, *older)
    gc.freeze()
