"""The server's side of the protocol: reads requests and writes responses, one dialect for each version.

Pure: knows no clock, no connection and no runtime.
"""
