"""Keeps the artifacts that tools make, and serves them as resources to the callers they belong to.

This package decides who may read an artifact and when it expires. It must not know where the bytes are
stored.
"""
