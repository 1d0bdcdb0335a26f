"""Why a prefix was not read again, as data: words, what to do, and the providers' own words.

Two providers tell of a miss themselves, each in a closed vocabulary. A reason of ours maps to the
word that each would use; None where it has none.

Sources: Claude docs "Cache diagnosis" (beta `cache-diagnosis-2026-04-07`): `model_changed`,
`system_changed`, `tools_changed`, `messages_changed`, `previous_message_not_found`, `unavailable`
(the last also where only `tool_choice`, `thinking`, `output_config` or betas differ). OpenAI guide
"Prompt caching", diagnostics (2026-11): `model_changed`, `prompt_cache_key_changed`,
`tools_changed`, `text_format_changed`, `reasoning_effort_changed`, `verbosity_changed`,
`context_compacted`, `input_changed`, `service_tier_changed`, `unavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Words(Struct, frozen=True):
    """The providers' words for a reason; None where one has none."""

    anthropic: str | None
    openai: str | None


class Cause(Struct, frozen=True):
    """A reason in words.

    Attributes:
        text: What happened, as a sentence without its end.
        advice: What to do about it.
    """

    text: str
    advice: str


AREAS: Mapping[str, Words] = {
    "tools": Words("tools_changed", "tools_changed"),
    "system": Words("system_changed", "input_changed"),
    "messages": Words("messages_changed", "input_changed"),
    "settings": Words("unavailable", None),
    "none": Words("unavailable", "unavailable"),
}
"""Words for a part of the request that changed."""

SETTINGS: Mapping[str, Words] = {
    "model": Words("model_changed", "model_changed"),
    "deferral": Words("tools_changed", "tools_changed"),
    "images": Words("messages_changed", "input_changed"),
    "effort": Words("unavailable", "reasoning_effort_changed"),
    "thinking": Words("unavailable", "reasoning_effort_changed"),
    "output_config": Words("unavailable", "reasoning_effort_changed"),
    "reasoning_effort": Words("unavailable", "reasoning_effort_changed"),
    "reasoning": Words("unavailable", "reasoning_effort_changed"),
    "text": Words("unavailable", "text_format_changed"),
    "verbosity": Words(None, "verbosity_changed"),
    "response_format": Words("unavailable", "text_format_changed"),
    "service_tier": Words(None, "service_tier_changed"),
    "prompt_cache_key": Words(None, "prompt_cache_key_changed"),
}
"""Words for a setting that changed; others have those of `settings`."""

REASONS: Mapping[str, Words] = {
    "compaction": Words("messages_changed", "context_compacted"),
    "route changed": Words("model_changed", "model_changed"),
    "lifetime passed": Words("previous_message_not_found", "unavailable"),
    "provider": Words("unavailable", "unavailable"),
}
"""Words for reasons that say more than the part that changed."""

CAUSES: Mapping[str, Cause] = {
    "redefinition": Cause(
        "a tool was defined anew",
        "keep its definition, or use a route that takes a later definition in place",
    ),
    "removal": Cause(
        "a tool was removed on a route that has to leave it out",
        "keep the tool on for this session, or use --tool-changes dispatch",
    ),
    "restore": Cause(
        "a tool came back on a route that declares it anew in front",
        "keep the tool on for this session, or use --tool-changes dispatch",
    ),
    "removal or restore": Cause(
        "a tool was removed or restored on a route that has to leave it out",
        "keep the tool on for this session, or use --tool-changes dispatch",
    ),
    "rebinding": Cause(
        "the tool list was written anew, as this session asks for",
        "use --tool-changes auto: it tells a change without touching the list",
    ),
    "prompt rewritten": Cause(
        "the instructions were changed",
        "put what changes often into the turn's instructions",
    ),
    "settings changed": Cause(
        "settings that count for the prefix were changed",
        "keep them the same through a session",
    ),
    "compaction": Cause("the conversation was compacted", "compact less often"),
    "rewind": Cause("turns were cut from the conversation", "nothing: what was cut is gone"),
    "fork": Cause("the session goes on from a fork", "nothing: it happens once in a fork"),
    "head changed": Cause(
        "the tools in front of the prompt were set anew",
        "say from the start that tools will change (MCP servers, a deferred tool or "
        "tool_dispatch=True); change the head when the cache has expired anyway",
    ),
    "explicit series": Cause("a series was started by hand", "start none while the cache lives"),
    "route changed": Cause(
        "the session went on with another route", "stay on a route while its cache lives"
    ),
    "downgrade": Cause(
        "the endpoint refused tool changes, and the session went on in a weaker form",
        "name the weaker form with +FACT, so that it is used from the start",
    ),
    "attempt failed": Cause(
        "a request failed, and what it said moved behind the next message",
        "nothing: it happens once",
    ),
    "concurrent first requests": Cause(
        "several first requests left at once", "send one first, and the others when it answers"
    ),
    "lifetime passed": Cause(
        "the cache had expired", "ask for a longer lifetime, or answer sooner"
    ),
    "reasoning stripped": Cause(
        "the provider leaves reasoning of earlier turns out", "nothing: the model works so"
    ),
    "rendering changed": Cause(
        "a new release of addendum renders otherwise, or the stored log was changed by hand",
        "nothing: it happens once; leave stored logs as they are",
    ),
    "history edited by the client": Cause(
        "the client sent earlier messages otherwise than before",
        "edit the history seldom and in one go: all behind the edit is read again",
    ),
    "system rewritten by the client": Cause(
        "the client changed its instructions",
        "move what changes (a date, a folder) out of the instructions, behind the history",
    ),
    "history unknown": Cause(
        "nothing is known of the conversation's earlier requests",
        "keep what is known in a file, with store='sqlite:///path.db'",
    ),
    "new head: cheaper": Cause(
        "a new tool list cost less than telling the change", "nothing: the other way costs more"
    ),
    "tool that cannot be told": Cause(
        "a tool changed that can only stand in the tool list",
        "keep the provider's own tools the same through a conversation",
    ),
    "passed on unchanged": Cause(
        "the request went on as the client wrote it, after changes had been told",
        "see the reason beside it",
    ),
    "provider": Cause(
        "the provider lost a prefix that stood within reach",
        "nothing: the bytes and the marks are in order",
    ),
    "tools": Cause(
        "the tool list differs and no reason was declared",
        "send the same tools in the same order and tell changes at the end",
    ),
    "system": Cause(
        "the prompt text differs and no reason was declared",
        "keep it constant: move dates, names and states behind the history",
    ),
    "messages": Cause(
        "an earlier message differs and no reason was declared",
        "send the history again as it was sent and received, byte by byte",
    ),
    "settings": Cause(
        "settings differ and no reason was declared", "keep them the same through a conversation"
    ),
    "unreached": Cause(
        "the bytes are the same, but the stored prefix was out of reach",
        "set a mark on the last block of each request, and one on the last block of the one before",
    ),
    "answer": Cause(
        "the answer was not sent back as it came",
        "send back the provider's own items, reasoning included",
    ),
}
"""All reasons: declared ones, the provider's, and what bytes show where nothing was declared."""


def words(reason: str, area: str, settings: Sequence[str] = ()) -> Words:
    """Return the providers' words for a reason.

    Args:
        reason: A key of `CAUSES`.
        area: A key of `AREAS`, or a path below it; anything else has no word.
        settings: Settings that changed; the first one with a word of its own counts.
    """
    if reason in REASONS:
        return REASONS[reason]
    place = area_of(area)
    if place == "settings":
        for name in settings:
            if name in SETTINGS:
                return SETTINGS[name]
    return AREAS.get(place, Words(None, None))


def area_of(at: str) -> str:
    """Return the part of a request that a path lies in."""
    return at.split("[")[0].split(".")[0]
