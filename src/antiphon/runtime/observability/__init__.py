"""Counts, times, logs and traces calls, and reports what a process is doing.

It observes: a call must end the same way whether somebody watches or not. It must not know the wire, and it
logs the arguments of a call only if the server's author asks for that.
"""
