"""A service under kills, stops, outages and clock jumps, judged from outside.

`service` notes each step in a file of its own, `driver` runs the service and disturbs it, and `judge`
compares the notes with the store, which it reads by plain SQL. `python -m tests.soak` runs it for long.

`growing` is a service that measures itself, `mixed_load` its clients, and `growth` judges whether it grows.
`python -m tests.soak.growing_soak` runs it for long.
"""
