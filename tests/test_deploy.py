"""The deployment that the how-to describes: every command is one, every setting exists, all names fit."""

from __future__ import annotations

import re
import shlex
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from antiphon.cli.commands import app
from antiphon.cli.run.load import load_server
from antiphon.store import open_store
from tests.pages import blocks
from tests.support.process import ROOT

FOLDER = ROOT / "examples" / "deploy"
PAGE = ROOT / "docs" / "howto" / "deploying.md"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service.get("build") == "."}


def parsed(words: list[str]) -> dict[str, Any]:
    """What `antiphon` understands of a command line; raises for one that is none."""
    group: Any = typer.main.get_command(app)
    assert words[0] == "antiphon"
    name, command, rest = group.resolve_command(
        group.make_context("antiphon", [], resilient_parsing=True), words[1:]
    )
    with command.make_context(name, list(rest)) as context:
        return {"command": name, **context.params}


def commands_of_the_page() -> list[str]:
    lines = [line for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("antiphon ")]


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_service_runs_a_command_that_there_is(name: str) -> None:
    understood = parsed(shlex.split(OURS[name]["command"]))
    assert understood["target"] == "weather.py"
    assert understood["command"] == ("worker" if name.startswith("worker") else "run")
    if understood["command"] == "run":
        assert understood["no_worker"]
        assert understood["hosts"] is None, "ANTIPHON_HOSTS names them"
        hosts = OURS[name]["environment"]["ANTIPHON_HOSTS"]
        assert hosts == "${ANTIPHON_HOSTS:-localhost,127.0.0.1}", "nobody authenticates: not every name"


@pytest.mark.parametrize("line", commands_of_the_page())
def test_every_command_of_the_page_is_one(line: str) -> None:
    assert parsed(shlex.split(line))["target"] == "weather.py"


def test_there_are_three_that_serve_and_two_that_work() -> None:
    kinds = [parsed(shlex.split(service["command"]))["command"] for service in OURS.values()]
    assert sorted(kinds) == ["run"] * 3 + ["worker"] * 2


def test_every_setting_exists() -> None:
    reference = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    named = {key for service in OURS.values() for key in service["environment"]}
    assert "ANTIPHON_STORE" in named
    assert "ANTIPHON_SECRETS" in named
    assert [key for key in sorted(named) if f"`{key}`" not in reference] == []


def test_the_store_is_the_database_of_the_compose_file() -> None:
    database = SERVICES["postgres"]["environment"]
    for service in OURS.values():
        url = service["environment"]["ANTIPHON_STORE"].replace("${POSTGRES_PASSWORD}", "secret")
        open_store(url)
        place = urlsplit(url)
        assert (place.hostname, place.username, place.path) == (
            "postgres",
            database["POSTGRES_USER"],
            f"/{database['POSTGRES_DB']}",
        )


def test_the_load_balancer_knows_those_that_serve_at_their_ports_and_hides_the_probes() -> None:
    nginx = (FOLDER / "nginx.conf").read_text(encoding="utf-8")
    known = set(re.findall(r"server (\S+:\d+);", nginx))
    serving = {name: parsed(shlex.split(service["command"])) for name, service in OURS.items()}
    assert known == {f"{name}:{one['port']}" for name, one in serving.items() if one["command"] == "run"}
    assert re.findall(r"location (\S+)", nginx) == ["/mcp"]
    assert "proxy_buffering off" in nginx


def test_each_probe_asks_where_its_service_answers() -> None:
    for service in OURS.values():
        port = parsed(shlex.split(service["command"]))["port"]
        assert re.search(rf"http://127\.0\.0\.1:{port}/(readyz|healthz)", service["healthcheck"]["test"])


def test_what_is_deployed_can_be_loaded_and_gives_promises() -> None:
    server = load_server(str(FOLDER / "weather.py"))
    assert server.tools == ("now", "forecast")
    assert server.task_tools == ("forecast",)
    assert "COPY weather.py" in (FOLDER / "Dockerfile").read_text(encoding="utf-8")


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """There is no release yet: the pages install from a clone, and the image installs a wheel."""
    pages = [*(ROOT / "docs").rglob("*.md"), FOLDER / "Dockerfile", ROOT / "README.md"]
    by_name = re.compile(r"""pip install (?:-\S+ )*['"]?antiphon\b""")
    assert [page.name for page in pages if by_name.search(page.read_text(encoding="utf-8"))] == []


def test_the_metrics_of_the_page_are_those_that_there_are() -> None:
    source = (ROOT / "src" / "antiphon" / "runtime" / "observability" / "metrics.py").read_text(
        encoding="utf-8"
    )
    there = set(re.findall(r'"(antiphon_\w+)"', source))
    table = PAGE.read_text(encoding="utf-8").split("## Metrics")[1].split("```")[0]
    assert set(re.findall(r"`(antiphon_\w+)`", table)) == there
