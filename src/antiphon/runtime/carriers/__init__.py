"""Holds the journal of a call while a question is open: client, store, connection, or process.

A carrier takes the questions of a run to the caller, and brings the answers back into the journal. It must
not know the function that asks or the dialect in which the question is written.
"""
