"""Extensions for the servers of other frameworks: the modules `mcp` and `fastmcp`, named after them.

Both frameworks are optional dependencies. Only the module that is named after one needs it.
"""
