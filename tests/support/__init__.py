"""Helpers of the tests: real servers, raw HTTP, and a client for each dialect."""
