"""What `antiphon login`, `logout` and `logins` do. Tokens are stored and revoked, and never printed."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from antiphon.cli.command_words import is_command
from antiphon.cli.exit_codes import FAILED, CommandError, print_error
from antiphon.cli.targets import is_url, run_async
from antiphon.client import Client
from antiphon.client.oauth.browser import OpenBrowser, has_terminal
from antiphon.client.oauth.logins import FileLogins, Login
from antiphon.client.oauth.oauth import OAuth
from antiphon.client.oauth.token_requests import revoke
from antiphon.errors import AuthorizationFailed
from antiphon.printable import printable, redacted_url
from antiphon.transport.client.http_client import http_client

__all__ = ["LoginOptions", "list_logins", "log_in", "log_out"]


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """The options of `antiphon login`."""

    device: bool
    paste: bool
    client_id: str | None
    client_secret: str | None
    client_metadata_url: str | None
    scopes: tuple[str, ...]
    issuer: str | None
    port: int
    timeout: float


def log_in(url: str, options: LoginOptions) -> None:
    """Log a person in at a server, and store the login. Raises `CommandError`."""
    _check(url)
    if options.device and options.paste:
        raise CommandError("--device and --paste exclude each other. Use one of them.")
    if options.client_secret is not None and options.issuer is None:
        raise CommandError(
            "ANTIPHON_CLIENT_SECRET is set: say which authorization server the secret belongs to, with "
            "--issuer URL."
        )
    if not (options.device or options.paste or has_terminal()):
        raise CommandError("There is no terminal to open a browser from. Use --device or --paste.")
    store = FileLogins()
    browse: OpenBrowser | None = _paste if options.paste else None
    try:
        auth = OAuth(
            client_id=options.client_id,
            client_secret=options.client_secret,
            client_metadata_url=options.client_metadata_url,
            scopes=options.scopes,
            issuer=options.issuer,
            store=store,
            open_browser=browse,
            show_code=_show_code if options.device else None,
            redirect_port=options.port,
            login_timeout=options.timeout,
            relogin=True,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None
    begun = time.time()
    run_async(_connect(url, auth))
    login = store.find(url, client_id=options.client_id)
    if login is None or login.obtained_at < begun:
        print(f"{redacted_url(url)} does not ask for a login.")
        return
    scopes = f" with the scopes {printable(' '.join(login.scopes))}" if login.scopes else ""
    print(f"Logged in at {redacted_url(url)}{scopes}.")


async def _connect(url: str, auth: OAuth) -> None:
    async with Client(url, auth=auth) as client:
        await client.tools()  # some servers let everybody connect, and ask for a login only now


def log_out(url: str) -> None:
    """Revoke and remove all logins at a server. Raises `CommandError`."""
    _check(url)
    store = FileLogins()
    if not _logins_at(url, store):
        raise CommandError(f"There is no login at {redacted_url(url)}. To list them: antiphon logins", FAILED)
    run_async(_log_out(url, store))


def _logins_at(url: str, store: FileLogins) -> list[Login]:
    return [login for login in store.all() if login.url == url]


async def _log_out(url: str, store: FileLogins) -> None:
    # A program that refreshes the login now would store it again.
    async with store.locked(url):
        for login in _logins_at(url, store):
            is_revoked = await _revoke(login)
            store.remove(login)
            done = (
                "The issuer has ended it." if is_revoked else "Its tokens are removed from this machine only."
            )
            print(f"Removed the login at {redacted_url(url)}. {done}")


async def _revoke(login: Login) -> bool:
    requests = OAuth(interactive=False).requests(login.url, http_client)
    try:
        return await revoke(requests, login)
    except AuthorizationFailed as error:
        print_error(f"The tokens were not revoked, and stay valid until they expire. {error}")
        return False


def list_logins(*, as_json: bool) -> None:
    """Print the logins, without their tokens."""
    logins = sorted(FileLogins().all(), key=lambda login: login.url)
    if as_json:
        print(json.dumps([_summary(login) for login in logins], indent=2))
        return
    if not logins:
        print("You are not logged in anywhere. To log in: antiphon login URL")
    for login in logins:
        state = "is refreshed when needed" if login.refresh_token else _expiry(login)
        scopes = printable(" ".join(login.scopes)) or "unknown"
        print(f"{redacted_url(login.url)}: issuer {printable(login.issuer)}, scopes {scopes}; {state}")


def _summary(login: Login) -> dict[str, object]:
    return {
        "url": redacted_url(login.url),
        "issuer": login.issuer,
        "client_id": login.client.client_id,
        "scopes": list(login.scopes),
        "expires_at": login.expires_at,
        "can_refresh": login.refresh_token is not None,
    }


def _expiry(login: Login) -> str:
    if login.expires_at is None:
        return "expires at an unknown time"
    try:
        when = datetime.fromtimestamp(login.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "expires at an unknown time"
    return f"{'expired' if login.expires_within(0) else 'expires'} at {when}"


def _check(url: str) -> None:
    if is_command(url):
        raise CommandError(
            "Only servers over HTTP have logins. To pass a secret to a command, use --env: "
            "antiphon tools --env TOKEN -- command"
        )
    if not is_url(url):
        raise CommandError(
            f"{redacted_url(url)!r} is not a URL (http://…): only servers over HTTP have logins."
        )


def _show_code(page: str, code: str) -> None:
    print(f"Open this page on any device:\n{page}\nand type the code: {code}", file=sys.stderr, flush=True)


async def _paste(url: str) -> str:
    """Show the page, and return the address that the person pastes; raises `AuthorizationFailed`."""
    print(
        f"Open this page in any browser, and log in:\n{url}\n"
        "At the end the browser shows an address that begins with http://127.0.0.1, and perhaps an error.\n"
        "Paste that address here: ",
        file=sys.stderr,
        flush=True,
    )
    loop = asyncio.get_running_loop()
    pasted: asyncio.Future[str] = loop.create_future()

    def finish(line: str) -> None:
        if not pasted.done():
            pasted.set_result(line)

    def read() -> None:
        line = sys.stdin.readline()
        loop.call_soon_threadsafe(finish, line)

    # A thread that reads cannot be stopped; the process does not wait for this one.
    threading.Thread(target=read, daemon=True).start()
    line = await pasted
    if not line.strip():
        raise AuthorizationFailed("No address was pasted. Run the command again.")
    return line.strip()
