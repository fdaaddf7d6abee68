"""Serves the tools, resources and prompts of other servers: those of `Server.mount` and `antiphon gateway`.

Other servers are reached with the client of this library, in whatever version they speak; a server of this
library can also be mounted without a connection. The engine serves what they offer like an author's own.
"""

from __future__ import annotations
