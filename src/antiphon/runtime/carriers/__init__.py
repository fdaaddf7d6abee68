"""Holds the journal of a call while a question is open: with the client, in the store, or on the connection.

A carrier takes the questions of a run to the caller, and brings the answers back into the journal. It must
not know the function that asks or the dialect in which the question is written.
"""
