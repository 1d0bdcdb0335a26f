"""Bedrock Converse on loopback: Claude with its cache and signed reasoning, Nova, and others.

What a Claude model checks and stores is that of `addendum.lab.anthropic`, by the rules that AWS
states where they differ: each block is a position of the lookback, minimums are AWS's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from addendum import encoding
from addendum.lab import anthropic_thinking, facts
from addendum.lab.anthropic_cache import PrefixCache, Priced
from addendum.lab.anthropic_render import Block
from addendum.lab.aws_frames import frame
from addendum.lab.bedrock_rules import ConverseAsked, Json, read
from addendum.lab.exchange import Call, Reply, json_body, pieces
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Spoken, speak
from addendum.lab.tokens import Segment, segment

_TEXT_PIECE = 24
_JSON_PIECE = 16
_TYPES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


class Bedrock:
    """Amazon Bedrock's Converse API."""

    def __init__(self) -> None:
        self._cache = PrefixCache()

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        kind = _TYPES.get(refusal.status, "ValidationException")
        return Reply(
            refusal.status,
            payload=encoding.encode({"message": str(refusal)}),
            refusal=str(refusal),
            headers={"x-amzn-errortype": kind},
        )

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        known = facts.bedrock_model(model)
        return _caches(known) if known.caches else None

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        key = _credential(call)
        name, streams = _asked_for(call.path)
        model = facts.bedrock_model(name)
        asked = read(json_body(call), model)
        thoughts = None
        if model.claude is not None:
            thoughts = anthropic_thinking.judge(asked.claude, model.name, model.claude)
        blocks = _blocks(asked, None if thoughts is None else thoughts.read)
        extra: Json = asked.body.get("additionalModelRequestFields", {})
        scope = encoding.canonical([key, name])
        settings = encoding.canonical([extra, asked.body.get("toolConfig", {}).get("toolChoice")])
        priced, writes = self._cache.price(
            blocks,
            keys={"tools": scope, "messages": settings},
            facts=_caches(model),
            now=call.now,
        )
        spoken = speak(call.script, heard(asked), asked.offered)
        content = _content(spoken, call.body)
        reasoning = 0
        if thoughts is not None and spoken.thinking and _thinks(model, asked):
            seal = anthropic_thinking.Seal(
                model.name, spoken.thinking, _omits(model), thoughts.prefix, thoughts.last
            )
            shown = "" if seal.omitted else seal.text
            said = {"text": shown, "signature": anthropic_thinking.sign(seal)}
            content.insert(0, {"reasoningContent": {"reasoningText": said}})
            reasoning = seal.read.tokens
        usage = _usage(priced, content, reasoning, model)
        reply = _reply(content, usage, streams)
        return replace(reply, begin=lambda: self._cache.store(writes, call.now))


def _caches(model: facts.BedrockModel) -> facts.CacheFacts:
    lifetimes = facts.CLAUDE_LIFETIME_SECONDS.value
    return facts.CacheFacts(
        minimum=model.minimum,
        lookback=model.lookback,
        marks=facts.CLAUDE_MARKS.value,
        text_marks=model.text_marks,
        lifetime=lifetimes["5m"],
        lifetimes=lifetimes if model.hour else {"5m": lifetimes["5m"]},
    )


def heard(asked: ConverseAsked) -> list[Heard]:
    """Return the conversation as the scripted model hears it."""
    return [
        Heard(
            message.role,  # pyright: ignore[reportArgumentType] - no other roles are read
            tuple(block["text"] for block in message.blocks if block["type"] == "text"),
        )
        for message in asked.claude.messages
    ]


def _credential(call: Call) -> str:
    given = call.headers.get("authorization", "")
    kind, _, key = given.partition(" ")
    if kind == "AWS4-HMAC-SHA256" and call.headers.get("x-amz-date"):
        # Which account signed is all that counts here; nobody's secret is known to check it.
        return encoding.digest(key.split("/")[0])
    if kind.lower() != "bearer" or not key.strip():
        raise Refusal("Missing Authentication Token", status=403)
    return encoding.digest(key.strip())


def _asked_for(path: str) -> tuple[str, bool]:
    """Return the model's id and whether the answer is streamed."""
    name, _, action = path.partition("/model/")[2].rpartition("/")
    if action not in ("converse", "converse-stream") or not name:
        raise Refusal("there is no such operation", status=404)
    return name, action == "converse-stream"


def _blocks(asked: ConverseAsked, read_here: anthropic_thinking.Read | None) -> tuple[Block, ...]:
    """Return the blocks as a cache counts them; a Claude model leaves some reasoning out."""
    found: list[Block] = []
    for each in asked.blocks:
        counted: Segment | None = segment(each.role, each.value)
        if each.kind == "reasoningContent" and read_here is not None:
            counted = read_here.get(each.place)
        if counted is not None:
            found.append(Block(each.section, counted, each.kind, each.mark))
    return tuple(found)


def _thinks(model: facts.BedrockModel, asked: ConverseAsked) -> bool:
    assert model.claude is not None
    kind = asked.claude.thinking.get("type")
    return kind in ("enabled", "adaptive") or (model.claude.thinks and kind is None)


def _omits(model: facts.BedrockModel) -> bool:
    return model.claude is not None and model.claude.omits


def _content(spoken: Spoken, seed: bytes) -> list[Json]:
    content: list[Json] = [{"text": spoken.text}] if spoken.text else []
    for at, (name, arguments) in enumerate(spoken.calls):
        use = {
            "toolUseId": f"tooluse_{encoding.digest(seed + bytes([at]))[:22]}",
            "name": name,
            "input": encoding.decode(arguments),
        }
        content.append({"toolUse": use})
    return content


def _usage(priced: Priced, content: list[Json], reasoning: int, model: facts.BedrockModel) -> Json:
    spoken = [each for each in content if "reasoningContent" not in each]
    output = reasoning + sum(segment("assistant", each).tokens for each in spoken)
    written = priced.written_5m + priced.written_1h
    usage: Json = {"inputTokens": priced.uncached, "outputTokens": output}
    usage["totalTokens"] = priced.uncached + priced.read + written + output
    if model.caches:
        usage["cacheReadInputTokens"] = priced.read
        usage["cacheWriteInputTokens"] = written
        details = (("1h", priced.written_1h), ("5m", priced.written_5m))
        usage["cacheDetails"] = [{"ttl": t, "inputTokens": n} for t, n in details if n]
    return usage


def _reply(content: list[Json], usage: Json, streams: bool) -> Reply:
    stop = "tool_use" if any("toolUse" in each for each in content) else "end_turn"
    metrics = {"latencyMs": 1}
    if not streams:
        body: Json = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": stop,
            "usage": usage,
            "metrics": metrics,
        }
        return Reply(200, payload=encoding.encode(body), usage=usage)
    events = [frame("messageStart", {"role": "assistant"})]
    for index, block in enumerate(content):
        events += [
            frame(name, {"contentBlockIndex": index, **rest}) for name, rest in _deltas(block)
        ]
        events.append(frame("contentBlockStop", {"contentBlockIndex": index}))
    events.append(frame("messageStop", {"stopReason": stop}))
    events.append(frame("metadata", {"usage": usage, "metrics": metrics}))
    headers = {"content-type": "application/vnd.amazon.eventstream"}
    return Reply(200, events=tuple(events), usage=usage, headers=headers)


def _deltas(block: Json) -> list[tuple[str, Json]]:
    deltas: list[Any]
    if "text" in block:
        deltas = [{"text": piece} for piece in pieces(block["text"], _TEXT_PIECE)]
        opened: list[tuple[str, Json]] = []
    elif "toolUse" in block:
        use = block["toolUse"]
        parts = pieces(encoding.encode(use["input"]).decode(), _JSON_PIECE)
        deltas = [{"toolUse": {"input": part}} for part in parts]
        start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
        opened = [("contentBlockStart", {"start": start})]
    else:
        said = block["reasoningContent"]["reasoningText"]
        deltas = [
            {"reasoningContent": {"text": piece}} for piece in pieces(said["text"], _TEXT_PIECE)
        ]
        deltas.append({"reasoningContent": {"signature": said["signature"]}})
        opened = []
    return [*opened, *(("contentBlockDelta", {"delta": delta}) for delta in deltas)]
