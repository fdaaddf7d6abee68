"""The server's side of every transport: accepts messages and hands them to the engine.

It decodes a message, chooses its dialect, runs the request and sends the response. It must not know an
author's functions, the journal or the store.
"""
