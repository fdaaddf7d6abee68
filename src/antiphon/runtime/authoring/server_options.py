"""Checks the options of a `Server` when it is created, so that a mistake is reported where it was made."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.options import check_seconds

__all__ = ["check_server_options"]


def check_server_options(
    name: str,
    *,
    lifespan: Any,
    authenticate: Any,
    middleware: Any,
    shed: Any,
    audiences: Any,
    list_ttl: float,
    task_claims: Any,
    page_size: int,
) -> None:
    """Raise `DefinitionError` for an invalid option."""
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise DefinitionError(
            f"The lifespan {lifespan.__name__!r} is a generator. "
            "Put @contextlib.asynccontextmanager above it."
        )
    check_seconds(f"Server({name!r}): list_ttl", list_ttl, zero=True)
    if isinstance(task_claims, str):
        raise DefinitionError(f'Server({name!r}): task_claims is a list: write task_claims=["tenant"].')
    if page_size < 1:
        raise DefinitionError(f"Server({name!r}): page_size={page_size!r} must be at least 1.")
    if authenticate is not None and (inspect.isclass(authenticate) or not callable(authenticate)):
        raise DefinitionError(
            f"authenticate={authenticate!r} is not a function. Pass a function that takes the headers and "
            'returns a Principal, or fixed tokens: authenticate=BearerTokens({"s3cret": "alice"}).'
        )
    if audiences is not None and not callable(audiences):
        raise DefinitionError(
            f"audiences={audiences!r} is not a function. Pass one that takes a Principal and returns names."
        )
    if isinstance(middleware, str) or not isinstance(middleware, Sequence):
        raise DefinitionError(f"middleware={middleware!r} is not a list. Write middleware=[…].")
    for each in middleware:
        if inspect.isclass(each) or not callable(each):
            raise DefinitionError(
                f"The middleware {each!r} is not a function. Pass an async function that takes the request "
                "and call_next, or an object such as RateLimit(10)."
            )
    if shed is not None and not callable(shed):
        raise DefinitionError(
            f"shed={shed!r} is not a function. To hand calls back after some seconds, "
            "write shed=shed_after(5)."
        )
