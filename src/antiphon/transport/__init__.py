"""Moves messages between a client and a server: over HTTP, over standard streams, and in memory.

A transport owns connections, headers, statuses and streams. It must not know what a tool is or how a call
runs.
"""
