"""The configuration file of a gateway, and the names of its servers and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import DefinitionError
from antiphon.cli.command_words import join_command
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.gateway.settings import GatewaySettings
from antiphon.cli.targets import Target
from antiphon.client.oauth.oauth import OAuth
from antiphon.gateway.config import read_config
from antiphon.gateway.names import MAX_NAME_CHARACTERS, prefix_for, qualified


def written(folder: Path, content: Any) -> Path:
    path = folder / "servers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_servers_of_a_desktop_host_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.delenv("UNSET", raising=False)
    file = written(
        tmp_path,
        {
            "mcpServers": {
                "My files!": {
                    "command": "npx",
                    "args": ["-y", "server", "${UNSET:-/tmp}"],
                    "env": {"KEY": "${env:GITHUB_TOKEN}"},
                    "cwd": "here",
                    "autoApprove": ["read"],
                },
                "git": {
                    "type": "http",
                    "url": "https://git.example.com/mcp",
                    "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                    "tasks": ["clone"],
                    "timeout": 5,
                },
                "off": {"command": "never", "disabled": True},
            }
        },
    )
    (files, git), problems = read_config(file)
    assert not problems
    assert (files.name, files.target) == ("My_files", ["npx", "-y", "server", "/tmp"])
    assert (files.env, files.cwd) == ({"KEY": "s3cret"}, tmp_path / "here")
    assert (git.name, git.target) == ("git", "https://git.example.com/mcp")
    assert git.headers == {"Authorization": "Bearer s3cret"}
    assert (git.tasks, git.timeout) == (("clone",), 5)
    assert "s3cret" not in repr((files, git))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not a configuration of MCP servers"),
        ({}, "names no servers"),
        ({"servers": {}}, "names no servers"),
        ({"mcpServers": {"a": {}}}, 'needs either a "command" or a "url"'),
        ({"mcpServers": {"a": {"command": "x", "url": "http://x"}}}, 'needs either a "command" or a "url"'),
        ({"mcpServers": {"a": {"command": ["s3cret"]}}}, "is not a server: Expected `str | null`"),
        ({"mcpServers": {"a": {"url": "s3cret"}}}, '"url" is not an address that begins with http'),
        ({"mcpServers": {"a": {"url": "${SECRET_VALUE}"}}}, '"url" is not an address that begins with http'),
        ({"mcpServers": {"a": {"url": "http://h:99999/s3cret"}}}, '"url" is not an address'),
        ({"mcpServers": {"a": {"url": "http://[::1/s3cret"}}}, '"url" is not an address'),
        (
            {"mcpServers": {"a": {"url": "http://h", "headers": {"A": "s3cret\r\nB: c"}}}},
            "the header 'A' has",
        ),
        (
            {"mcpServers": {"a": {"url": "http://h", "headers": {"A": "${input:s3cret}"}}}},
            "uses \\${input:…}",
        ),
        ({"mcpServers": {"a": {"command": "x", "timeout": 0}}}, '"timeout" is not a positive number'),
        ({"mcpServers": {"a": {"command": "x", "env": "K=s3cret"}}}, "is not a server: Expected `object"),
        ({"mcpServers": {"a": {"url": "http://x/sse", "type": "sse"}}}, 'uses the transport "sse"'),
        ({"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}}, "NO_SUCH_VARIABLE, which is not set"),
        ({"mcpServers": {"a": {"command": "x", "disabled": True}}}, "all servers are disabled"),
        ({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}}, "both get the prefix 'a_b'"),
    ],
)
def test_a_wrong_file_is_refused_without_its_values(
    tmp_path: Path, content: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_VALUE", "s3cret")
    with pytest.raises(DefinitionError, match=problem) as error:
        read_config(written(tmp_path, content))
    assert "s3cret" not in str(error.value)


def test_what_the_files_of_real_hosts_have_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "servers.json"
    file.write_bytes(
        b"\xef\xbb\xbf"
        + b"""{ // of a host
        "mcpServers": {
            "nulls": {"command": "a", "args": null, "env": null, "url": null, "headers": null},
            "numbers": {
                "command": "b", "args": ["--port", 3000, true], "env": {"PORT": 3000, "D": true, "N": null}
            },
            "windsurf": {"serverUrl": "https://h/windsurf"}, /* another
            host */ "gemini": {"httpUrl": "https://h/http", "url": "https://h/sse", "type": "sse"},
            "off": {"enabled": false, "args": "anything"},
            "off too": {"disabled": true, "type": "sse", "url": 3},
            "text": {"command": "c", "args": ["// no comment, ]", "${EMPTY:-default}"], "cwd": "~/x",},
            "home": {"command": "${userHome}/d"},
        },
    }"""
    )
    servers, problems = read_config(file)
    assert not problems
    found = {each.name: each for each in servers}
    assert list(found) == ["nulls", "numbers", "windsurf", "gemini", "text", "home"]
    assert found["nulls"].target == ["a"]
    assert found["numbers"].target == ["b", "--port", "3000", "true"]
    assert found["numbers"].env == {"PORT": "3000", "D": "true"}
    assert (found["windsurf"].target, found["gemini"].target) == ("https://h/windsurf", "https://h/http")
    assert found["text"].target == ["c", "// no comment, ]", "default"]
    assert found["text"].cwd == Path("/home/ada/x")
    assert found["home"].target == ["/home/ada/d"]


@pytest.mark.parametrize("key", ["servers", "context_servers", "mcp"])
def test_servers_are_found_under_the_names_that_hosts_have_for_them(tmp_path: Path, key: str) -> None:
    entries: Any = {"git": {"command": "x"}}
    content = {key: {"servers": entries} if key == "mcp" else entries}
    assert [each.name for each in read_config(written(tmp_path, content)).servers] == ["git"]


def test_a_bad_entry_is_reported_and_the_others_keep_their_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {"old": {"type": "sse", "url": "https://h/s3cret"}, "git": {"command": "x"}}
    (git,) = servers(config=str(written(tmp_path, {"mcpServers": entries})))
    assert (git.name, git.prefix) == ("git", True)
    assert "'old' uses the transport \"sse\"" in caplog.text
    assert "This server is left out." in caplog.text
    assert "s3cret" not in caplog.text


def test_a_missing_file_and_a_huge_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="Cannot read"):
        read_config(tmp_path / "none.json")
    with pytest.raises(DefinitionError, match="has more than 1048576 bytes"):
        read_config(written(tmp_path, " " * (1 << 20) + "{}"))


def test_names_have_a_prefix_and_stay_under_60_characters() -> None:
    assert qualified("git", "status") == "git_status"
    assert qualified(None, "x" * 100) == "x" * 100
    long = [qualified("git", f"{'x' * 60}{letter}") for letter in "ab"]
    assert len({*long}) == 2
    assert {len(name) for name in long} == {MAX_NAME_CHARACTERS}
    assert all(name.startswith("git_xxx") for name in long)
    assert (prefix_for("My files!"), prefix_for("***")) == ("My_files", "server")
    assert len(prefix_for("x" * 100)) == 24


def servers(**settings: Any) -> list[Any]:
    return GatewaySettings(**settings).read_servers()


def test_a_single_server_keeps_its_names_and_several_get_prefixes() -> None:
    (alone,) = servers(targets=("http://127.0.0.1:1/mcp",), tasks=("clone",))
    assert (alone.prefix, alone.tasks) == (False, ("clone",))
    both = servers(
        targets=("https://mcp.example.com/mcp", "git=http://127.0.0.1:1/mcp"), tasks=("git_clone", "*")
    )
    assert [(each.name, each.prefix, each.tasks) for each in both] == [
        ("example", True, ("*",)),
        ("git", True, ("clone", "*")),
    ]
    words = join_command(["/usr/bin/npx", "server"])
    beside = servers(targets=(words, "http://127.0.0.1:1/mcp", f"x={__file__}", __file__))
    assert [each.name for each in beside] == ["npx", "server2", "x", "test_config"]
    (script,) = servers(targets=(join_command(["node", "dist/notes.js", "--fast"]),))
    assert script.name == "notes"
    assert beside[0].target == ["/usr/bin/npx", "server"]


def test_a_stored_login_is_used_for_a_url_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "uses_login", property(lambda target: not target.headers))
    url = "https://mcp.example.com/mcp"
    (found,) = servers(targets=(url,))
    assert isinstance(found.auth, OAuth)
    (found,) = servers(targets=(url,), headers=("Authorization: Bearer s3cret",))
    assert found.auth is None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "Missing target"),
        ({"targets": ("server",)}, "is neither a URL"),
        ({"targets": ("no_such_server.py",)}, "There is no file"),
        ({"targets": ("a=http://x", "a=http://y")}, "Two servers have the name 'a'"),
        ({"targets": ("http://x", "http://y"), "headers": ("A: s3cret",)}, "is for a single URL"),
        ({"targets": (join_command(["x"]),), "env": ("NO_SUCH_VARIABLE",)}, "--env NO_SUCH_VARIABLE"),
    ],
)
def test_wrong_settings_are_refused(settings: Any, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        servers(**settings)
