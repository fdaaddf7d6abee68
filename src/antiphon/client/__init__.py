"""The client: everything it takes to call a server, whichever version that speaks."""

from antiphon.client.client import Client
from antiphon.client.handlers import Elicit, Elicitation, Handler, Roots, Sampler

__all__ = ["Client", "Elicit", "Elicitation", "Handler", "Roots", "Sampler"]
