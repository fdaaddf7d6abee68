"""The client's side of every transport: channels that carry messages to one server and back.

A channel bounds what it reads, because a server may be hostile. It must not know protocol versions, tools
or tasks.
"""
