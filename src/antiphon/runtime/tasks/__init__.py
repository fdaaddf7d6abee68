"""Runs calls as tasks: creates, claims, runs, parks, answers, cancels and expires them.

Every change of a task is an entry in its log, which a store keeps. This package must not know which store
that is, or how a protocol version names the states of a task.
"""
