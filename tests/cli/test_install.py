"""`antiphon install` and `antiphon mcp-json`: what they write starts the server, and nothing else changes."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon import Client
from antiphon.cli.commands import app
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.hosts import HostName
from antiphon.cli.hosts.config_file import ConfigFile
from antiphon.cli.hosts.env_file import read_env_file
from antiphon.cli.hosts.hosted_server import HostedServer
from antiphon.cli.hosts.hosts import HOSTS
from antiphon.cli.hosts.install import install_server
from antiphon.gateway.config import read_config
from tests.cli.command import antiphon, plain_environment
from tests.cli.pseudo_terminal import in_terminal

FILE = """
import os

from antiphon import Server

print("loaded")
server = Server("my shop", store="sqlite:///tasks.db")


@server.tool
async def where() -> list[str]:
    return [os.getcwd(), os.environ["TOKEN"]]


other = Server("other")
"""
OTHERS = '{\n    "theme": "dark",\n    "mcpServers": {"old": {"command": "x", "env": {"K": "s3cret"}}}\n}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A server in a folder of its own."""
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "shop.py"
    path.write_text(FILE)
    return path


async def called(entry: dict[str, Any], tool: str) -> Any:
    """Start the program of an entry, as a host does, and call a tool."""
    async with Client([entry["command"], *entry["args"]], env=entry.get("env", {})) as client:
        return (await client.call(tool)).data


async def test_a_host_can_start_the_server_from_any_folder(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "home" / "Claude" / "claude_desktop_config.json"
    config.parent.mkdir(parents=True)
    config.write_text(OTHERS)
    config.chmod(0o640)
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "TOKEN": "s3cret"}
    options = ["--host", "claude-desktop", "--env", "PYTHONPATH", "--env", "TOKEN"]

    shown = antiphon("install", "shop.py", *options, cwd=file.parent, env=environment)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert '+        "TOKEN": "***"' in shown.stderr
    assert "add --yes" in shown.stderr
    assert config.read_text() == OTHERS

    done = antiphon("install", "shop.py", *options, "--yes", cwd=file.parent, env=environment)
    assert done.returncode == 0, done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert done.stdout.startswith(f"my-shop is in {config}. The file before is kept as ")
    assert done.stdout.endswith("Restart Claude Desktop.\n")
    assert "Do not commit" in done.stderr
    assert config.with_name(f"{config.name}.bak").read_text() == OTHERS
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert sorted(path.name for path in config.parent.iterdir()) == [config.name, f"{config.name}.bak"]

    written = config.read_text()
    assert written.startswith(OTHERS.rstrip("}\n"))
    servers = json.loads(written)["mcpServers"]
    assert list(servers) == ["old", "my-shop"]
    assert servers["my-shop"]["command"] == sys.executable
    assert await called(servers["my-shop"], "where") == [str(file.parent), "s3cret"]


def test_the_user_is_asked_on_a_terminal(file: Path, tmp_path: Path) -> None:
    words = ("install", f"{file}:other", "--host", "vscode", "--project")
    with in_terminal(*words, cwd=tmp_path) as terminal:
        terminal.expect('+    "other": {')
        terminal.expect("Write this change? [y/N]: ")
        terminal.type_line("")
        assert terminal.wait() == (1, "")
    assert not (tmp_path / ".vscode").exists()
    with in_terminal(*words, cwd=tmp_path) as terminal:
        terminal.expect("[y/N]: ")
        terminal.type_line("y")
        code, printed = terminal.wait()
    path = tmp_path / ".vscode" / "mcp.json"
    assert (code, printed) == (
        0,
        f"other is in {path}. In VS Code, run the command MCP: List Servers.\n",
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    entry = json.loads(path.read_text())["servers"]["other"]
    assert (entry["type"], entry["args"][2:]) == (
        "stdio",
        ["run", f"{file}:other", "--stdio", "--directory", str(file.parent)],
    )


async def test_a_url_is_written_as_each_host_reads_it(url: str, tmp_path: Path) -> None:
    config = tmp_path / "hosts.json"
    for host in ("claude-code", "claude-desktop", "claude-desktop"):
        done = antiphon("install", url, "--host", host, "--name", host, "--config", config, "--yes")
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"claude-desktop is in {config} already. Nothing was changed.\n"
    servers = json.loads(config.read_text())["mcpServers"]
    assert servers["claude-code"] == {"type": "http", "url": url}
    entry = {**servers["claude-desktop"], "env": {"PYTHONPATH": plain_environment()["PYTHONPATH"]}}
    async with Client([entry["command"], *entry["args"]], env=entry["env"]) as client:
        assert "greet" in [tool.name for tool in await client.tools()]


def test_what_mcp_json_prints_is_a_configuration(file: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# secrets\nexport TOKEN='a b' # yes\nPLAIN=c#d # no\n")
    done = antiphon("mcp-json", file, "--env-file", ".env", "--env", "PLAIN=e", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "loaded\n"  # standard output has the JSON and nothing else
    (tmp_path / "servers.json").write_text(done.stdout)
    [server] = read_config(tmp_path / "servers.json").servers
    assert (server.name, server.env) == ("my-shop", {"TOKEN": "a b", "PLAIN": "e"})
    program = antiphon("install", "--host", "cursor", "--print", "--", "python3", "-m", "mine", cwd=tmp_path)
    [(name, entry)] = json.loads(program.stdout)["mcpServers"].items()
    assert (name, entry["args"]) == ("python3", ["-m", "mine"])
    assert os.path.isabs(entry["command"])


COMMENTED = '{\n  // mine\n  "servers": {},\n}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"servers": {"shop": {"url": "http://x"}}}', "Replace it with --force"),
        ('{"servers": ', "is not valid JSON (line 1: Expecting value)"),
        ('{"servers": []}', '"servers" in'),
        ("[]", "it is not a JSON object"),
        (COMMENTED, "has comments, or a comma after a last item, which would be lost"),
        ('{"servers": {},}', "has comments, or a comma after a last item, which would be lost"),
        (b"\xff", "is not text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_extended_stays_as_it_is(
    content: str | bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(data)
    server = HostedServer("shop", ["/bin/shop"])
    with pytest.raises(CommandError) as raised:
        install_server(HOSTS["vscode"], server, path, force=False, yes=True)
    assert message in raised.value.message
    assert str(path) in raised.value.message
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [data]
    if content == COMMENTED:  # what to add by hand
        assert json.loads(capsys.readouterr().out)["servers"]["shop"]["command"] == "/bin/shop"


def test_force_replaces_an_entry_and_shows_no_secrets_of_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    old = {"url": "https://u:s3cret@x/?k=s3cret", "headers": {"A": "s3cret"}, "env": "s3cret", "x": "\x1b[2J"}
    path.write_text(json.dumps({"mcpServers": {"shop": old}, "z": 1}, indent=2))
    install_server(HOSTS["cursor"], HostedServer("shop", ["/bin/shop"]), path, force=True, yes=True)
    assert json.loads(path.read_text()) == {
        "mcpServers": {"shop": {"command": "/bin/shop", "args": []}},
        "z": 1,
    }
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
    assert "\x1b" not in shown.err
    assert '-      "url": "https://***@x/?k=***",' in shown.err


def test_a_url_with_secrets_is_written_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url, warns in (("https://x/mcp", False), ("https://x/mcp?key=s3cret", True)):
        server = HostedServer(f"shop-{warns}", url=url)
        install_server(HOSTS["cursor"], server, tmp_path / "mcp.json", force=False, yes=True)
        shown = capsys.readouterr()
        assert "s3cret" not in shown.out + shown.err
        assert ("Do not commit it" in shown.err) == warns


def test_links_are_followed_and_backups_are_kept(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles" / "mcp.json", tmp_path / "mcp.json"
    real.write_bytes(b"\xef\xbb\xbf1")
    link.symlink_to(real)
    assert ConfigFile(link).replace("2") == real.with_name("mcp.json.bak")
    assert ConfigFile(link).replace("3") == real.with_name("mcp.json.bak1")
    assert link.is_symlink()
    assert real.read_bytes() == b"\xef\xbb\xbf3"


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    with pytest.raises(CommandError, match="is not a regular file"):
        ConfigFile(tmp_path / "mcp.json")


def test_a_file_that_another_program_changed_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    file = ConfigFile(path)
    path.write_text('{"a": 1}')
    with pytest.raises(CommandError, match="changed by another program"):
        file.replace("{}")
    assert [each.read_text() for each in tmp_path.iterdir()] == ['{"a": 1}']


def test_a_file_that_another_program_changes_during_the_backup_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    file = ConfigFile(path)

    def synchronize(descriptor: int) -> None:
        path.write_text('{"a": 1}')

    monkeypatch.setattr("antiphon.cli.hosts.config_file.os.fsync", synchronize)
    with pytest.raises(CommandError, match="changed by another program"):
        file.replace("{}")
    assert [each.read_text() for each in tmp_path.iterdir()] == ['{"a": 1}']


def test_of_concurrent_installs_one_writes_and_the_others_say_that_they_did_not(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    barrier = threading.Barrier(8)

    def install(number: int) -> str:
        file = ConfigFile(path)
        barrier.wait()
        try:
            file.replace(str(number))
        except CommandError as error:
            return error.message
        return str(number)

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(install, range(8)))
    assert sum("Nothing was written. Try again." in each for each in said) == 7
    assert path.read_text() in said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mcp.json", "mcp.json.bak"]


def test_a_folder_that_another_program_keeps_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.cli.hosts.config_file.LOCK_SECONDS", 0.0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(CommandError, match="Another program has locked"):
            ConfigFile(tmp_path / "mcp.json").replace("{}")
    finally:
        os.close(descriptor)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.py", "--host", "cursor"], "There is no file missing.py"),
        (["broken.py", "--host", "cursor"], "Cannot import"),
        (["http://x/mcp", "--host", "cursor", "--env", "A=b"], "A URL starts no process"),
        (
            ["http://x/mcp", "--host", "claude-desktop", "--header", "A: s3cret", "--config", "c.json"],
            "remove --header",
        ),
        (
            ["https://u:s3cret@x/mcp?k=s3cret", "--host", "claude-desktop", "--config", "c.json"],
            "https://***@x/mcp?k=*** may contain secrets",
        ),
        (["http://[::1", "--host", "cursor"], "is not a complete URL"),
        (["http://", "--host", "cursor"], "is not a complete URL"),
        (["http://x/mcp", "--host", "claude-desktop", "--project"], "remove --project"),
        (["http://x/mcp", "--host", "cursor", "--name", "a b"], "not a name that all hosts accept"),
        (["http://x/mcp", "--host", "cursor"], "Is Cursor installed?"),
        (["--host", "cursor", "--", "no-such-program"], "There is no program 'no-such-program'"),
    ],
)
def test_what_cannot_work_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    done = CliRunner().invoke(app, ["install", *words], env=environment)
    assert done.exit_code in (1, 2)
    assert message in done.stderr
    assert "s3cret" not in done.output
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["broken.py"]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, ["HOME/.config/Claude/claude_desktop_config.json", "HOME/.config/Code/User/mcp.json"]),
        (
            "linux",
            {"XDG_CONFIG_HOME": "/x"},
            ["/x/Claude/claude_desktop_config.json", "/x/Code/User/mcp.json"],
        ),
        (
            "darwin",
            {},
            [
                "HOME/Library/Application Support/Claude/claude_desktop_config.json",
                "HOME/Library/Application Support/Code/User/mcp.json",
            ],
        ),
        ("win32", {"APPDATA": "/a"}, ["/a/Claude/claude_desktop_config.json", "/a/Code/User/mcp.json"]),
    ],
)
def test_the_files_of_hosts_are_where_each_system_has_them(
    platform: str, variables: dict[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("antiphon.cli.hosts.hosts.sys.platform", platform)
    names: list[HostName] = ["claude-desktop", "vscode", "claude-code", "cursor"]
    files = [str(HOSTS[name].file(in_project=False)) for name in names]
    wanted = [*expected, "HOME/.claude.json", "HOME/.cursor/mcp.json"]
    assert files == [path.replace("HOME", str(Path.home())) for path in wanted]


@pytest.mark.parametrize("line", ["no sign", "= x", "A B=c"])
def test_a_line_that_is_no_variable_is_named_and_not_shown(line: str, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"A=1\n{line}\n")
    with pytest.raises(CommandError, match="line 2 is not a variable") as raised:
        read_env_file(path)
    assert line not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=#secret", "#secret"),
        ("A= #comment", ""),
        ("A = b#c # d", "b#c"),
        ('A="x" # say "hi"', "x"),
        ("A='x#y'", "x#y"),
        ("""A='{"b": "c"}'""", '{"b": "c"}'),
        ('A="it\'s"', "it's"),
        ('A="x"#y', '"x"#y'),
    ],
)
def test_a_value_of_an_env_file_is_not_changed(line: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"{line}\n")
    assert read_env_file(path) == {"A": value}
