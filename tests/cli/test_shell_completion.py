"""Shell completion: names and values from a server, in real shells and without them."""

from __future__ import annotations

import fcntl
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from antiphon.cli.commands import app
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.shell_completion import list_cache
from antiphon.cli.shell_completion.command_line import Candidate, format_candidates, parse_line
from antiphon.cli.shell_completion.list_cache import Argument, ListCache, Offer
from antiphon.cli.shell_completion.main import candidates
from antiphon.cli.shell_completion.scripts import use_these_scripts
from antiphon.cli.shell_completion.server_lists import ServerLists, with_login
from antiphon.cli.targets import Target
from antiphon.client.oauth.logins import FileLogins, Login, RegisteredClient
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment
from tests.cli.pseudo_terminal import TerminalSession
from tests.cli.raw_http_server import raw_http_server
from tests.cli.test_unusual_servers import responding_with

HOSTILE = ["good", "y$(touch pwned)", "x `touch pwned`;*", "--force", "two\nlines", "red\x1b[31m"]


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    monkeypatch.setenv("ANTIPHON_COMPLETION_TIMEOUT", str(PATIENCE))
    monkeypatch.delenv("ANTIPHON_URL", raising=False)
    return tmp_path / "cache" / "antiphon" / "completion"


def completed(text: str, shell: str = "bash") -> list[str]:
    """Return the candidates for a line, as a script reads them."""
    line = parse_line(text)
    return format_candidates(candidates(line), line, shell, word_breaks=" ")


def target(url: str, token: str | None = None) -> Target:
    return Target.parse(url, headers=(), token=token, timeout=60)


# From a server


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("call URL ", ["picture", "attach", "history", "say"]),
        ("call URL h", ["history"]),
        ("call --token t URL --json h", ["history"]),
        ("call URL attach ", ["uri=", "kind="]),
        ("call URL attach uri=x k", ["kind="]),
        ("call URL attach kind:=1 k", []),
        ("call URL nothing ", []),
        ("read URL d", ["data://table.csv"]),
        ("read URL no", ["notes://today", "notes://"]),
        ("read URL notes://", ["notes://today"]),
        ("read URL notes://Monday/0", ["notes://Monday/08", "notes://Monday/09"]),
        ("read URL notes://Sunday/0", []),
        ("read URL notes://today ", []),
        ("prompt URL ", ["translate", "interview"]),
        ("prompt URL translate ", ["text=", "language="]),
        ("prompt URL translate text=x language=G", ["language=German", "language=Greek"]),
        ("prompt URL translate unknown=", []),
        ("complete URL tr", ["translate"]),
        ("complete URL translate ", ["text", "language"]),
        ("complete URL translate language L", ["Latin"]),
        (r"complete URL 'notes://{day}/{hour}' ", ["day", "hour"]),
        (r"complete URL 'notes://{day}/{hour}' hour 0 ", ["day="]),
        ("tools URL ", []),
        ("call -- program ", []),
    ],
)
def test_a_server_completes_names_and_values(catalog_url: str, typed: str, wanted: list[str]) -> None:
    assert completed(f"antiphon {typed}".replace("URL", catalog_url)) == wanted


def test_values_of_a_schema_are_completed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_URL", url)
    monkeypatch.setenv("SERVER", url)
    assert completed("antiphon call types unit=") == ["unit=m", "unit=ft"]
    assert completed("antiphon call $SERVER types flag=t") == ["flag=true"]
    assert completed("antiphon call gr", "zsh") == ["greet\tGreet someone."]


def test_commands_options_and_their_values_need_no_server() -> None:
    assert completed("antiphon do") == ["doctor"]
    assert completed("antiphon tasks an") == ["answer"]
    assert completed("antiphon call --str") == ["--stream"]
    assert completed("antiphon call http://127.0.0.1:9/mcp x --default-answer ") == [
        "accept",
        "decline",
        "cancel",
    ]


# Failures


def test_a_process_is_silent_without_a_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never responds
        for port in (9, silent.getsockname()[1]):
            done = antiphon(env=_asking(f"antiphon call http://127.0.0.1:{port}/mcp ", tmp_path))
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_program_or_file_is_started(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(f"open({str(tmp_path / 'started')!r}, 'w')\n")
    for line in (f"antiphon call {file} ", f"antiphon call -- {sys.executable} {file} "):
        assert completed(line) == []
    assert not (tmp_path / "started").exists()


def test_an_older_script_of_typer_still_completes_commands() -> None:
    done = CliRunner().invoke(
        app,
        prog_name="antiphon",
        env={"_ANTIPHON_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "antiphon doc"},
    )
    assert '"doctor"' in done.stdout


# The cache


def test_lists_are_cached_in_private_files_for_some_minutes(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = target("http://127.0.0.1:9/mcp", "secret")
    offers = [Offer("greet", "Greet.", (Argument("name"),))]
    ListCache(gone).put("tools", offers)
    assert ServerLists(gone).get("tools") == offers
    (file,) = private_cache.iterdir()
    assert (file.stat().st_mode & 0o777, private_cache.stat().st_mode & 0o777) == (0o600, 0o700)
    assert b"secret" not in file.read_bytes() + file.name.encode()
    # Another caller, another protocol version and another server have lists of their own.
    assert ListCache(target("http://127.0.0.1:9/mcp")).get("tools") is None
    now = list_cache.time.time()
    monkeypatch.setattr(list_cache.time, "time", lambda: now + list_cache.FRESH_SECONDS)
    assert ListCache(gone).get("tools") is None
    file.write_bytes(b"{")
    assert ListCache(gone).get("tools") is None


def test_old_files_are_removed_from_the_cache(private_cache: Path) -> None:
    private_cache.mkdir(parents=True)
    (private_cache / "old").touch()
    os.utime(private_cache / "old", (0, 0))
    ListCache(target("http://127.0.0.1:9/mcp")).put("tools", [])
    assert len(list(private_cache.iterdir())) == 1
    ListCache(target("http://127.0.0.1:9/mcp")).put("tools", [Offer("x" * list_cache.MAX_FILE_BYTES)])
    assert ListCache(target("http://127.0.0.1:9/mcp")).get("tools") == []


# Logins


def test_the_token_of_a_login_is_sent_and_never_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:9/mcp"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    login = Login(url, url, "http://127.0.0.1:9", RegisteredClient("c"), "http://127.0.0.1:9/token", "secret")
    FileLogins().save(login)
    assert with_login(target(url)).headers == {"Authorization": "Bearer secret"}
    assert with_login(target(url, "mine")).headers == {"Authorization": "Bearer mine"}
    FileLogins().save(msgspec.structs.replace(login, expires_at=1.0, refresh_token="again"))
    with pytest.raises(CommandError, match="cannot be used for completion"):
        with_login(target(url))


# Lines and candidates


@pytest.mark.parametrize(
    ("text", "words", "incomplete"),
    [
        ("", [], ""),
        ("antiphon", [], "antiphon"),
        ("antiphon call ", ["antiphon", "call"], ""),
        ("antiphon call 'a b' \"c d", ["antiphon", "call", "a b"], "c d"),
        (r"antiphon a\ b", ["antiphon"], "a b"),
        ("antiphon ''", ["antiphon"], ""),
        ('antiphon "it\'s" \\', ["antiphon", "it's"], ""),
    ],
)
def test_reads_a_line_as_a_shell_does(text: str, words: list[str], incomplete: str) -> None:
    line = parse_line(text)
    assert (line.words, line.incomplete) == (words, incomplete)


def test_hostile_candidates_are_quoted_or_left_out() -> None:
    candidates = [Candidate(name, "help\t\x1b[31m\nmore") for name in HOSTILE]
    assert format_candidates(candidates, parse_line("antiphon call URL "), "bash") == [
        "good",
        r"y\$\(touch\ pwned\)",
        r"x\ \`touch\ pwned\`\;\*",
    ]
    assert format_candidates(candidates, parse_line("antiphon call URL g"), "fish") == [
        "good\thelp [31m more"
    ]
    # Other quotes would need other escapes.
    assert format_candidates(candidates, parse_line("antiphon call URL 'x"), "bash") == []
    assert format_candidates(candidates, parse_line('antiphon call URL "g'), "bash") == ["good"]
    assert format_candidates([Candidate("a=bc")], parse_line('antiphon call URL a="b'), "bash") == []


def test_no_candidate_names_a_file_of_the_user_or_another_target() -> None:
    arguments = (
        Argument("to", values=("@.ssh/id_rsa", "ada@example.org")),
        Argument("a=@.ssh/id_rsa"),
        Argument("b:", values=("1",)),
        Argument("xml:lang"),
    )
    names = ("send", "evil.py", "sub/evil.py:server", "http://127.0.0.1:9/mcp")
    url = "http://127.0.0.1:9/mcp"
    cache = ListCache(target(url))
    cache.put("tools", [Offer(name, arguments=arguments) for name in names])
    cache.put("prompts", [Offer(name) for name in names])
    cache.put("templates", [Offer("http://{host}/page"), Offer(names[-1])])
    assert completed(f"antiphon call {url} ") == ["send"]
    assert completed(f"antiphon prompt {url} ") == ["send"]
    assert completed(f"antiphon complete {url} ") == ["send", r"http://\{host\}/page"]
    assert completed(f"antiphon call {url} send ") == ["to=", "xml:lang="]
    assert completed(f"antiphon call {url} send to=") == ["to=ada@example.org"]
    assert completed(f"antiphon call {url} send to=@") == []
    assert completed(f"antiphon call {url} send a=") == []
    assert completed(f"antiphon call {url} send b:=") == []


def test_bash_gets_the_part_after_its_last_word_break() -> None:
    for typed, wanted in (("notes:", "//today"), ("notes://to", "//today"), ("no", "notes://today")):
        assert format_candidates([Candidate("notes://today")], parse_line(f"antiphon {typed}"), "bash") == [
            wanted
        ]
    for typed, wanted in (("to=ada@ex", "@example.org"), ("to=ad", "ada@example.org")):
        offered = [Candidate("to=ada@example.org")]
        assert format_candidates(offered, parse_line(f"antiphon {typed}"), "bash") == [wanted]
    line = parse_line("antiphon unit=f")
    assert format_candidates([Candidate("unit=ft")], line, "bash") == ["ft"]
    assert format_candidates([Candidate("unit=ft")], line, "zsh") == ["unit=ft"]


# Shells


def test_the_scripts_of_all_shells_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_these_scripts()
    for name, value in _home(tmp_path).items():
        monkeypatch.setenv(name, value)
    for shell, file in (
        ("bash", ".bash_completions/antiphon.sh"),
        ("zsh", ".zfunc/_antiphon"),
        ("fish", ".config/fish/completions/antiphon.fish"),
    ):
        done = CliRunner().invoke(app, ["--install-completion", shell], prog_name="antiphon")
        assert done.exit_code == 0, done.output
        script = (tmp_path / file).read_text()
        assert f"_ANTIPHON_COMPLETE=complete_{shell} _ANTIPHON_LINE=" in script
        assert "eval" not in script
        assert "%" not in script.replace("'%s\\n'", "").replace("%%$'", "")


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="bash is not installed")
def test_tab_in_a_real_bash(catalog_url: str, tmp_path: Path) -> None:
    listed = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in HOSTILE]}
    address = {"type": "object", "properties": {"to": {"enum": ["ada@example.org"]}}}
    listed["tools"].append({"name": "send", "inputSchema": address})
    with (
        raw_http_server(responding_with({"tools/list": listed}, tools={})) as hostile,
        bash(tmp_path) as terminal,
    ):
        for typed, inserted, words in (
            (f"call {catalog_url} history li", "nes=", "<lines=>"),
            (f"read {catalog_url} notes://to", "day ", "<notes://today>"),
            (f"prompt {catalog_url} translate language=Ge", "rman ", "<language=German>"),
            (f"call {hostile}/mcp send to=ada@ex", "ample.org ", "<to=ada@example.org>"),
            (f"call {hostile}/mcp y", r"\$\(touch\ pwned\) ", "<y$(touch pwned)>"),
        ):
            terminal.press(f"antiphon {typed}\t")
            terminal.expect(typed + inserted)
            # Back to the start of the line, to print its words in place of running it.
            terminal.press("\x01printf '<%s>' \x05\n")
            terminal.expect(f"{words}$ ")
    assert not (tmp_path / "pwned").exists()


@contextmanager
def bash(folder: Path) -> Iterator[TerminalSession]:
    """Run an interactive bash with the completion of `antiphon` in a wide pseudo-terminal."""
    shown = antiphon("--show-completion", "bash", env=_home(folder))
    (folder / "antiphon.sh").write_text(
        f'antiphon() {{ {" ".join(COMMAND)} "$@"; }}\n{shown.stdout}\n'
        "bind 'set enable-bracketed-paste off'\nPS1='$ '\n"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 500, 0, 0))
    process = subprocess.Popen(
        ["/bin/bash", "--noprofile", "--rcfile", str(folder / "antiphon.sh"), "-i"],
        cwd=folder,
        env=plain_environment(
            {
                "TERM": "xterm",
                "XDG_CACHE_HOME": str(folder / "cache"),
                "ANTIPHON_COMPLETION_TIMEOUT": str(PATIENCE),
            }
        ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        encoding="utf-8",
        start_new_session=True,
    )
    os.close(theirs)
    try:
        terminal = TerminalSession(process, ours)
        terminal.expect("$ ")
        yield terminal
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)


def _asking(line: str, folder: Path) -> dict[str, str]:
    """Return what a script passes to the command."""
    return {
        "_ANTIPHON_COMPLETE": "complete_bash",
        "_ANTIPHON_LINE": line,
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def _home(folder: Path) -> dict[str, str]:
    """Return the variables for an installation in a folder, for a shell that the command line names."""
    return {"HOME": str(folder), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
