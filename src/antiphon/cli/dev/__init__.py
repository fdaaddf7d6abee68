"""`antiphon dev`: serves a Python file, starts it again when it changes, and shows the console.

One process watches the files, keeps the listening socket and serves the console; another one serves the file.
Requests that arrive while the file is loaded wait; if it cannot be loaded, they get the reason.
"""
