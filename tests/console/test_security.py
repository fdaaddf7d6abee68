"""Who gets into the console, over HTTP: hosts, origins, links, cookies and policies."""

from __future__ import annotations

import aiohttp
import pytest

from antiphon.console.sign_in import COOKIE_SECONDS, LINK_SECONDS, SignIn
from tests.console.support import RunningConsole, serving_console


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_a_link_signs_one_browser_in_once() -> None:
    async with serving_console() as console:
        link = console.link()
        async with browser() as first, browser() as second:
            async with first.get(link) as response:
                assert response.status == 200
            async with first.get(f"{console.url}/api/session") as response:
                assert response.status == 200
            async with second.get(link) as response:
                assert response.status == 401
                assert "not signed in" in await response.text()
            assert not list(second.cookie_jar)


async def test_links_and_sessions_expire_and_an_expired_link_is_printed_anew() -> None:
    now = 1000.0
    sign_in = SignIn(operator="tester", now=lambda: now)
    printed: list[str] = []
    sign_in.on_expired_link = lambda: printed.append(sign_in.create_link())
    late, early = sign_in.create_link(), sign_in.create_link()
    now += LINK_SECONDS - 1
    cookie = sign_in.redeem_link(early)
    assert cookie is not None
    now += 1
    assert sign_in.redeem_link(late) is None
    assert sign_in.redeem_link(late) is None
    assert sign_in.redeem_link("made up") is None
    assert len(printed) == 1
    assert sign_in.redeem_link(printed[0]) is not None
    assert await sign_in.user([cookie], {}) is not None
    now += COOKIE_SECONDS
    assert await sign_in.user([cookie], {}) is None


async def test_a_cookie_of_another_program_signs_nobody_out() -> None:
    async with serving_console() as console, aiohttp.ClientSession() as http:
        async with http.get(console.link(), allow_redirects=False) as response:
            name, _, value = response.headers["set-cookie"].partition(";")[0].partition("=")
        for cookies, status in {
            f"{name}=made-up; {name}={value}": 200,
            f"{name}={value}; {name}=made-up": 200,
            f"{name}=made-up; {name}={value}; __Secure-{name}=x": 401,
            f"__Secure-{name}={value}; {name}=made-up": 200,
            f"{name}=made-up": 401,
        }.items():
            async with http.get(f"{console.url}/api/session", headers={"cookie": cookies}) as response:
                assert response.status == status, cookies


async def test_the_cookie_has_another_secret_than_the_link() -> None:
    async with serving_console() as console, browser() as http:
        link = console.link()
        async with http.get(link, allow_redirects=False) as response:
            assert response.status == 303
            assert response.headers["location"] == "./"
            cookie = response.headers["set-cookie"]
        assert link.partition("token=")[2] not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert response.headers["referrer-policy"] == "no-referrer"


async def test_a_page_that_is_signed_in_makes_links_for_others() -> None:
    async with serving_console() as console:
        found = await console.post("/api/sign-in-links")
        async with browser() as http, http.get(f"{console.url}/{found['path']}") as response:
            assert response.status == 200


async def test_without_the_cookie_the_api_is_closed() -> None:
    async with serving_console() as console, browser() as stranger:
        for path in ("/api/session", "/api/live", "/api/nothing"):
            async with stranger.get(console.url + path) as response:
                assert response.status == 401
        async with stranger.get(f"{console.url}/tasks") as response:
            assert response.status == 401
            assert "script" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost", "127.0.0.1:1", "", "evil.example:80@127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/", "/api/session", "/main.js", "/sign-in?token=x"])
async def test_another_host_is_refused(host: str, path: str) -> None:
    async with (
        serving_console() as console,
        console.http.get(console.url + path, headers={"host": host}, allow_redirects=False) as response,
    ):
        assert response.status == 421


FOREIGN = [
    {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "null"},
    {"sec-fetch-site": "none"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_only_the_own_page_writes(headers: dict[str, str]) -> None:
    async with serving_console() as console:
        for path in ("/api/sign-in-links", "/sign-out", "/sign-in"):
            async with console.http.post(console.url + path, headers=headers) as response:
                assert response.status == 403
        await console.get("/api/session")  # still signed in


async def test_the_own_host_with_another_port_is_another_origin() -> None:
    async with serving_console() as console:
        origin = console.url.rpartition(":")[0]
        async with console.http.post(
            f"{console.url}/api/sign-in-links", headers={"origin": origin}
        ) as response:
            assert response.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_other_pages_read_no_data_and_load_no_scripts(site: str) -> None:
    async with serving_console() as console:
        for path in ("/api/session", "/api/live", "/main.js"):
            async with console.http.get(console.url + path, headers={"sec-fetch-site": site}) as response:
                assert response.status == 403
        async with console.http.get(f"{console.url}/tasks", headers={"sec-fetch-site": site}) as response:
            assert response.status == 200  # a link to a page; the page protects itself


async def test_every_response_has_the_policy() -> None:
    async with serving_console() as console:
        for path in ("/", "/main.js", "/api/session", "/api/live", "/nothing", "/sign-in"):
            async with console.http.get(console.url + path) as response:
                policy = response.headers["content-security-policy"]
                for part in (
                    "default-src 'none'",
                    "script-src 'self'",
                    "require-trusted-types-for 'script'",
                    "trusted-types 'none'",
                    "frame-ancestors 'none'",
                    "base-uri 'self'",
                    "form-action 'self'",
                ):
                    assert part in policy.split("; "), path
                assert "unsafe" not in policy
                assert response.headers["x-content-type-options"] == "nosniff"
                assert response.headers["cross-origin-resource-policy"] == "same-origin"
                assert response.headers["cross-origin-opener-policy"] == "same-origin"
                assert "access-control-allow-origin" not in response.headers


async def test_links_that_nobody_uses_are_bounded() -> None:
    async with serving_console() as console:
        first = console.link()
        for _ in range(16):
            console.link()
        async with browser() as http, http.get(first) as response:
            assert response.status == 401


async def _status(console: RunningConsole, cookie: str) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{console.url}/api/session", headers={"cookie": cookie}) as response,
    ):
        return response.status


async def test_made_up_cookies_are_refused() -> None:
    async with serving_console() as console:
        [cookie] = list(console.http.cookie_jar)
        assert await _status(console, f"{cookie.key}={cookie.value}") == 200
        odd = 'a={"b": 1}; =; c'  # of other programs on the same host
        assert await _status(console, f"{odd}; {cookie.key}={cookie.value}") == 200
        for value in ("", "x", cookie.value[:-1], cookie.value + "x", "é", '"', "a" * 4000):
            assert await _status(console, f"{cookie.key}={value}") == 401
