"""Properties of everything that reads bytes from the other side, for any bytes.

Each function `test_…` with examples is a target. `make test` runs the targets with a few examples, the same
ones each time. `python -m tests.fuzz` runs them for a set time, with other examples in each run.
"""
