"""Which way a request takes, and what is said of a proxy that cannot be used.

Reports: Aider-AI/aider#3048, omnigent-ai/omnigent#4245, fuergaosi233/claude-code-proxy#5,
langfuse/claude-observability-plugin#75.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import pytest

from addendum import Agent, net
from addendum.errors import ConfigurationError, StreamBroken
from addendum.lab.server import open_lab
from addendum.wire.transport import Transport, TransportSettings, WireRequest

pytestmark = pytest.mark.anyio

PROXY = "http://proxy.example:3128"
UNUSABLE = [
    "socks5://127.0.0.1:9",
    "socks5h://127.0.0.1:9",
    "socks://127.0.0.1:9",
    "socks4://127.0.0.1:9",
    "ftp://127.0.0.1:9",
    "notaurl:::",
    "http://[::1",
    "http://host:port",
    "http://host:99999999",
    "://",
    "http://",
]
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def way(address: str, **proxies: str) -> str | None:
    found = net.proxy_for(httpx2.URL(address), proxies)
    return None if found is None else found.url


@pytest.mark.parametrize(
    ("address", "proxies", "expected"),
    [
        ("https://a.example/", {}, None),
        ("https://a.example/", {"https": PROXY}, PROXY),
        ("http://a.example/", {"https": PROXY}, None),
        ("http://a.example/", {"http": PROXY}, PROXY),
        ("https://a.example/", {"all": PROXY}, PROXY),
        ("http://a.example/", {"all": PROXY}, PROXY),
        ("https://a.example/", {"all": "http://other", "https": PROXY}, PROXY),
        ("https://a.example/", {"https": "proxy.example:3128"}, PROXY),
        ("https://a.example/", {"https": f" {PROXY} "}, PROXY),
        ("https://a.example/", {"https": "", "all": PROXY}, PROXY),
        ("https://a.example/", {"https": "  "}, None),
    ],
)
def test_the_proxy_for_an_address(
    address: str, proxies: dict[str, str], expected: str | None
) -> None:
    assert way(address, **proxies) == expected


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9:8080",
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "api.localhost",
        "[::1]",
        "[::1]:9",
        "[::ffff:127.0.0.1]",
        "0.0.0.0:80",
        "[::]",
    ],
)
def test_this_machine_is_never_reached_through_a_proxy(host: str) -> None:
    for scheme in ("http", "https"):
        assert way(f"{scheme}://{host}/v1", http=PROXY, https=PROXY, all=PROXY) is None


@pytest.mark.parametrize(
    ("rules", "direct", "through"),
    [
        ("*", ["https://a.example", "http://10.0.0.1"], []),
        ("a.example", ["https://a.example", "https://b.a.example", "https://A.EXAMPLE."], ["https://xa.example"]),
        (".a.example", ["https://b.a.example", "https://a.example"], ["https://ba.example"]),
        ("*.a.example", ["https://b.a.example"], ["https://ba.example"]),
        ("b.example, a.example", ["https://a.example", "https://b.example"], ["https://c.example"]),
        ("b.example a.example", ["https://a.example", "https://b.example"], ["https://c.example"]),
        ("A.Example", ["https://a.example"], []),
        ("a.example:8443", ["https://a.example:8443"], ["https://a.example", "http://a.example"]),
        ("a.example:443", ["https://a.example", "https://a.example:443"], ["http://a.example"]),
        ("https://a.example", ["https://a.example"], ["https://c.example"]),
        ("10.0.0.1", ["http://10.0.0.1", "https://10.0.0.1:8"], ["http://10.0.0.2"]),
        ("10.0.0.0/8", ["http://10.1.2.3"], ["http://11.0.0.1", "http://a.example"]),
        ("10.0.0.1:80", ["http://10.0.0.1"], ["https://10.0.0.1"]),
        ("fe80::/10", ["http://[fe80::1]"], ["http://[2001:db8::1]"]),
        ("2001:db8::1", ["http://[2001:db8::1]", "http://[2001:db8:0:0::1]"], ["http://[2001:db8::2]"]),
        ("[2001:db8::1]", ["http://[2001:db8::1]"], ["http://[2001:db8::2]"]),
        ("[2001:db8::1]:80", ["http://[2001:db8::1]"], ["https://[2001:db8::1]"]),
        ("0.0.1", [], ["http://10.0.0.1"]),
        (",, ,", [], ["https://a.example"]),
        ("/8, :, [, *.", [], ["https://a.example", "http://10.0.0.1"]),
    ],
)  # fmt: skip
def test_what_is_reached_without_a_proxy(rules: str, direct: list[str], through: list[str]) -> None:
    proxies = {"all": PROXY, "no": rules}
    assert [each for each in direct if way(each, **proxies) is not None] == []
    assert [each for each in through if way(each, **proxies) is None] == []


# -- through a real socket ----------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\ndata: {}\n"


@contextlib.asynccontextmanager
async def listening(heads: list[bytes]) -> AsyncGenerator[str]:
    """A server that notes the first line of each request and answers with one event."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            heads.append(head.partition(b"\r\n")[0])
            await stream.send(OK)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def posted(address: str) -> bytes:
    async with Transport(TransportSettings(retries=0)) as transport:
        async with transport.stream(WireRequest(address, (), b"{}")) as reply:
            return b"".join([event.data async for event in reply.events])


async def test_a_request_goes_through_the_proxy_and_not_to_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads: list[bytes] = []
    async with listening(heads) as proxy, listening(heads) as here:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert await posted("http://provider.example/v1") == b"{}"
        assert await posted(f"{here}/v1") == b"{}"
    assert heads == [b"POST http://provider.example/v1 HTTP/1.1", b"POST /v1 HTTP/1.1"]


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("value", UNUSABLE)
async def test_a_proxy_that_cannot_be_used_is_one_line_that_says_what_to_do(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        await posted("https://provider.example/v1")
    line = str(caught.value)
    assert line.startswith(f"{name}=") and "unset it" in line and "\n" not in line
    assert ("pip install socksio" in line) is value.startswith("socks5")
    # Nothing of it for this machine.
    async with listening([]) as here:
        assert await posted(here) == b"{}"


async def test_a_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret-0123@127.0.0.1:9")
    with pytest.raises(StreamBroken, match=r"through HTTP_PROXY=http://127.0.0.1:9:") as caught:
        await posted("http://provider.example/v1")
    assert "secret" not in str(caught.value)


async def test_no_password_of_a_proxy_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:secret-0123@proxy.example:1080")
    with pytest.raises(ConfigurationError) as caught:
        await posted("https://provider.example/v1")
    assert "ALL_PROXY=socks5://proxy.example:1080" in str(caught.value)
    assert "secret" not in repr(caught.value)


@pytest.mark.parametrize("value", UNUSABLE)
async def test_a_session_in_the_lab_does_not_notice_it(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES[:3]:
        monkeypatch.setenv(name, value)
    async with open_lab() as lab, Transport(TransportSettings(retries=0)) as transport:
        url = lab.base_url("anthropic")
        agent = Agent("anthropic:claude-opus-5-5", base_url=url, transport=transport)
        async with agent.open("s", store="memory://") as session:
            assert (await session.run("hello")).text.startswith("I heard")


async def test_a_session_with_the_world_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-0000")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    agent = Agent("anthropic:claude-opus-5-5", base_url="http://provider.example")
    async with agent.open("s", store="memory://") as session:
        with pytest.raises(ConfigurationError, match=r"^ALL_PROXY=socks5://127.0.0.1:9 is a SOCKS"):
            await session.run("hello")
