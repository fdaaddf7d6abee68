"""Several processes with one secret and no store: any of them continues a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.asking.driving import Able, accept, drive, once
from tests.support.process import ServerProcess, free_port, started
from tests.support.proxy import round_robin
from tests.support.speakers import Bare

SECRET = {"ANTIPHON_SECRETS": "a secret for all of them"}
NAMES = {f"name_{n}": accept(name=f"n{n}") for n in range(5)}
LOGINS = {f"{site}_login": accept(name=site[:2]) for site in ("github", "google", "microsoft")}


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def three(tmp_path: Path, effects: Path) -> Iterator[list[ServerProcess]]:
    with ExitStack() as stack:
        environment = {**SECRET, "ASKING_EFFECTS": str(effects)}
        yield [stack.enter_context(started("asking.py", tmp_path, env=environment)) for _ in range(3)]


@pytest.mark.parametrize("kind", [Able, Bare])
async def test_each_round_is_served_by_another_process_and_the_step_is_done_once(
    three: list[ServerProcess], effects: Path, kind: type[Able]
) -> None:
    async with round_robin([server.port for server in three]) as balancer:
        result, asked = await drive(kind(balancer.port), "five_rounds", None, NAMES)
    assert result["content"][0]["text"] == "five_rounds: n0 n1 n2 n3 n4"
    assert asked == [[f"name_{n}"] for n in range(5)]
    assert len(set(balancer.served[:3])) == 3
    assert effects.read_text() == "five_rounds\n"


async def test_a_process_is_killed_between_two_rounds_and_another_goes_on(
    three: list[ServerProcess], effects: Path
) -> None:
    async with round_robin([server.port for server in three]) as balancer:
        speaker = Able(balancer.port)
        first = (await once(speaker, "five_rounds"))["result"]
        victim = next(server for server in three if server.port == balancer.served[0])
        victim.process.kill()
        victim.process.wait()
        result, state = first, first["requestState"]
        for number in range(5):
            answers = {f"name_{number}": NAMES[f"name_{number}"]}
            result = (await once(speaker, "five_rounds", answers=answers, state=state, id=number + 2))[
                "result"
            ]
            state = result.get("requestState")
    assert result["content"][0]["text"] == "five_rounds: n0 n1 n2 n3 n4"
    assert effects.read_text() == "five_rounds\n"


async def test_a_rolling_upgrade_keeps_the_answers_that_the_new_version_still_wants(tmp_path: Path) -> None:
    with (
        started("asking.py", tmp_path, env=SECRET) as old,
        started("asking.py", tmp_path, env={**SECRET, "ASKING_VERSION": "new"}) as new,
    ):
        async with round_robin([old.port, new.port]) as balancer:
            result, asked = await drive(Able(balancer.port), "link_accounts", None, LOGINS)
    # old asks, new finds github_login and asks for what it lacks, old lacks google_login, new has all
    assert asked[0] == ["github_login", "google_login"]
    assert asked[1] == ["microsoft_login"]
    assert "github_login" not in [key for keys in asked[1:] for key in keys]
    assert result["content"][0]["text"] in ("github=gi microsoft=mi", "github=gi google=go")


async def test_a_process_with_another_secret_refuses_the_state(tmp_path: Path, effects: Path) -> None:
    with (
        started("asking.py", tmp_path, env=SECRET) as one,
        started("asking.py", tmp_path, env={"ANTIPHON_SECRETS": "another secret of somebody else"}) as other,
    ):
        state = (await once(Able(one.port), "five_rounds"))["result"]["requestState"]
        frame = await once(Able(other.port), "five_rounds", answers={"name_0": NAMES["name_0"]}, state=state)
        assert frame["error"]["code"] == -32602
        message = frame["error"]["message"]
        assert "make the call again, without it" in message
        assert "sealed with a secret that this process of the server does not have" in message
        assert "Give all processes the same ANTIPHON_SECRETS" in message
        assert "Cannot open the request state" in other.log
        assert "Check that all processes have the same ANTIPHON_SECRETS" in other.log


async def test_a_restarted_process_without_a_secret_says_how_calls_survive(
    tmp_path: Path, effects: Path
) -> None:
    port = free_port()
    with started("asking.py", tmp_path, env={"ANTIPHON_SECRETS": ""}, port=port) as before:
        state = (await once(Able(port), "five_rounds"))["result"]["requestState"]
        before.process.kill()
        before.process.wait()
    with started("asking.py", tmp_path, env={"ANTIPHON_SECRETS": ""}, port=port) as after:
        answers = {"name_0": NAMES["name_0"]}
        altered = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        frames = [
            await once(Able(port), "five_rounds", answers=answers, state=each) for each in (state, altered)
        ]
        assert frames[0]["error"] == frames[1]["error"], "the words are the same for every reason"
        assert "ANTIPHON_SECRETS" in frames[0]["error"]["message"]
        assert after.log.count("No secret is configured, so this process opens no token") == 1, (
            "once a minute"
        )


@pytest.mark.parametrize("kind", [Able, Bare])
async def test_a_first_question_is_answered_at_any_process_also_if_none_has_a_secret(
    tmp_path: Path, kind: type[Able]
) -> None:
    none = {"ANTIPHON_SECRETS": ""}
    answers = {"github_login": accept(name="gi"), "google_login": accept(name="go")}
    with started("asking.py", tmp_path, env=none) as one, started("asking.py", tmp_path, env=none) as other:
        asked = (await once(kind(one.port), "link_accounts"))["result"]
        assert sorted(asked["inputRequests"]) == sorted(answers)
        assert "requestState" not in asked
        last = (await once(kind(other.port), "link_accounts", answers=answers, id=2))["result"]
    assert last["content"][0]["text"] == "github=gi google=go"


async def test_a_new_key_is_rolled_in_while_the_old_one_still_opens(tmp_path: Path) -> None:
    ring = {"ANTIPHON_SECRETS": "a new secret that seals from now on," + SECRET["ANTIPHON_SECRETS"]}
    with started("asking.py", tmp_path, env=SECRET) as one, started("asking.py", tmp_path, env=ring) as other:
        state = (await once(Able(one.port), "five_rounds"))["result"]["requestState"]
        frame = await once(Able(other.port), "five_rounds", answers={"name_0": NAMES["name_0"]}, state=state)
        assert list(frame["result"]["inputRequests"]) == ["name_1"]
        refused = await once(
            Able(one.port),
            "five_rounds",
            answers={"name_1": NAMES["name_1"]},
            state=frame["result"]["requestState"],
        )
        assert refused["error"]["code"] == -32602


async def test_shed_calls_go_on_elsewhere_and_do_no_step_twice(tmp_path: Path, effects: Path) -> None:
    environment = {**SECRET, "ASKING_EFFECTS": str(effects), "ASKING_SHED": "1"}
    with (
        started("asking.py", tmp_path, env=environment) as one,
        started("asking.py", tmp_path, env=environment) as other,
    ):
        async with round_robin([one.port, other.port]) as balancer:
            result, asked = await drive(Able(balancer.port), "add_up", {"upto": 6}, {})
            assert len(set(balancer.served)) == 2
    assert result["content"][0]["text"] == "21"
    assert len(asked) > 1
    assert all(keys == [] for keys in asked)
    assert effects.read_text().splitlines() == [f"add {n}" for n in range(1, 7)]


async def test_five_rounds_and_a_shed_together_do_the_step_once(tmp_path: Path, effects: Path) -> None:
    environment = {**SECRET, "ASKING_EFFECTS": str(effects), "ASKING_SHED": "1"}
    with started("asking.py", tmp_path, env=environment) as server:
        result, asked = await drive(Bare(server.port), "five_rounds", None, NAMES)
    assert result["content"][0]["text"] == "five_rounds: n0 n1 n2 n3 n4"
    assert [] in asked
    assert len([keys for keys in asked if keys]) == 5
    assert effects.read_text() == "five_rounds\n"
