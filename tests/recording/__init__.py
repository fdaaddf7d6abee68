"""Recordings of what clients and servers say to each other, and their replay."""
