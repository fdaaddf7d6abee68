"""The server's side of streamable HTTP, as an ASGI app.

It owns the rules of HTTP: which requests are let in, status codes, sessions, event streams and how they
resume. It must not know what differs between protocol versions besides what their dialects tell it.
"""
