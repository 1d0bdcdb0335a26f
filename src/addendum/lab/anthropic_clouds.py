"""Claude on other clouds, on the Messages wire: what differs from Claude's own API.

Google's copy names the model in the address and the API's version in the body; Amazon's names
both as usual. Neither takes definitions by value or scoped instructions, which are documented for
Claude's own API only, and each block of a run is a position of its own.

Source: platform.claude.com, "Mid-conversation system messages and tool changes" (2026-09-26);
anthropic 2.14.0, AnthropicVertex and AnthropicBedrockMantle.
"""

from __future__ import annotations

import re
from dataclasses import replace

from addendum import encoding
from addendum.lab import anthropic_answer, facts
from addendum.lab.anthropic import Anthropic
from addendum.lab.exchange import Call, Reply, json_body
from addendum.lab.facts import BETA_REFERENCE
from addendum.lab.refusal import Refusal

_PATH = re.compile(r".+/publishers/anthropic/models/([^/:]+):(rawPredict|streamRawPredict)")


class VertexClaude:
    """Claude at Google Cloud."""

    def __init__(self) -> None:
        self._claude = Anthropic(cloud=True)

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        return self._claude.caches(model.partition("@")[0])

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        return self._claude.answer(_from_vertex(call))

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return anthropic_answer.refusal(refusal)


class BedrockClaude:
    """Claude in Amazon Bedrock, on its Messages API."""

    def __init__(self) -> None:
        self._claude = Anthropic(cloud=True, minimum=facts.BEDROCK_CLAUDE_MINIMUM_TOKENS.value)

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        return self._claude.caches(model.removeprefix("anthropic."))

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        return self._claude.answer(_from_bedrock(call))

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return anthropic_answer.refusal(refusal)


def _from_vertex(call: Call) -> Call:
    """Return the request as Claude's own API has it."""
    if not call.headers.get("authorization", "").startswith("Bearer "):
        raise Refusal("Request had invalid authentication credentials.", status=401)
    found = _PATH.fullmatch(call.path)
    if found is None:
        raise Refusal(f"no such method: {call.path}", status=404)
    body = json_body(call)
    if "model" in body:
        raise Refusal("model: Extra inputs are not permitted")
    version = body.pop("anthropic_version", None)
    if version != facts.VERTEX_CLAUDE_VERSION.value:
        raise Refusal("anthropic_version: Field required")
    if bool(body.get("stream")) != (found[2] == "streamRawPredict"):
        raise Refusal(f"stream: not what {found[2]} answers with")
    _check_betas(call)
    headers = {**call.headers, "anthropic-version": "2023-06-01"}
    model = found[1].partition("@")[0]
    return replace(call, headers=headers, body=encoding.encode({"model": model, **body}))


def _from_bedrock(call: Call) -> Call:
    """Return the request as Claude's own API has it."""
    body = json_body(call)
    name = body.get("model")
    if not isinstance(name, str) or not name.startswith("anthropic."):
        raise Refusal(f"model: {name}", status=404)
    _check_betas(call)
    own = {**body, "model": name.removeprefix("anthropic.")}
    return replace(call, body=encoding.encode(own))


def _check_betas(call: Call) -> None:
    listed = call.headers.get("anthropic-beta", "").split(",")
    for beta in (each.strip() for each in listed):
        if beta and beta != BETA_REFERENCE:
            raise Refusal(f"invalid beta flag: {beta}")
