"""OAuth on the side of the resource server: verifies access tokens, and publishes where callers get them.

Nothing here is loaded unless a server uses `IssuedTokens`. It must not know transports or the runtime.
"""
