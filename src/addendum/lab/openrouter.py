"""OpenRouter's Chat Completions on loopback: what reaches the model behind it, and its cache.

For Claude a request is converted to the Messages wire and held to that wire's rules: marks (at most
four, on text of what goes in and on tools), calls and results, signed thinking, which travels in
`reasoning_details`. System messages stand in front only. What is cached where is Claude's own
rule, each block a position. Qwen caches at marks too; GPT-5.6 and later at boundaries, older ones
in steps. Of all others nothing is promised, so nothing is read.

Requests go to one upstream by `session_id`, or by their first system and first other message. The
upstream that an earlier request of that key used has its cache; any other has none.

Source: openrouter.ai, "Prompt caching"; openrouter 0.11.46 (PyPI) types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from addendum import encoding
from addendum.lab import anthropic_rules, anthropic_thinking, facts
from addendum.lab.anthropic import dialect
from addendum.lab.anthropic_cache import PrefixCache
from addendum.lab.anthropic_render import Block
from addendum.lab.anthropic_shapes import Asked
from addendum.lab.anthropic_shapes import read as read_messages
from addendum.lab.exchange import Call, Reply, Switches, json_body
from addendum.lab.openai_cache import OpenAICache, openai_cache
from addendum.lab.openai_chat import bearer, heard, said, told
from addendum.lab.openai_rules import (
    ChatAsked,
    ChatDialect,
    Json,
    error_body,
    message_segments,
    read,
)
from addendum.lab.refusal import Refusal
from addendum.lab.script import Spoken, speak
from addendum.lab.tokens import Segment, count

_DIALECT = ChatDialect(
    top=frozenset({"session_id", "provider", "reasoning", "usage", "cache_control"}),
    marks=True,
    max_tokens=True,
    reasoning=frozenset({"reasoning", "reasoning_details"}),
)
_NO_CHANGES = Switches(claude_tool_changes="none")
_FORMAT = "anthropic-claude-v1"
_SETTINGS = ("model", "reasoning_effort", "reasoning", "response_format")
_QWEN = facts.CacheFacts(
    minimum=facts.OPENROUTER_QWEN_MINIMUM_TOKENS.value,
    lookback=facts.OPENROUTER_LOOKBACK_POSITIONS.value,
    marks=facts.CLAUDE_MARKS.value,
    lifetime=facts.CLAUDE_LIFETIME_SECONDS.value["5m"],
    lifetimes=facts.CLAUDE_LIFETIME_SECONDS.value,
)

Begin = Callable[[], None]


class OpenRouter:
    """OpenRouter's Chat Completions."""

    def __init__(self) -> None:
        self._marked = PrefixCache()
        self._openai = OpenAICache()

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return Reply(refusal.status, payload=error_body(refusal), refusal=str(refusal))

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        upstream, _, name = model.partition(":")[0].partition("/")
        match upstream:
            case "anthropic":
                own = name.replace(".", "-")
                claude = facts.claude_model(own)
                return None if claude is None else _claude_cache(own, claude)
            case "qwen":
                return _QWEN
            case "openai":
                known = facts.chat_model(name)
                return None if known is None else openai_cache(known)
            case _:
                return None

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        account = bearer(call)
        body = json_body(call)
        asked = read(body, _DIALECT)
        upstream, _, name = str(body["model"]).partition(":")[0].partition("/")
        if not name:
            raise Refusal(f"{body['model']} is not a valid model ID")
        scope = encoding.canonical(
            [account, _sticky(asked), [body.get(each) for each in _SETTINGS]]
        )
        spoken = speak(call.script, heard(asked), asked.offered)
        message = said(call, Spoken(spoken.text, "", spoken.calls))
        segments: Sequence[Segment] = asked.segments
        if upstream == "anthropic":
            claude = _Claude(asked, name)
            segments = claude.read
            claude.think(message, spoken.thinking)
            read_, written, begin = self._by_marks(asked, segments, scope, claude.cache, call.now)
        elif upstream == "qwen":
            read_, written, begin = self._by_marks(asked, segments, scope, _QWEN, call.now)
        elif upstream == "openai":
            read_, written, begin = self._by_openai(asked, scope, name, call.now)
        else:
            read_, written, begin = 0, 0, _nothing
        prompt = count(segments)
        completion = count(message_segments(message))
        usage: Json = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": read_, "cache_write_tokens": written},
        }
        return replace(told(call, body, message, usage), begin=begin)

    def _by_marks(
        self,
        asked: ChatAsked,
        segments: Sequence[Segment],
        scope: bytes,
        cache: facts.CacheFacts,
        now: float,
    ) -> tuple[int, int, Begin]:
        if len(asked.marks) > cache.marks:
            raise Refusal("A maximum of 4 blocks with cache_control may be provided.")
        blocks = [
            Block("messages", each, "", asked.marks.get(at)) for at, each in enumerate(segments)
        ]
        # The head of a message is no block upstream.
        places: list[int] = []
        for at in range(len(blocks)):
            before = places[-1] if places else -1
            places.append(before + (at not in asked.heads))
        priced, writes = self._marked.price(
            blocks,
            keys={"tools": scope},
            facts=cache,
            now=now,
            places=places,
        )
        written = priced.written_5m + priced.written_1h
        return priced.read, written, lambda: self._marked.store(writes, now)

    def _by_openai(
        self, asked: ChatAsked, scope: bytes, name: str, now: float
    ) -> tuple[int, int, Begin]:
        model = facts.chat_model(name)
        if model is None:
            raise Refusal(f"openai/{name} is not a valid model ID")
        details, begin = self._openai.price(asked, key=scope, model=model, mode="implicit", now=now)
        return details["cached_tokens"], details.get("cache_write_tokens", 0), begin


class _Claude:
    """A request as Claude gets it.

    Attributes:
        read: What is counted: the request's segments, without reasoning that is not read.
        cache: How it is cached.

    Raises:
        Refusal: Claude refuses it.
    """

    def __init__(self, asked: ChatAsked, name: str) -> None:
        own = name.replace(".", "-")
        model = facts.claude_model(own)
        if model is None:
            raise Refusal(f"anthropic/{name} is not a valid model ID", status=404)
        self._name, self._model = own, model
        self.cache = _claude_cache(own, model)
        converted, places = _converted(asked, own)
        messages = read_messages(converted, dialect(model, (), "2023-06-01", _NO_CHANGES))
        anthropic_rules.check_tools(messages.tools)
        anthropic_rules.check_messages(messages.messages)
        self._verdicts = anthropic_thinking.judge(messages, own, model)
        self.read = _kept(asked, messages, places, set(self._verdicts.read))

    def think(self, message: Json, text: str) -> None:
        """Put signed thinking into an answer, where the model thinks."""
        if not (text and self._model.thinks):
            return
        verdicts = self._verdicts
        seal = anthropic_thinking.Seal(
            self._name, text, self._model.omits, verdicts.prefix, verdicts.last
        )
        shown = "" if self._model.omits else text
        message["reasoning"] = shown
        message["reasoning_details"] = [
            {
                "type": "reasoning.text",
                "text": shown,
                "signature": anthropic_thinking.sign(seal),
                "format": _FORMAT,
                "index": 0,
            }
        ]


def _claude_cache(name: str, model: facts.ClaudeModel) -> facts.CacheFacts:
    least = facts.OPENROUTER_CLAUDE_MINIMUM_TOKENS.value.get(name, 0)
    # Haiku and those that strip thinking: the largest of all.
    return facts.claude_cache(model, minimum=max(least, 0 if model.keeps_thinking else 4096))


def _sticky(asked: ChatAsked) -> Any:
    """Return what decides the upstream."""
    if b'"order"' in encoding.encode(asked.body.get("provider")):
        return encoding.digest(encoding.encode(asked.body["messages"]))
    if asked.body.get("session_id"):
        return asked.body["session_id"]
    prompts = ("system", "developer")
    first = next((each for each in asked.messages if each["role"] in prompts), None)
    other = next((each for each in asked.messages if each["role"] not in prompts), None)
    return [first, other]


def _converted(asked: ChatAsked, name: str) -> tuple[Json, dict[int, int]]:
    """Return the Messages body, and the place of each assistant message among its messages."""
    system: list[Json] = []
    messages: list[Json] = []
    places: dict[int, int] = {}

    def add(role: str, blocks: list[Json]) -> None:
        if messages and messages[-1]["role"] == role == "user":
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})

    for at, message in enumerate(asked.messages):
        role = message["role"]
        if role in ("system", "developer"):
            if messages:
                raise Refusal(f"messages[{at}]: role 'system' is not supported on this model")
            system += _parts(message)
        elif role == "assistant":
            places[at] = len(messages)
            add("assistant", _spoken(at, message))
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            add("user", [{**result, "content": _parts(message)}])
        else:
            add("user", _parts(message))
    body: Json = {"model": name, "max_tokens": 1024, "messages": messages}
    if system:
        body["system"] = system
    if asked.body.get("tools"):
        body["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description", ""),
                "input_schema": tool["function"].get("parameters", {"type": "object"}),
            }
            for tool in asked.body["tools"]
        ]
    return body, places


def _parts(message: Json) -> list[Json]:
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{"type": "text", "text": part.get("text", part["type"])} for part in content]


def _details(message: Json) -> list[Json]:
    """Return the entries of `reasoning_details`; what is no object is an empty one."""
    given: Any = message.get("reasoning_details") or []
    listed = cast(list[Any], given) if isinstance(given, list) else [given]
    return [cast(Json, each) if isinstance(each, dict) else {} for each in listed]


def _spoken(at: int, message: Json) -> list[Json]:
    blocks: list[Json] = []
    for detail in _details(message):
        if detail.get("format") != _FORMAT or not isinstance(detail.get("signature"), str):
            raise Refusal(f"messages[{at}].reasoning_details: not of this model")
        thinking = {"thinking": detail.get("text", ""), "signature": detail["signature"]}
        blocks.append({"type": "thinking", **thinking})
    if message.get("content"):
        blocks += _parts(message)
    for called in message.get("tool_calls", ()):
        function = called["function"]
        try:
            arguments = encoding.decode(function["arguments"])
        except encoding.ContentError as error:
            raise Refusal(f"messages[{at}].tool_calls: arguments are no JSON: {error}") from error
        use = {"id": called["id"], "name": function["name"], "input": arguments}
        blocks.append({"type": "tool_use", **use})
    return blocks


def _kept(
    asked: ChatAsked, messages: Asked, places: dict[int, int], valid: set[tuple[int, int]]
) -> list[Segment]:
    """Return the request's segments; reasoning that the model does not read is left out."""
    heads = sorted(asked.heads)
    segments = list(asked.segments)
    for at, place in places.items():
        blocks = messages.messages[place].blocks
        thinks = [n for n, block in enumerate(blocks) if block["type"] == "thinking"]
        if thinks and not all((place, number) in valid for number in thinks):
            fields = ("reasoning", "reasoning_details")
            bare = {k: v for k, v in asked.messages[at].items() if k not in fields}
            segments[heads[at]] = message_segments(bare)[0]
    return segments


def _nothing() -> None:
    return None
