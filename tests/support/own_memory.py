"""Measures the process that it is imported in."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path


def settled_status() -> str:
    """Return /proc/self/status, without garbage and without memory that the allocator only keeps."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return Path("/proc/self/status").read_text()


def status_number(status: str, name: str) -> int:
    """Return a number of /proc/self/status."""
    return int(status.partition(f"{name}:")[2].split()[0])
