"""The version of this package. Imports nothing, so that every layer can name it."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
