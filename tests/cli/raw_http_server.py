"""An HTTP server that sends arbitrary bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[str, str], bytes]
"""Maps the method and the body of a request to the bytes of the response."""


def http_response(
    status: str = "200 OK", kind: str = "text/html", body: str = "<h1>It works!</h1>", more: str = ""
) -> bytes:
    """Return the bytes of an HTTP response."""
    text = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(text)}\r\n{more}connection: close"
    )
    return f"{head}\r\n\r\n".encode() + text


@contextmanager
def raw_http_server(answer: Answer | None) -> Iterator[str]:
    """Run a server and yield its URL. With `answer=None`, it accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[tuple[socket.socket, threading.Thread]] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    thread = threading.Thread(target=_reply, args=(connection, answer))
                    taken.append((connection, thread))
                    thread.start()

        accepting = threading.Thread(target=serve)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection, thread in taken:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join()
                connection.close()


def _reply(connection: socket.socket, answer: Answer | None) -> None:
    received = b""
    with suppress(OSError):
        # A request that does not begin with a letter is not HTTP (TLS, for example): respond immediately.
        while (b"\r\n\r\n" not in received and received[:1].isalpha()) or not received or answer is None:
            if not (more := connection.recv(65536)):
                return
            received += more
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        method = head.partition(b" ")[0].decode(errors="replace")
        connection.sendall(answer(method, body.decode(errors="replace")))
        connection.shutdown(socket.SHUT_RDWR)
