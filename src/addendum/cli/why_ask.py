"""Asks an endpoint itself why a prefix was not reused, where it offers such diagnostics.

Both requests of a miss are sent again, the earlier one first, with the shortest answer that the
endpoint gives; so it costs what their prompts cost. Claude and OpenAI's Responses compare what was
asked, so their word can be set beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
from msgspec import Struct

from addendum import encoding, net
from addendum.agent.replay import Replayed
from addendum.cache.explain import Explanation
from addendum.errors import ProviderRefused
from addendum.routes import Route, credentials, resolve
from addendum.wire.segment import Json, fields, parse

_BETA = "cache-diagnosis-2026-04-07"
_WAIT = httpx2.Timeout(300.0, connect=30.0)


class Told(Struct, frozen=True):
    """An endpoint's word for a miss.

    Attributes:
        n: Number of the request.
        word: Its reason; None where it found no divergence, or was not done comparing.
        agrees: Whether that is the word that we expected.
    """

    n: int
    word: str | None
    agrees: bool


def offers(route: Route) -> bool:
    """Say whether a route's endpoint can be asked."""
    if route.provider == "anthropic":
        return True
    return route.provider == "openai" and route.cache.kind == "boundaries"


async def ask(
    misses: Sequence[Explanation], requests: Sequence[Replayed], base_url: str | None
) -> tuple[Told, ...]:
    """Ask endpoints about misses.

    Args:
        misses: The misses; those on routes that cannot be asked are left out.
        requests: All requests of the session, rendered again.
        base_url: Another address than the route's own.

    Raises:
        ProviderRefused: An endpoint refused a request.
        MissingCredentials: There is no key for it.
    """
    by_number = {each.record.n: each for each in requests}
    answers: list[Told] = []
    async with net.client(timeout=_WAIT) as client:
        for miss in misses:
            route = resolve(miss.route, base_url=base_url)
            if miss.base is None or not offers(route):
                continue
            claude = route.provider == "anthropic"
            first = await _sent(client, route, by_number[miss.base], None)
            second = await _sent(client, route, by_number[miss.n], str(first.get("id")))
            word = _claude(second) if claude else _openai(second)
            ours = miss.anthropic if claude else miss.openai
            answers.append(Told(miss.n, word, word == _comparable(ours)))
    return tuple(answers)


def _comparable(word: str | None) -> str | None:
    # A comparison of two requests sees neither time nor what a provider lost, and a summary that
    # was made here is one more changed input.
    if word == "context_compacted":
        return "input_changed"
    return None if word in ("previous_message_not_found", "unavailable") else word


async def _sent(
    client: httpx2.AsyncClient, route: Route, request: Replayed, before: str | None
) -> Json:
    body = {name: each for name, each in parse(request.record.body).items() if name != "stream"}
    flags = list(request.betas)
    if route.provider == "anthropic":
        body |= {"max_tokens": 1, "diagnostics": {"previous_message_id": before}}
        flags.append(_BETA)
    else:
        options = dict(fields(body.get("prompt_cache_options")))
        if before is not None:
            options["comparison_response_id"] = before
        body |= {"max_output_tokens": 16, **({"prompt_cache_options": options} if options else {})}
        body.pop("stream_options", None)
    data = encoding.encode(body)
    headers = {"content-type": "application/json", **dict(route.endpoint.headers)}
    if flags:
        headers["anthropic-beta"] = ",".join(sorted(set(flags)))
    headers |= {name: secret.reveal() for name, secret in credentials(route, body=data)}
    try:
        answer = await client.post(route.url, content=data, headers=headers)
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise ProviderRefused(f"{route.name} cannot be reached: {reason}") from error
    if answer.status_code != 200:
        text = " ".join(answer.text.split())[:200]
        raise ProviderRefused(f"{route.name} refused to be asked ({answer.status_code}): {text}")
    return fields(encoding.decode(answer.content))


def _claude(answer: Json) -> str | None:
    reason: Any = fields(fields(answer.get("diagnostics")).get("cache_miss_reason")).get("type")
    return reason if isinstance(reason, str) else None


def _openai(answer: Json) -> str | None:
    said = fields(answer.get("prompt_cache_diagnostics"))
    word: Any = said.get("reason") if said.get("type") == "cache_miss" else said.get("type")
    return word if isinstance(word, str) and word != "cache_hit" else None
