"""`antiphon run` and `antiphon worker`: load an author's file, then serve it or run its tasks.

It must not know what a tool does: it loads, configures and starts a `Server`.
"""
