"""A service under kills, stops, outages, full disks, clock jumps and rollouts, judged from outside.

`phases` says which tasks and faults there are, and for how long. `driver` runs a phase: `fleet` has the
processes of the `service`, `callers` use it, and `faults` befall its processes and `stores`. `notes` keeps
what the tools did and the callers saw, and `judge` compares it with the store, which it reads by plain SQL.
`ratio` measures how long tasks take whose workers were lost. `versions` has the older library.
`python -m tests.soak` runs all of it.

`growing` is a service that measures itself, `mixed_load` its clients, and `growth` judges whether it grows.
`python -m tests.soak.growing_soak` runs it for long.
"""
