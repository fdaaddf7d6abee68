"""Records what a client and its server say to each other."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.client.client import Client
from antiphon.transport.client.recording import RecordedMessage, RecordingChannel

__all__ = ["record_messages"]


def record_messages(client: Client, on_message: Callable[[RecordedMessage], None]) -> Callable[[], None]:
    """Call a function with each message of a client that is not connected yet.

    Returns a function that ends the recording. The client then connects as before.
    """
    connection = client._connection
    channel = connection.channel
    recording = connection.channel = RecordingChannel(channel, on_message)

    def stop() -> None:
        recording.stop()
        if connection.channel is recording:
            connection.channel = channel

    return stop
