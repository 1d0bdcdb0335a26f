"""Between our client and the real engine: the engine measures, the script speaks.

A request is read as the lab reads it, then the engine evaluates its prompt and makes one token of
its own, which nobody hears. Our client gets the scripted model's words, with the usage object that
the engine reported. A refusal of the engine's is passed on as it is.

The engine has three surfaces that our wires speak: Chat Completions, OpenAI's Responses and
Anthropic's Messages, which it turns into the same prompt.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Endpoint

from addendum import encoding
from addendum.lab import (
    anthropic,
    anthropic_answer,
    anthropic_shapes,
    openai_chat,
    openai_responses,
    openai_responses_rules,
    openai_rules,
)
from addendum.lab.engine.server import Engine, EngineUnavailable
from addendum.lab.exchange import Call, Reply, Switches, json_body
from addendum.lab.facts import ChatModel, ClaudeModel
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Script, Spoken, speak
from addendum.lab.server import serve

Json = dict[str, Any]


class Surface(msgspec.Struct, frozen=True):
    """One wire that the engine speaks.

    Attributes:
        path: The path that is posted to, here and at the engine.
        hear: Takes a body apart: the conversation, and the tools offered.
        say: Makes an answer of a request, its body, words and usage.
        refuse: Makes a refusal in the wire's error shape.
    """

    path: str
    hear: Callable[[Json], tuple[Sequence[Heard], Sequence[str]]]
    say: Callable[[Call, Json, Spoken, Json], Reply]
    refuse: Callable[[Refusal], Reply]


class Measured(msgspec.Struct, frozen=True):
    """One request as the engine took it.

    Attributes:
        path: The surface's path.
        body: The body as our client sent it.
        usage: The usage object that the engine reported.
    """

    path: str
    body: bytes
    usage: Mapping[str, Any]


def _hear_chat(body: Json) -> tuple[Sequence[Heard], Sequence[str]]:
    asked = openai_rules.read(body, openai_chat.COMPATIBLE)
    return openai_chat.heard(asked), asked.offered


def _refuse_chat(refusal: Refusal) -> Reply:
    payload = openai_rules.error_body(refusal)
    return Reply(refusal.status, payload=payload, refusal=str(refusal))


_MESSAGES = anthropic.dialect(ClaudeModel(minimum=0), (), "2023-06-01", Switches())


def _hear_messages(body: Json) -> tuple[Sequence[Heard], Sequence[str]]:
    asked = anthropic_shapes.read(body, _MESSAGES)
    return anthropic.heard(asked), [tool["name"] for tool in asked.tools]


def _say_messages(call: Call, body: Json, spoken: Spoken, usage: Json) -> Reply:
    return anthropic_answer.answer(
        model=body["model"],
        blocks=anthropic_answer.content(spoken.text, spoken.calls, call.body),
        usage=usage,
        stop_reason="tool_use" if spoken.calls else "end_turn",
        stream=body.get("stream", False),
        seed=call.body,
    )


_RESPONSES = ChatModel(reasons=False)


def _read_responses(body: Json) -> openai_responses_rules.ResponsesAsked:
    if not isinstance(body.get("model"), str):
        raise Refusal("Missing required parameter: 'model'.", param="model")
    return openai_responses_rules.read(body, _RESPONSES, additional_tools=False)


def _hear_responses(body: Json) -> tuple[Sequence[Heard], Sequence[str]]:
    asked = _read_responses(body)
    return openai_responses.heard(asked), asked.offered


def _say_responses(call: Call, body: Json, spoken: Spoken, usage: Json) -> Reply:
    silent = msgspec.structs.replace(spoken, thinking="")
    items = openai_responses.output(call, _read_responses(body), silent)
    return openai_responses.reply(call, body, items, usage)


CHAT = Surface("/v1/chat/completions", _hear_chat, openai_chat.reply, _refuse_chat)
MESSAGES = Surface("/v1/messages", _hear_messages, _say_messages, anthropic_answer.refusal)
RESPONSES = Surface("/v1/responses", _hear_responses, _say_responses, _refuse_chat)
SURFACES = (CHAT, MESSAGES, RESPONSES)


class Relay:
    """The relay to one engine.

    Attributes:
        url: Its address, empty until it listens.
        measured: Every request that the engine evaluated, in order.
        app: The ASGI application.
    """

    def __init__(self, engine: Engine, script: Script) -> None:
        self.url = ""
        self.measured: list[Measured] = []
        self._engine = engine
        self._script = script
        self.app = Starlette(
            routes=[
                Endpoint(each.path, self._endpoint(each), methods=["POST"]) for each in SURFACES
            ]
        )

    def _endpoint(self, surface: Surface) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            call = Call(dict(request.headers), await request.body(), time.time(), self._script)
            try:
                return await self._answer(surface, call)
            except Refusal as error:
                return _response(surface.refuse(error))
            except EngineUnavailable as error:
                return _response(surface.refuse(Refusal(str(error), status=502, kind="api_error")))

        return endpoint

    async def _answer(self, surface: Surface, call: Call) -> Response:
        body = json_body(call)
        heard, offered = surface.hear(body)
        spoken = speak(call.script, heard, offered)
        status, payload = await self._engine.post(surface.path, question(body))
        if status != 200:
            return Response(payload, status, media_type="application/json")
        usage: Json = encoding.decode(payload)["usage"]
        self.measured.append(Measured(surface.path, call.body, usage))
        return _response(surface.say(call, body, spoken, usage))


def question(body: Json) -> Json:
    """Return what the engine is asked: the same prompt, and one token in answer, at once."""
    asked = {k: v for k, v in body.items() if k not in ("stream_options", "max_completion_tokens")}
    limit = "max_output_tokens" if "input" in body else "max_tokens"
    return {**asked, "stream": False, limit: 1, "temperature": 0}


def _response(reply: Reply) -> Response:
    if reply.events:
        return StreamingResponse(_each(reply.events), media_type="text/event-stream")
    return Response(reply.payload, reply.status, media_type="application/json")


async def _each(events: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for event in events:
        yield event


@asynccontextmanager
async def open_relay(engine: Engine, script: Script) -> AsyncGenerator[Relay]:
    """Serve a relay in this event loop (asyncio) for as long as the context lasts.

    Args:
        engine: Who measures.
        script: Who speaks.
    """
    relay = Relay(engine, script)
    async with serve(relay.app) as relay.url:
        yield relay
