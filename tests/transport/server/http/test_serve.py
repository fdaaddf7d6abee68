"""`HttpServer`: the hooks for its start, its signals and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from antiphon.transport.server.http.serve import HttpServer, create_config


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request is sent")


def server(**options: Any) -> HttpServer:
    config = create_config(app, drain_timeout=1, lifespan="off", log_config=None)
    return HttpServer(config, **options)


async def test_calls_back_once_it_listens_and_runs_until_it_is_told_to_stop() -> None:
    listening = asyncio.Event()
    handler = signal.getsignal(signal.SIGTERM)
    runner = server(on_listening=listening.set, handle_signals=False)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(runner.serve(sockets=[sock]))
        await asyncio.wait_for(listening.wait(), 60)
        assert runner.started
        assert signal.getsignal(signal.SIGTERM) is handler
        runner.should_exit = True
        await serving


def test_calls_back_on_a_signal_before_it_drains() -> None:
    draining: list[bool] = []
    runner = server(on_signal=lambda: draining.append(runner.should_exit))
    runner.handle_exit(signal.SIGTERM, None)
    assert draining == [False]
    assert runner.should_exit


def test_restores_the_signal_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    runner = server()
    with runner.capture_signals():
        assert signal.getsignal(signal.SIGTERM) == runner.handle_exit
    assert signal.getsignal(signal.SIGTERM) is before
