"""Counts, times, logs and traces calls, and reports what a process is doing.

Observing must not change how a call ends. This package must not know the wire, and it logs the arguments
of a call only if the server's author asks for that.
"""
