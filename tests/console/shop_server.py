"""A shop in a process of its own, on the store that the environment names."""

from __future__ import annotations

import os

from tests.console.people import shop

server = shop(os.environ["SHOP_STORE"])
