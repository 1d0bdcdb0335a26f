"""One argument more in a client that is there already."""

from __future__ import annotations

import anthropic
import httpx2
import openai

import addendum


def one_argument() -> tuple[anthropic.Anthropic, openai.OpenAI, openai.AsyncOpenAI]:
    """Return the vendors' own clients, whose conversations keep their cache."""
    claude = anthropic.Anthropic(http_client=addendum.http_client())
    chat = openai.OpenAI(http_client=addendum.http_client())
    later = openai.AsyncOpenAI(http_client=addendum.async_http_client())
    return claude, chat, later


def lasting(path: str) -> anthropic.Anthropic:
    """Return a client whose next process goes on with the same bytes."""
    client = addendum.http_client(store=f"sqlite:///{path}")
    return anthropic.Anthropic(http_client=client)


def own_transport() -> httpx2.Client:
    """Return a client with a transport of your own, of httpx2 or httpx."""
    inner = httpx2.HTTPTransport(retries=2)
    return httpx2.Client(transport=addendum.AddendumTransport(inner))


def any_client(url: str, headers: dict[str, str], body: bytes) -> bytes:
    """Carry one request by whatever sends bytes; here it is httpx2."""
    core = addendum.Gateway(store=None)
    exchange = core.begin(url, headers, body)
    if exchange is None:
        return httpx2.post(url, headers=headers, content=body).content
    sent = exchange.body
    while True:
        answer = httpx2.post(url, headers=headers | exchange.headers, content=sent)
        exchange.start(answer.status_code, answer.headers.get("content-type", ""))
        read = exchange.feed(answer.content) + exchange.end()
        if exchange.again is None:
            return read
        sent = exchange.again
