"""Values that every layer shares: content, questions, requests, outcomes, tasks and segments.

They are the same in every protocol version. This package must not know JSON-RPC, a
transport or a store, and it imports nothing that reads a clock, a random source or the environment.
"""
