"""`antiphon call`: parse arguments, call a tool, answer its questions, and show progress while it runs.

The modules talk to a server through `Client` alone, and know nothing about stores.
"""
