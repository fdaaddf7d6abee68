"""`antiphon call --save`: collects the images, audio, files and artifacts of a result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from antiphon.cli import render
from antiphon.cli.catalog.resources import read_whole
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.saving import Destination, File, file_of_block, file_of_contents
from antiphon.errors import AntiphonError
from antiphon.model.content import ResourceLink
from antiphon.model.outcome import Result

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["Attachments"]


class Attachments:
    """The files of one result, and the destination that they are saved to."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._files: list[File] = []
        self._error: CommandError | None = None

    async def collect(self, client: Client, result: Result) -> None:
        """Collect the files of a result. Reads an artifact from the server.

        `save` raises the error of an artifact that cannot be read, after the result was printed.
        """
        if result.is_error:
            return
        try:
            for block in result.content:
                if (file := file_of_block(block)) is not None:
                    self._files.append(file)
                elif isinstance(block, ResourceLink) and _is_artifact(block, result):
                    name = block.title or block.name
                    self._files += [
                        file_of_contents(parts, name) for parts in await read_whole(client, block.uri)
                    ]
        except CommandError as error:
            self._error = error
        except AntiphonError as error:
            self._error = CommandError(f"Cannot read the artifact of the result: {error}", UNREACHABLE)

    def without_files(self, result: Result) -> Result | None:
        """Return the part of a result to print; `None` if the standard output is for the bytes alone."""
        if self._files and self._destination.is_output:
            return None
        return Result(
            [block for block in result.content if not render.is_binary(block)],
            data=result.data if result.structured else msgspec.UNSET,
        )

    def save(self) -> None:
        """Save the files. Raises `CommandError`."""
        if self._files:
            self._destination.save(self._files)
        if self._error is not None:
            raise self._error
        if not self._files:
            print("There is nothing to save: no images, audio, files or artifacts.", file=sys.stderr)


def _is_artifact(link: ResourceLink, result: Result) -> bool:
    """Return whether a link leads to the artifact of the result."""
    id = (result.meta or {}).get("artifact_id")
    return isinstance(id, str) and bool(id) and link.uri.endswith(f"/{id}")
