"""One captured request, ours or not: whose wire it speaks, and the record that is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from addendum.cache.record import Declared, RequestRecord
from addendum.cache.secrets import split
from addendum.errors import AddendumError, ContentError
from addendum.log.values import Definitions, Projection, TailMode, Usage
from addendum.routes import Route, resolve
from addendum.routes.data import providers
from addendum.wire.captured import spoken
from addendum.wire.segment import Json, fields, parse

_ELSEWHERE = ("previous_response_id", "conversation")
"""Fields by which a request goes on from what the provider keeps."""

_NOBODYS = "a-model-that-nobody-has"
_MODEL = re.compile(r"/models?/([^/:]+)[:/]")
_NO_PROMPT = ("/count_tokens", "/batches", "/embeddings", "/moderations")


class Known(Struct, frozen=True, omit_defaults=True):
    """What addendum knows of a request of its own, beside what was sent; as in `RequestRecord`."""

    n: int
    turn: int
    session: str
    route: str
    wire: str
    time_answered: float | None = None
    strategy: Projection = "in-history"
    definitions: Definitions = "by-reference"
    removals: Literal["block", "omit", "text"] = "text"
    tail: TailMode = "kept"
    bound: bool = False
    tail_text: str | None = None
    human: str | None = None
    head: str | None = None
    static_blocks: int = 1
    declared: tuple[Declared, ...] = ()
    purpose: Literal["turn", "compaction"] = "turn"
    status: Literal["answered", "failed"] = "answered"
    caching: bool = True


class Capture(Struct, frozen=True):
    """A request as it was captured.

    Attributes:
        where: File and line, or entry, that it was read from.
        body: The body's bytes.
        url: Address; empty if it was not kept.
        headers: Headers with names in lower case; secrets are not kept.
        usage: What the provider counted.
        time: Seconds since the epoch; None if it was not kept.
        answered: When its answer had ended, likewise.
        status: HTTP status; None if it was not kept.
        session: The conversation, if whoever captured it said so.
        known: What addendum knows of it, for requests of its own.
        plain: What the body decodes to, if it was decoded already.
    """

    where: str
    body: bytes
    url: str = ""
    headers: Mapping[str, str] = {}
    usage: Usage = Usage()
    time: float | None = None
    answered: float | None = None
    status: int | None = None
    session: str | None = None
    known: Known | None = None
    plain: Json | None = None


def asks_model(url: str, body: Any) -> bool:
    """Say whether a request asks a model for an answer, by its address and decoded body."""
    path = split(url).path if url else ""
    if any(part in path for part in _NO_PROMPT):
        return False
    value = fields(body)
    listed = any(isinstance(value.get(name), list) for name in ("messages", "contents"))
    return listed or ("model" in value and isinstance(value.get("input"), list | str))


def wire_of(url: str, headers: Mapping[str, str], body: Json) -> str:
    """Return the name of the wire that a request speaks.

    Args:
        url: Its address, or empty.
        headers: Its headers, names in lower case.
        body: Its decoded body.

    Raises:
        ContentError: It is no request to a model, or its wire is not known here.
    """
    for name in _ELSEWHERE:
        if body.get(name):
            raise ContentError(
                f"its history lies with the provider ({name}); send whole histories to check them"
            )
    found = spoken(split(url).path.rstrip("/") if url else "", headers, body)
    if found is None:
        raise ContentError(
            "it is no request to a model, which has a list `messages`, `input` or `contents`; "
            "capture whole bodies"
        )
    return found


def model_of(url: str, body: Json) -> str:
    """Return the model that a request asks: two wires name it in the address."""
    found = _MODEL.search(split(url).path) if url else None
    return str(body.get("model") or (unquote(found.group(1)) if found else ""))


def route_of(url: str, wire: str, model: str) -> Route | None:
    """Return the route that a request went to, or None if nothing is known of it.

    The host decides where it is a provider's own; else the first provider on this wire that
    knows the model. A gateway does not change how a model caches.
    """
    host = split(url).hostname if url else None
    candidates = [each for each in providers().values() if each.wire == wire]
    candidates.sort(key=lambda each: host != split(each.endpoint.base_url).hostname)
    for provider in candidates:
        own = host is not None and host == split(provider.endpoint.base_url).hostname
        if not own and (provider.endpoint.key_optional or not provider.endpoint.base_url):
            continue  # Anybody's server or deployment: its models can be anything.
        if not own and provider.row(model) is provider.row(_NOBODYS):
            continue  # A gateway serves any name; this one says nothing of how it caches.
        try:
            return resolve(f"{provider.name}:{model}", environ={})
        except AddendumError:
            continue
    return None


def record_of(capture: Capture, n: int, session: str) -> RequestRecord:
    """Return the record of a capture.

    Args:
        capture: The capture.
        n: Its number among all that are checked together.
        session: The conversation it belongs to.

    Raises:
        ContentError: It is no request to a model, or its wire is not known here.
    """
    if capture.known is not None:
        given = {
            name: getattr(capture.known, name)
            for name in Known.__struct_fields__
            if name not in ("n", "session")
        }
        return RequestRecord(
            n=n,
            session=session,
            body=capture.body,
            usage=capture.usage,
            time_sent=capture.time or 0.0,
            **given,
        )
    failed = capture.status is not None and not 0 < capture.status < 400
    body = parse(capture.body) if capture.plain is None else capture.plain
    wire = wire_of(capture.url, capture.headers, body)
    model = model_of(capture.url, body)
    route = route_of(capture.url, wire, model)
    return RequestRecord(
        n=n,
        turn=0,
        session=session,
        route=f"unknown:{model}" if route is None else route.name,
        wire=wire,
        body=capture.body,
        usage=capture.usage,
        time_sent=capture.time or 0.0,
        time_answered=None if capture.time is None else capture.answered,
        status="failed" if failed else "answered",
        # How it tells changes is not known: what was declared once may be named for ever.
        strategy="rebind",
    )


def known_of(record: RequestRecord) -> Known:
    """Return what is written beside a request of our own when it is exported."""
    return Known(**{name: getattr(record, name) for name in Known.__struct_fields__})


def read_known(value: Any) -> Known:
    """Read what `known_of` gave, from decoded JSON.

    Raises:
        ContentError: It is something else.
    """
    try:
        return msgspec.convert(value, Known, strict=True)
    except msgspec.ValidationError as error:
        raise ContentError(f"`addendum` is not what an export writes ({error})") from error
