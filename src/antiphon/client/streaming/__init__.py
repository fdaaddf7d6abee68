"""Streams of segments: received out of order, read in order, across broken connections."""
