"""Middleware for `Server(middleware=[…])`: ready-made pieces, and the types to write your own with.

Knows the model and the contract in `runtime/middleware`; no transport, no wire and no store.
"""

from antiphon.middleware.audit_log import AuditLog
from antiphon.middleware.rate_limit import RateLimit
from antiphon.runtime.middleware import CallNext, IncomingRequest, Middleware

__all__ = ["AuditLog", "CallNext", "IncomingRequest", "Middleware", "RateLimit"]
