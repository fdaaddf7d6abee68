"""`antiphon call`: makes one call, asks the person at the terminal what the tool asks, and prints the result.

It must not know protocol versions or transports: it uses a `Client`.
"""
