"""Runs an author's functions and tells how they ended. Knows no wire and no transport."""
