"""Tokens in a Chat Completions answer, in the spellings that providers use.

=========================================================  ==================================
spelling                                                   seen at
=========================================================  ==================================
`prompt_tokens_details.{cached_tokens,                     OpenAI, OpenRouter, Kimi, xAI,
cache_write_tokens}`                                       Groq, Z.ai, Qwen, vLLM
`prompt_token_details.cached_tokens`                       Mistral
`prompt_cache_hit_tokens`, `prompt_cache_miss_tokens`      DeepSeek
`cached_tokens` at the top level                           Kimi
`num_cached_tokens` at the top level                       Mistral
`cache_write_tokens` at the top level                      gateways
`cache_creation_input_tokens`, in the details or on top    Qwen, LiteLLM
=========================================================  ==================================

Cache counts are inside `prompt_tokens` on this wire. Of several spellings in one object the first
in the order above counts. A count that is absent, null or no number is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum.log.values import Usage
from addendum.wire.reading import count, table, values

_DETAILS = ("prompt_tokens_details", "prompt_token_details")


def read_usage(raw: Raw | None) -> Usage:
    """Return the tokens that a `usage` object states.

    Args:
        raw: The object's own text; None if the provider sent none.
    """
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    prompt = count(said.get("prompt_tokens"))
    hit = count(said.get("prompt_cache_hit_tokens"))
    miss = count(said.get("prompt_cache_miss_tokens"))
    if prompt is None and hit is not None and miss is not None:
        prompt = hit + miss
    read = _first(
        *(_detail(said, name, "cached_tokens") for name in _DETAILS),
        hit,
        max(prompt - miss, 0) if prompt is not None and miss is not None else None,
        count(said.get("cached_tokens")),
        count(said.get("num_cached_tokens")),
    )
    written = _first(
        *(_detail(said, name, "cache_write_tokens") for name in _DETAILS),
        count(said.get("cache_write_tokens")),
        *(_detail(said, name, "cache_creation_input_tokens") for name in _DETAILS),
        count(said.get("cache_creation_input_tokens")),
    )
    return Usage(
        prompt=prompt,
        cache_read=read,
        cache_write=written,
        output=count(said.get("completion_tokens")),
        raw=raw,
    )


def _detail(said: Mapping[str, Any], name: str, field: str) -> int | None:
    return count(table(said.get(name)).get(field))


def _first(*stated: int | None) -> int | None:
    return next((number for number in stated if number is not None), None)
