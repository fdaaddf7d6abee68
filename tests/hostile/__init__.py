"""Attacks on a server: raw sockets, hostile requests, and functions that fail in every way."""
