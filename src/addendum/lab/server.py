"""The lab itself: its providers behind real HTTP and SSE on 127.0.0.1, in this event loop.

    async with open_lab(script) as lab:
        ...  # post to lab.base_url("anthropic") + "/v1/messages"
        lab.captures[-1].usage

`Lab.app` is an ASGI application and may be served in another way.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import msgspec
import uvicorn
from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from addendum.checked import AtLeastNone, AtLeastOne, Port, Wait, checks_arguments
from addendum.errors import ConfigurationError
from addendum.lab import facts
from addendum.lab.anthropic import Anthropic
from addendum.lab.anthropic_clouds import BedrockClaude, VertexClaude
from addendum.lab.azure import Azure
from addendum.lab.bedrock import Bedrock
from addendum.lab.deepseek import DeepSeek
from addendum.lab.deepseek_chat import DeepSeekChat
from addendum.lab.definitions import problem
from addendum.lab.exchange import Call, Provider, Reply, Switches, handle, json_body
from addendum.lab.gemini import Gemini
from addendum.lab.openai_chat import Compatible, OpenAIChat
from addendum.lab.openai_responses import OpenAIResponses
from addendum.lab.openai_vendors import Vendor
from addendum.lab.openrouter import OpenRouter
from addendum.lab.refusal import Refusal
from addendum.lab.script import Script

HOST = "127.0.0.1"
GRACE_SECONDS = 5.0
"""How long a closing lab waits for clients to take what is on its way to them."""

_BASES = {
    "anthropic": ("/anthropic", "/v1/messages"),
    "deepseek": ("/deepseek/anthropic", "/v1/messages"),
    "openai": ("/openai/v1", "/responses"),
    "openai-chat": ("/openai/v1", "/chat/completions"),
    "bedrock": ("/bedrock", "/model/{model:path}/{operation}"),
    "gemini": ("/gemini", "/v1beta/models/{operation}"),
    "vertex": ("/vertex/v1beta1", "/publishers/google/models/{operation}"),
    "openrouter": ("/openrouter/v1", "/chat/completions"),
    "azure": ("/azure", "/openai/v1/responses"),
    "azure-chat": ("/azure", "/openai/v1/chat/completions"),
    "vertex-claude": (
        "/vertex-claude/v1/projects/p/locations/l",
        "/publishers/anthropic/models/{operation}",
    ),
    "bedrock-claude": ("/bedrock-claude/anthropic", "/v1/messages"),
    "deepseek-chat": ("/deepseek", "/chat/completions"),
    **{name: (f"/{name}/v1", "/chat/completions") for name in facts.CHAT_VENDORS},
    "compatible": ("/compatible/v1", "/chat/completions"),
}
PROVIDERS = tuple(_BASES)
"""Names of the lab's providers; each plays the routes of that name."""


def base_path(provider: str) -> str:
    """Return the path at which the base URL of a provider ends.

    Raises:
        ConfigurationError: The lab has no such provider.
    """
    if provider not in _BASES:
        raise ConfigurationError(
            f"the lab has no provider {provider[:40]!r}; `addendum lab` lists those that it has"
        )
    return _BASES[provider][0]


_SECRETS = frozenset(
    "authorization proxy-authorization x-api-key api-key x-goog-api-key x-amz-security-token"
    " cookie".split()
)


class Capture(msgspec.Struct, frozen=True):
    """One request as it arrived, and how it was answered.

    Attributes:
        n: Number in order of arrival, from 0.
        provider: Name of the provider.
        path: The path that was posted to.
        headers: Request headers, names in lower case, without secrets.
        body: The body's bytes.
        status: HTTP status of the answer.
        usage: The usage reported, empty for an error.
        time: Time of arrival by the lab's clock, in seconds.
        refusal: Why it was refused, or None.
    """

    n: int
    provider: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    usage: dict[str, Any]
    time: float
    refusal: str | None = None


class Clock:
    """The lab's time in seconds: real time until it is set, then it stands until moved."""

    def __init__(self, start: float | None = None) -> None:
        self._fixed = start

    def now(self) -> float:
        """Return the time."""
        return time.time() if self._fixed is None else self._fixed

    def set(self, seconds: float) -> None:
        """Stop the clock at a time."""
        self._fixed = seconds

    def advance(self, seconds: float) -> None:
        """Stop the clock at `seconds` from now."""
        self._fixed = self.now() + seconds


class _Fault(msgspec.Struct, frozen=True):
    """What goes wrong with one request: a refusal, a cut or a stall after some events."""

    refusal: Refusal | None = None
    retry_after: float | None = None
    body: bytes | None = None
    cut_after: int | None = None
    stall_after: int | None = None


class Lab:
    """The providers, what they were asked, and what goes wrong with them.

    Attributes:
        url: Address of the server, empty until it listens.
        clock: The time that caches go by.
        script: What the model says, or None for the free model; may be replaced.
        switches: What the providers do otherwise; may be replaced.
        captures: Every request, in order of arrival.
        app: The ASGI application.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        clock: Clock | None = None,
        switches: Switches | None = None,
    ) -> None:
        self.url = ""
        self.clock = clock or Clock()
        self.script = script
        self.switches = switches or Switches()
        self.captures: list[Capture] = []
        self._providers: dict[str, Provider] = {
            "anthropic": Anthropic(),
            "deepseek": DeepSeek(),
            "openai": OpenAIResponses(),
            "openai-chat": OpenAIChat(),
            "bedrock": Bedrock(),
            "gemini": Gemini(facts.GEMINI_MINIMUM_TOKENS.value),
            "vertex": Gemini(facts.VERTEX_MINIMUM_TOKENS.value),
            "openrouter": OpenRouter(),
            "azure": Azure(OpenAIResponses()),
            "azure-chat": Azure(OpenAIChat()),
            "vertex-claude": VertexClaude(),
            "bedrock-claude": BedrockClaude(),
            "deepseek-chat": DeepSeekChat(),
            **{name: Vendor(each.value) for name, each in facts.CHAT_VENDORS.items()},
            "compatible": Compatible(),
        }
        self._faults: dict[str, list[_Fault]] = {name: [] for name in self._providers}
        self._released = anyio.Event()
        self._stalling = anyio.Event()
        self._stalled = 0
        routes = [
            Route(base + path, self._endpoint(name), methods=["POST"])
            for name, (base, path) in _BASES.items()
        ]
        self.app = Starlette(routes=[*routes, Route("/", self._index)])

    @checks_arguments
    def base_url(self, provider: str) -> str:
        """Return the base URL that a client of `provider` is given.

        Raises:
            ConfigurationError: The lab has no such provider.
        """
        return self.url + base_path(provider)

    @checks_arguments
    def fail_next(
        self,
        provider: str,
        *,
        status: Annotated[int, Meta(ge=100, le=999)] = 429,
        retry_after: Wait | None = None,
        times: AtLeastOne = 1,
        body: bytes | None = None,
    ) -> None:
        """Answer the next requests to `provider` with an error.

        Args:
            provider: Name of the provider.
            status: HTTP status.
            retry_after: Seconds to state in `retry-after`.
            times: How many requests.
            body: The error's body; by default one in the provider's shape.
        """
        refusal = Refusal(f"the lab was asked to fail with {status}", status=status)
        self._plan(provider, _Fault(refusal=refusal, retry_after=retry_after, body=body), times)

    @checks_arguments
    def cut_next(self, provider: str, *, after_events: AtLeastNone = 2) -> None:
        """Break the connection of the next answer after some of its events."""
        self._plan(provider, _Fault(cut_after=after_events))

    @checks_arguments
    def stall_next(
        self, provider: str, *, after_events: AtLeastNone = 1, times: AtLeastOne = 1
    ) -> None:
        """Hold the next answers to `provider` back until `release`.

        Args:
            provider: Name of the provider.
            after_events: Events that are sent first; 0 holds back the whole answer, before the
                cache has stored anything.
            times: How many answers.
        """
        self._plan(provider, _Fault(stall_after=after_events), times)

    def release(self) -> None:
        """Let every answer go on that is held back now."""
        self._released.set()
        self._released = anyio.Event()

    async def until_stalled(self, count: int = 1) -> None:
        """Wait until `count` answers are held back."""
        while self._stalled < count:
            await self._stalling.wait()

    def _plan(self, provider: str, fault: _Fault, times: int = 1) -> None:
        base_path(provider)  # a wrong name is told
        self._faults[provider] += [fault] * times

    async def _index(self, request: Request) -> Response:
        return JSONResponse({name: base for name, (base, _) in _BASES.items()})

    def _endpoint(self, name: str) -> Callable[[Request], Awaitable[ASGIApp]]:
        async def endpoint(request: Request) -> ASGIApp:
            return await self._answer(name, request, await request.body())

        return endpoint

    async def _answer(self, name: str, request: Request, body: bytes) -> ASGIApp:
        faults = self._faults[name]
        fault = faults.pop(0) if faults else _Fault()
        now = self.clock.now()
        provider = self._providers[name]
        path = request.url.path
        call = Call(dict(request.headers), body, now, self.script, self.switches, path)
        reply = provider.refuse(fault.refusal) if fault.refusal else handle(provider, call)
        if self.switches.strict_definitions and reply.status == 200:
            if said := problem(name, json_body(call)):
                reply = provider.refuse(Refusal(said, code="invalid_function_parameters"))
        self.captures.append(
            Capture(
                n=len(self.captures),
                provider=name,
                path=path,
                headers={k: v for k, v in request.headers.items() if k not in _SECRETS},
                body=body,
                status=reply.status,
                usage=dict(reply.usage),
                time=now,
                refusal=reply.refusal,
            )
        )
        if fault.stall_after == 0:
            await self._hold()
        reply.begin()
        headers = dict(reply.headers)
        if fault.retry_after is not None:
            headers["retry-after"] = f"{fault.retry_after:g}"
        if not reply.events:
            payload = reply.payload if fault.body is None else fault.body
            reply.end()
            return Response(payload, reply.status, headers, "application/json")
        return _Stream(reply, headers, fault, self._hold)

    async def _hold(self) -> None:
        self._stalled += 1
        self._stalling.set()
        self._stalling = anyio.Event()
        try:
            await self._released.wait()
        finally:
            self._stalled -= 1


class _Stream:
    """An answer of server-sent events that may be held back or broken off; an ASGI application."""

    def __init__(
        self, reply: Reply, headers: dict[str, str], fault: _Fault, hold: Callable[[], Any]
    ) -> None:
        self._reply = reply
        self._headers = {"content-type": "text/event-stream; charset=utf-8"} | headers
        self._fault = fault
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; returning before the last chunk makes the server drop the connection."""
        headers = [(k.encode(), v.encode()) for k, v in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        cut = self._fault.cut_after
        for sent, event in enumerate(self._reply.events[:cut]):
            if sent and sent == self._fault.stall_after:
                await self._hold()
            await send({"type": "http.response.body", "body": event, "more_body": True})
        if cut is not None:
            return
        self._reply.end()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@checks_arguments
@asynccontextmanager
async def open_lab(
    script: Script | None = None,
    *,
    clock: Clock | None = None,
    port: Port = 0,
    switches: Switches | None = None,
) -> AsyncGenerator[Lab]:
    """Serve a lab in this event loop (asyncio) for as long as the context lasts.

    Args:
        script: What the model says; without one the free model speaks.
        clock: The time that caches go by; real time by default.
        port: Port on 127.0.0.1; 0 takes a free one.
        switches: What the providers do otherwise.

    Raises:
        ConfigurationError: The port is taken.
    """
    lab = Lab(script, clock=clock, switches=switches)
    async with serve(lab.app, port=port, release=lab.release) as lab.url:
        yield lab


def _nothing() -> None:
    return None


@asynccontextmanager
async def serve(
    app: ASGIApp, *, host: str = HOST, port: int = 0, release: Callable[[], None] = _nothing
) -> AsyncGenerator[str]:
    """Serve an application in this event loop (asyncio); yields its address.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port there; 0 takes a free one.
        release: Called while the server closes: answers that are held back have to go on then.

    Raises:
        ConfigurationError: The port is taken.
    """
    # With the protocol named, asyncio sends at once; else each answer waits 40 ms for an ACK.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, proto=socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port} ({error.strerror}); choose another port"
            ) from error
        # An answer that is cut on purpose is an error to the server, hence the level.
        config = uvicorn.Config(
            _patient(app),
            lifespan="off",
            log_config=None,
            log_level="critical",
            date_header=False,
            timeout_keep_alive=60,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # `Server.serve` would also take over the process's signals and poll ten times a second.
        await server.startup(sockets=[listener])
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            with anyio.CancelScope(shield=True):
                await _close(server, release)


def _patient(app: ASGIApp) -> ASGIApp:
    """Let the event loop notice between two pieces of an answer that its client has gone.

    Else asyncio warns of each further piece, on the terminal of whoever serves.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def piece(message: Message) -> None:
            await send(message)
            await anyio.lowlevel.checkpoint()

        await app(scope, receive, piece)

    return answer


async def _close(server: uvicorn.Server, release: Callable[[], None]) -> None:
    for listening in server.servers:
        listening.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    state = server.server_state
    deadline = anyio.current_time() + GRACE_SECONDS
    while state.connections or state.tasks:
        release()
        if anyio.current_time() > deadline:
            for connection in list(state.connections):
                connection.transport.abort()
        await anyio.sleep(0.001)
