"""Follows tasks at a server: requests about them, the handle a program holds, and the way to the result.

A task is followed by its id alone, so another process can go on with it. This package must not know how a
server runs or stores its tasks.
"""
