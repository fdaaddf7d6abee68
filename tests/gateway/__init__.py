"""Servers behind `Server.mount` and `antiphon gateway`."""
