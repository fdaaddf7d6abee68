"""Holds runs of functions that must not be run again: they wait in this process while a question is open.

The function of such a run waits where it asks. The caller gets the questions with a sealed state that names
the process and the run, and its next request brings the answers there. It must not know protocol versions.
"""
