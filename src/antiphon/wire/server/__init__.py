"""The server's dialects: they read requests and write results.

Each protocol version has one module, and the modules share what the versions have in common. A dialect must
not know how a call is run or which transport brought its request.
"""
