"""OAuth on the side of the client: finds the issuer of a server, logs in, and keeps the tokens.

Nothing here is loaded unless a client uses `OAuth`. It must not know messages, tools or sessions.
"""
