"""`antiphon tasks`: lists, shows, answers, follows and cancels tasks at a server or in a store.

A server shows the tasks of the caller, a store the tasks of everyone. The rest of this package must not
know which of the two it talks to.
"""
