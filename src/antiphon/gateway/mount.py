"""`Server.mount`: chooses how another server is mounted, and checks the options."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.gateway.mounted_server import ServerProvider
from antiphon.gateway.names import check_prefix
from antiphon.gateway.options import Mounted, MountOptions
from antiphon.gateway.provider import UpstreamProvider
from antiphon.runtime.engine import Engine

__all__ = ["mount", "mount_all"]

logger = logging.getLogger("antiphon")


def mount(engine: Engine, name: str, target: Any, options: MountOptions) -> None:
    """Mount a server in another one; raises `DefinitionError`, and `RuntimeError` while that one runs."""
    unknown = sorted(set(options) - set(MountOptions.__annotations__))
    if unknown:
        raise DefinitionError(
            f"mount({name!r}, …) has no option {unknown[0]!r}: use {', '.join(MountOptions.__annotations__)}."
        )
    check_prefix(name)
    if options.get("prefix", True) and any(each.prefix == name for each in engine.registry.providers):
        raise DefinitionError(
            f"mount({name!r}, …): There is already a mount {name!r}, whose tools would have the same names. "
            "Use another name."
        )
    if isinstance(inner := getattr(target, "engine", None), Engine):
        if further := sorted(set(options) - {"prefix", "allow_anonymous"}):
            raise DefinitionError(
                f"mount({name!r}, …): a Server has no option {further[0]!r}. Set it on its own tools."
            )
        if inner is engine:
            raise DefinitionError(f"mount({name!r}, …): a server cannot mount itself.")
        is_open = options.get("allow_anonymous", False)
        is_withheld = inner.authenticates and not (engine.authenticates or is_open)
        if is_withheld:
            logger.warning(
                "The server %r authenticates its callers, and %r, which mounts it, does not: nothing of it "
                "is offered over HTTP. Set authenticate= on %r, or mount it with allow_anonymous=True.",
                name,
                engine.info.name,
                engine.info.name,
            )
        engine.add_provider(
            ServerProvider(engine, name, inner, prefix=options.get("prefix", True), is_withheld=is_withheld)
        )
        return
    is_command = isinstance(target, Sequence) and not isinstance(target, str | bytes)
    if not is_command and not (isinstance(target, str) and target.startswith(("http://", "https://"))):
        raise DefinitionError(
            f"mount({name!r}, …): pass a URL, a list of a program and its arguments, or a Server."
        )
    mounted = Mounted(name=name, target=list(target) if is_command else target, **options)
    engine.add_provider(UpstreamProvider(engine, mounted))


def mount_all(engine: Engine, servers: Iterable[Mounted]) -> None:
    """Mount the servers of a gateway; raises `DefinitionError`."""
    for mounted in servers:
        engine.add_provider(UpstreamProvider(engine, mounted))
