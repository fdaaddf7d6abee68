"""`antiphon resources`, `read`, `prompts`, `prompt` and `complete`: what a server offers beside its tools.

The modules talk to a server through `Client` alone. They print text of the server, which `render` cleans.
"""
