"""`antiphon run` and `antiphon worker`: load a server from a Python file, and serve it or run its tasks.

These modules own the listening socket, the processes and the signals. They use only public members of
`Server`.
"""
