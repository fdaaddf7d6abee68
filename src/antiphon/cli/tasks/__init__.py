"""`antiphon tasks`: list, show, watch, answer, cancel and remove tasks.

A server shows a caller the caller's own tasks; a store shows its operator all tasks. Both implement
`TaskSource`, so the commands do not know which of the two they talk to.
"""
