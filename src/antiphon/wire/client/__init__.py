"""The client's side of the protocol: writes requests and reads responses, one dialect for each version.

Pure: knows no clock and no connection.
"""
