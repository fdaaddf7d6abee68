"""The client's dialects: they write requests and read results.

A dialect reads what a foreign server sends, so it checks every shape before it trusts it. It must not know a
transport, and it does not decide when a request is sent again.
"""
