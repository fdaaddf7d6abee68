"""Attacks on servers, clients and the command line."""
