"""`HttpServer`: the hooks for its start, its signals and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from antiphon import Limits
from antiphon.transport.server.http.serve import HttpServer, create_config
from tests.support.loop_time import LoopTime


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request is sent")


def server(**options: Any) -> HttpServer:
    config = create_config(app, limits=Limits(drain_timeout=1), lifespan="off", log_config=None)
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


async def test_listens_for_the_delay_after_sigterm_and_calls_back_before_it_closes() -> None:
    events: list[str] = []
    listening = asyncio.Event()
    runner = server(
        on_listening=listening.set,
        on_signal=lambda: events.append("signal"),
        on_closing=lambda: events.append("closing"),
        shutdown_delay=600.0,
        handle_signals=False,
    )
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        serving = asyncio.create_task(runner.serve(sockets=[sock]))
        await asyncio.wait_for(listening.wait(), 60)
        runner.handle_exit(signal.SIGTERM, None)
        assert not await runner.on_tick(1)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        assert events == ["signal"]
        await LoopTime.here().advance_until(serving.done, 700)
        await serving
    assert events == ["signal", "closing"]


async def test_sigint_ends_the_delay() -> None:
    runner = server(shutdown_delay=600.0)
    runner.handle_exit(signal.SIGTERM, None)
    assert not await runner.on_tick(1)
    runner.handle_exit(signal.SIGINT, None)
    assert await runner.on_tick(2)


def test_restores_the_signal_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    runner = server()
    with runner.capture_signals():
        assert signal.getsignal(signal.SIGTERM) == runner.handle_exit
    assert signal.getsignal(signal.SIGTERM) is before
