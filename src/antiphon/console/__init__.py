"""The console: one web page to answer questions, to operate tasks and to try servers.

A layer above clients and servers. No other part of the library imports it, except commands that show it.
"""
