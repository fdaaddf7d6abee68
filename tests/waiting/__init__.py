"""Tasks that wait for a time, an event, or the answer of somebody else than their caller."""
