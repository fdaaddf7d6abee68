"""Runs an author's functions and reports how each call ended.

The folders follow a call: `authoring` turns functions into tools, `execution` runs them, `carriers` hold
the journal while a question is open, `tasks` runs calls in the background. This package must not know the
wire or a transport: it takes requests and returns outcomes of the model.
"""
