"""One contract, and every store that keeps it."""
