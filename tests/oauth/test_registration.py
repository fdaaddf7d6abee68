"""Clients that register themselves: refused ones, and ones that the issuer has deleted since."""

from __future__ import annotations

import msgspec
import pytest

from antiphon import AuthorizationFailed, Client, MemoryLogins, OAuth, Unauthorized
from antiphon.client.oauth.logins import Login
from tests.oauth.hostile import Hostile
from tests.oauth.notes import Robot, log_in, serving_notes
from tests.support.authorization_server import AuthorizationServer


def only(store: MemoryLogins) -> Login:
    (login,) = store.all()
    return login


async def log_in_in_vain(hostile: Hostile, store: MemoryLogins, **options: object) -> None:
    """Log in at a server that refuses every token."""
    with pytest.raises(Unauthorized):
        await hostile.connect(store=store, relogin=True, **options)


async def test_a_refused_registration_says_what_to_pass(hostile: Hostile) -> None:
    hostile.registration = {"error": "access_denied", "error_description": "\x1b[2Jno"}
    with pytest.raises(AuthorizationFailed, match=r"access_denied.*by hand.*--client-id") as raised:
        await hostile.connect()
    assert "\x1b" not in str(raised.value)
    del hostile.issuer["registration_endpoint"]
    with pytest.raises(AuthorizationFailed, match=r"lets no client register itself.*--client-id"):
        await hostile.connect()
    assert not hostile.pages


async def test_a_client_that_the_token_endpoint_does_not_know_is_registered_again_once(
    hostile: Hostile,
) -> None:
    store = MemoryLogins()
    await log_in_in_vain(hostile, store)
    hostile.deleted_clients = {"client-1"}
    await log_in_in_vain(hostile, store)
    assert only(store).client.client_id == "client-2"
    hostile.deleted_clients = {"client-2", "client-3"}
    with pytest.raises(AuthorizationFailed, match="invalid_client"):
        await hostile.connect(store=store, relogin=True)
    assert hostile.requests.count("/register") == 3


@pytest.mark.parametrize("error", ["invalid_client", "unauthorized_client"])
async def test_a_client_that_the_page_of_the_login_refuses_is_registered_again(
    hostile: Hostile, error: str
) -> None:
    store = MemoryLogins()
    await log_in_in_vain(hostile, store)

    async def refuse_the_first(page: str) -> str:
        came_back = await hostile.approve(page)
        return came_back.replace("code=c", f"error={error}") if "client_id=client-1&" in page else came_back

    await log_in_in_vain(hostile, store, open_browser=refuse_the_first)
    assert only(store).client.client_id == "client-2"


async def test_a_person_who_refuses_is_not_asked_again(hostile: Hostile) -> None:
    store = MemoryLogins()
    await log_in_in_vain(hostile, store)
    hostile.is_refused = True
    with pytest.raises(AuthorizationFailed, match="access_denied"):
        await hostile.connect(store=store, relogin=True)
    assert (len(hostile.pages), hostile.requests.count("/register")) == (2, 1)


async def test_an_old_registration_that_a_real_issuer_has_deleted_is_replaced_before_the_browser_opens(
    oidc: AuthorizationServer,
) -> None:
    store, robot = MemoryLogins(), Robot()
    async with serving_notes(oidc) as url:
        await log_in(url, store)
        login = only(store)
        # oidc-provider shows an unknown client to the person only: no address leads back to the program.
        deleted = msgspec.structs.replace(login.client, client_id="deleted")
        store.remove(login)
        store.save(msgspec.structs.replace(login, client=deleted, obtained_at=0.0))
        auth = OAuth(store=store, open_browser=robot, relogin=True)
        async with Client(url, auth=auth) as client:
            assert "#ada" in (await client.call("whoami")).text
        assert len(robot.visits) == 1
        known = only(store)
        assert known.client.client_id not in ("deleted", login.client.client_id)
        # A client that the issuer still knows is used again, however old its registration is.
        store.save(msgspec.structs.replace(known, obtained_at=0.0))
        async with Client(url, auth=auth):
            pass
        assert only(store).client == known.client
