"""What stands in front of the pages: foreign hosts, foreign pages, changes without a token."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.viewer.staged import BASE, Stage, long_log, stage, stored

from addendum.stores import MemoryStore
from addendum.viewer.app import build
from addendum.viewer.safety import MAX_BODY, POLICY, is_loopback

pytestmark = pytest.mark.anyio
SECRET = "a-secret-of-some-length"


@asynccontextmanager
async def elsewhere(
    staged: Stage, host: str, access: str | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    """The same house on another address."""
    transport = httpx2.ASGITransport(app=build(staged.house, host=host, access=access))
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        yield client


async def test_a_host_that_is_not_ours_is_refused() -> None:
    async with stage() as staged:
        for host in (
            "evil.example",
            "evil.example:8420",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "evil.example#localhost",
            "192.168.1.7",
            "",
            "[::1",
            "localhost:http",
        ):
            answer = await staged.client.get("/", headers={"host": host})
            assert answer.status_code == 421, host
            assert "addendum-token" not in answer.text
        for host in ("localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST"):
            assert (await staged.client.get("/", headers={"host": host})).status_code == 200, host


async def test_a_foreign_page_changes_nothing_and_reads_nothing() -> None:
    async with stage() as staged:
        good = {"x-addendum-token": staged.guard.token, "content-type": "application/json"}
        for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"):
            answer = await staged.client.post(
                "/new", content="{}", headers={**good, "origin": origin}
            )
            assert answer.status_code == 403, origin
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "empty"}
        assert (await staged.client.get("/sessions", headers=headers)).status_code == 403
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}
        assert (await staged.client.get("/", headers=headers)).status_code == 403
        # A link from elsewhere may lead here.
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
        assert (await staged.client.get("/", headers=headers)).status_code == 200
        own = {**good, "origin": BASE}
        answer = await staged.client.post("/new", content="{}", headers=own)
        assert answer.status_code == 409 and "empty" in answer.json()["error"]


async def test_a_change_needs_the_token_of_a_page_and_json() -> None:
    async with stage() as staged:
        token = staged.guard.token
        for headers, code in (
            ({"content-type": "application/json"}, 403),
            ({"content-type": "application/json", "x-addendum-token": "x" * len(token)}, 403),
            ({"content-type": "text/plain", "x-addendum-token": token}, 415),
            ({"x-addendum-token": token}, 415),
        ):
            answer = await staged.client.post("/new", content='{"text": "hi"}', headers=headers)
            assert answer.status_code == code
        for method in ("PUT", "DELETE", "PATCH"):
            assert (await staged.client.request(method, "/new")).status_code == 403
        assert await staged.house.store.sessions() == []
        page = (await staged.client.get("/")).text
        assert f'content="{token}"' in page


async def test_no_page_may_load_or_run_anything_of_others() -> None:
    async with stage() as staged:
        url = await staged.begin()
        for path in ("/", url, f"{url}/trajectory", "/nothing", "/static/page.js"):
            answer = await staged.client.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy == POLICY and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            html = answer.text
            if "text/html" in answer.headers["content-type"]:
                assert " style=" not in html and "<style" not in html
                assert html.count("<script") == 1 and "onclick" not in html


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with stage() as staged:
        headers = {"x-addendum-token": staged.guard.token, "content-type": "application/json"}
        large = b'{"text": "' + b"x" * MAX_BODY + b'"}'
        answer = await staged.client.post("/new", content=large, headers=headers)
        assert answer.status_code == 413

        async def endless() -> AsyncGenerator[bytes]:
            for _ in range(MAX_BODY // 65_536 + 2):
                yield b"x" * 65_536

        # Its header says nothing of its size.
        answer = await staged.client.post("/new", content=endless(), headers=headers)
        assert answer.status_code == 413
        for length in ("-1", "x", "9" * 40):
            answer = await staged.client.get("/", headers={"content-length": length})
            assert answer.status_code == 413
        assert (await staged.client.get("/")).status_code == 200


async def test_paths_lead_nowhere_else() -> None:
    async with stage() as staged:
        for path in (
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static/..%2f..%2fapp.py",
            "/static//etc/passwd",
            "/static/%00",
            "/s/..%2f..%2fetc",
            "/s/%00/trajectory",
            "/s/" + "x" * 3000,
            "/s/nobody/event/99999999999999999999",
            "/s/nobody/requests/1/segment?path=../../etc",
            "/s/nobody/event/" + "9" * 5000,
            "/s/nobody/requests/" + "9" * 5000,
            "/s/nobody/diff/1/x",
        ):
            answer = await staged.client.get(path)
            assert answer.status_code in (400, 404), (path, answer.status_code)
            assert "root:" not in answer.text and "def " not in answer.text


async def test_other_machines_need_the_secret_once() -> None:
    async with stage() as staged, elsewhere(staged, "0.0.0.0", SECRET) as client:
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/static/style.css")).status_code == 401
        assert (await client.get("/?access=wrong")).status_code == 401
        answer = await client.get(f"//evil.example/?access={SECRET}", follow_redirects=False)
        assert not answer.headers.get("location", "/").startswith("//")
        client.cookies.clear()
        answer = await client.get(f"/?access={SECRET}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert SECRET not in cookie and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
        assert (await client.get("/")).status_code == 200
        # It stays in no address, so no link of a page carries it on.
        answer = await client.get(f"/sessions?access={SECRET}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sessions")


async def test_an_address_may_stand_for_any_host_but_a_name_may_not() -> None:
    async with stage() as staged, elsewhere(staged, "0.0.0.0", SECRET) as client:
        await client.get(f"/?access={SECRET}")
        for host, code in (("192.168.1.7:8420", 200), ("evil.example", 421), ("[fe80::1]", 200)):
            answer = await client.get("/", headers={"host": host, "cookie": _cookie(client)})
            assert answer.status_code == code, host


def _cookie(client: httpx2.AsyncClient) -> str:
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.4.5.6", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("evil.example", False),
    ],
)
def test_what_is_reached_from_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


async def test_numbers_beyond_a_session_lead_to_its_end() -> None:
    store = MemoryStore()
    await stored(store, long_log(3))
    async with stage(store=store) as staged:
        for query in ("after", "before", "at", "request"):
            for value in ("0", "99999999999", "9" * 40, "x", "-1"):
                for page in ("trajectory", "rows", "turns"):
                    answer = await staged.client.get(f"/s/long/{page}?{query}={value}")
                    assert answer.status_code in (200, 404), (page, query, value)


async def test_what_is_wrong_is_told_in_few_words() -> None:
    async with stage() as staged:
        told = await staged.post("/new", {"text": "x", "route": "r" * 100_000}, 409)
        assert len(told["error"]) <= 2_000


async def test_a_socket_is_closed_before_anything_hears_of_it() -> None:
    async with stage() as staged:
        said: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("nothing is read from it")

        async def send(message: Any) -> None:
            said.append(message)

        for path in ("/", "/static/page.js", "/s/x/events"):
            scope = {"type": "websocket", "path": path, "headers": [], "query_string": b""}
            await staged.guard(scope, receive, send)
        assert said == [{"type": "websocket.close"}] * 3
