"""Channels: how a client reaches a server, over HTTP, a child process's streams, or in memory.

A channel knows no protocol version and no method.
"""
