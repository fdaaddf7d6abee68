"""The inbox of a client: questions of other people's tasks, which the person at the client can answer.

Owns the list of them, the stream that brings news of them, and the answers. The dialects know the wire.
"""
