"""Translates between messages and values: JSON-RPC, server-sent events, and one dialect per protocol version.

Everything that differs between protocol versions is decided here. This package is pure: it must not know
sockets, event loops, clocks or stores, and it never runs an author's function.
"""
