"""A service under kills, stops, outages and clock jumps, judged from outside.

`service` notes each step in a file of its own, `driver` runs the service and disturbs it, and `judge`
compares the notes with the store, which it reads by plain SQL. `python -m tests.soak` runs it for long.
"""
