"""Runs one call of an author's function, from its arguments to its outcome.

The call, the `Context` that the function sees, the journal, the output stream and the supervisor of
deadlines live here. This package must not know which carrier holds a journal, nor how a task is stored.
"""
