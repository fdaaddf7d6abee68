"""Seed 002, the use cases of request state: rolling upgrades and load shedding, between real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.asking.driving import Able, accept, drive, once
from tests.cli.command import antiphon, running
from tests.seeds.test_ephemeral import SEEDS
from tests.support.proxy import round_robin
from tests.support.speakers import Bare

SECRET = {"ANTIPHON_SECRETS": "a secret for all of them"}
LOGINS = {f"{site}_login": accept(name=site) for site in ("github", "google", "microsoft")}


class Instances:
    """Processes of one server, to be started one by one."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._count = 0

    def start(self, **env: str) -> int:
        """Start one more; its port."""
        self._count += 1
        logs = self._directory / str(self._count)
        logs.mkdir()
        server = self._stack.enter_context(running(SEEDS, directory=logs, env={**SECRET, **env}))
        port = urlsplit(server.url).port
        assert port is not None
        return port


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Instances]:
    with ExitStack() as stack:
        yield Instances(stack, tmp_path)


@pytest.mark.parametrize("kind", [Bare, Able])
async def test_a_rolling_upgrade_goes_as_the_six_steps_of_the_seed(
    instances: Instances, kind: type[Bare]
) -> None:
    old, new = kind(instances.start()), kind(instances.start(SEEDS_VERSION="new"))
    asked = (await once(old, "link_accounts"))["result"]  # 1 and 2
    assert list(asked["inputRequests"]) == ["github_login", "google_login"]
    both = {key: LOGINS[key] for key in asked["inputRequests"]}
    again = (await once(new, "link_accounts", answers=both, state=asked.get("requestState"), id=2))["result"]
    assert list(again["inputRequests"]) == ["microsoft_login"]  # 3 and 4
    rest = {"microsoft_login": LOGINS["microsoft_login"]}
    last = (await once(new, "link_accounts", answers=rest, state=again["requestState"], id=3))["result"]
    assert last["content"][0]["text"] == "Linked GitHub (github) and Microsoft (microsoft)."  # 5 and 6


async def test_old_and_new_mixed_behind_a_balancer_ask_for_nothing_twice(instances: Instances) -> None:
    ports = [instances.start(), instances.start(SEEDS_VERSION="new")]
    async with round_robin(ports) as balancer:
        result, asked = await drive(Bare(balancer.port), "link_accounts", None, LOGINS)
        assert set(balancer.served) == set(ports)
    keys = [key for round_ in asked for key in round_]
    assert len(keys) == len(set(keys))
    assert result["content"][0]["text"].startswith("Linked GitHub (github) and ")


async def test_a_call_that_is_shed_is_counted_on_elsewhere(instances: Instances) -> None:
    ports = [instances.start(SEEDS_SHED="1") for _ in range(2)]
    async with round_robin(ports) as balancer:
        first = (await once(Bare(balancer.port), "count_primes", {"below": 100_000}))["result"]
        assert first["resultType"] == "input_required"
        assert "inputRequests" not in first
        result, asked = await drive(Bare(balancer.port), "count_primes", {"below": 100_000}, {})
        assert set(balancer.served) == set(ports)
    assert result["content"][0]["text"] == "9592"
    assert asked == [[]] * 10


async def test_the_command_line_does_not_notice_that_it_is_shed(instances: Instances) -> None:
    url = f"http://127.0.0.1:{instances.start(SEEDS_SHED='1')}/mcp"
    done = antiphon("call", url, "count_primes", "below=1000000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "78498\n", "")
    done = antiphon("call", url, "get_weather", "location=New York", "--answer", "name=octocat")
    assert done.stdout == "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy\n"
