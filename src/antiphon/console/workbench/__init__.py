"""The workbench of the console: tries any server through `Client`, and shows every message.

A connection belongs to one person. Connections, calls and messages are bounded in number, size and time.
"""
