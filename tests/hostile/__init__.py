"""Attacks on whole servers, over raw sockets and in processes of their own."""
