"""How an answer ended: one table for the stop words of all wires, and what follows for its calls.

The words are not kept apart by wire: gateways pass on those of the provider behind them, in either
case. A word that stands in no row says nothing, so its answer is not known to be whole.

Sources: the literals of anthropic 2.14.0, openai 3.57.0, google-genai 3.6.1 and botocore 1.44.8,
which `scripts/stop_words.py` reads; beside them the vendors' own pages and clients, named below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct

from addendum import encoding
from addendum.lines import one_line
from addendum.tools.envelope import meant
from addendum.wire.reading import legal_object, slices, table, text

Ending: TypeAlias = Literal["whole", "paused", "unknown", "withheld", "trouble", "cut"]
"""How an answer ended, the gravest last.

`whole`: all of it came. `paused`: the provider stopped between two parts and would go on.
`unknown`: nobody said how. `withheld`: a filter or the model itself kept it, or the rest of it,
back. `trouble`: the provider failed on it. `cut`: it ran into a limit.
"""

_GRAVITY: Mapping[Ending, int] = {
    "whole": 0,
    "paused": 1,
    "unknown": 2,
    "withheld": 3,
    "trouble": 4,
    "cut": 5,
}


class Stop(Struct, frozen=True):
    """What a stop word says.

    Attributes:
        ending: How the answer ended.
        meaning: The same for people, behind "the answer ".
        advice: What to do, for people.
    """

    ending: Ending
    meaning: str
    advice: str


_ROWS: tuple[tuple[Ending, str, str, str], ...] = (
    # How it ended, what to say of it, what to do, and the words.
    (
        "whole",
        "is whole",
        "",
        # `eos`, `eos_token`: Together, TGI; `complete`, `tool_call`: Cohere.
        "end_turn stop stop_sequence tool_use tool_calls function_call completed"
        " eos eos_token complete tool_call",
    ),
    (
        "cut",
        "was cut off at the output limit",
        "raise Settings(max_tokens=...) or ask it to go on",
        # `continuation`: Gemini, goes on in a further request that nobody makes here.
        "max_tokens length max_output_tokens continuation",
    ),
    (
        "cut",
        "was cut off at the end of the model's window",
        "compact the session or use a model with more room",
        # `model_length`: Mistral.
        "model_context_window_exceeded model_length",
    ),
    (
        "cut",
        "was ended before it was whole",
        "ask it to go on",
        # `steered`, `max_messages`: Responses; `max_time`: xAI; `timeout`: Cohere.
        "incomplete max_messages steered max_time timeout",
    ),
    (
        "withheld",
        "was withheld, or the rest of it",
        "say it otherwise, or ask another model",
        # `sensitive`: Z.ai; `error_toxic`: Cohere.
        "refusal content_filter content_filtered guardrail_intervened sensitive error_toxic"
        " safety recitation blocklist prohibited_content spii language model_armor"
        " image_safety image_prohibited_content image_recitation escalation pup_limited_disabled",
    ),
    (
        "trouble",
        "was given up by the provider",
        "ask again",
        # `insufficient_system_resource`: DeepSeek; `network_error`: Z.ai; `abort`: vLLM, SGLang;
        # `error`: OpenRouter, Mistral.
        "error failed cancelled malformed_function_call malformed_response malformed_tool_use"
        " malformed_model_output unexpected_tool_call too_many_tool_calls"
        " missing_thought_signature no_image image_other other"
        " insufficient_system_resource network_error abort",
    ),
    (
        "paused",
        "pauses",
        "say something, and it goes on",
        "pause_turn compaction",
    ),
    (
        "unknown",
        "may not be whole",
        "look whether it is",
        "finish_reason_unspecified in_progress queued",
    ),
)

STOPS: Mapping[str, Stop] = {
    word: Stop(ending, meaning, advice)
    for ending, meaning, advice, words in _ROWS
    for word in words.split()
}
"""What each stop word says, by the word in lower case."""

_NO_WORD = Stop("unknown", "ended without a word of how", "look whether it is whole")
_NEW_WORD = Stop("unknown", "may not be whole", "look whether it is")


def stopped(word: str | None) -> Stop:
    """Return what a stop word says; None is an answer that ended without one."""
    if word is None:
        return _NO_WORD
    return STOPS.get(word.strip().casefold(), _NEW_WORD)


def graver(word: str | None, other: str | None) -> str | None:
    """Return the stop word that says worse of an answer; of two that say the same, the later one.

    Args:
        word: What was said before, if anything was.
        other: What was said now, if anything was.
    """
    if word is None or other is None:
        return other if word is None else word
    before, now = _GRAVITY[stopped(word).ending], _GRAVITY[stopped(other).ending]
    return word if before > now else other


def worse(ending: Ending, other: Ending) -> Ending:
    """Return the graver of two endings."""
    return max(ending, other, key=_GRAVITY.__getitem__)


CUT_CALL = (
    "CUT",
    "this call did not run: the answer ended before the call's arguments had surely come whole. "
    "Call it again; if its arguments are long, in smaller parts.",
)
"""What answers a call that may have been cut: a code for programs, and what the model reads."""


def may_be_cut(ending: Ending, written: str, *, open: bool, cut: bool = False) -> bool:
    """Say whether the arguments of a call may not have come whole, so that it must not run.

    JSON shows its own end, so an object is whole. But in an answer that was cut, `{}` and nothing
    at all are what a call looks like whose arguments had not begun: some wires close what a limit
    cut, and some servers write `{}` for nothing (vllm-project/vllm#46303). What stood last and open
    may have been closed by a server that mends JSON (jaseci-labs/jac#6766, ahwurm/localharness#77).

    Args:
        ending: How the answer ended.
        written: The arguments as they came, before anything is put in their place.
        open: Whether nothing says that the call itself has ended.
        cut: Whether the wire says of this very call that it is not whole.
    """
    came = came_whole(written)
    match ending:
        case _ if cut:
            return True
        case "whole":
            return open and not came
        case "paused" | "unknown":
            return not came
        case _:
            return open or not has_members(written)


def came_whole(written: str) -> bool:
    """Say whether text that came for a call's arguments is a JSON object, and so came whole."""
    return written.strip() not in ("", "null", '""') and legal_object(meant(written)) is not None


def has_members(written: str) -> bool:
    """Say whether it is an object that has something in it."""
    return came_whole(written) and meant(written).strip("{} \t\r\n") != ""


_TOLD = ("category", "explanation", "message", "finishMessage", "error", "reason")
"""Fields of a provider's details that a person should read, in this order."""


def told(word: str | None, ending: Ending, details: Raw | None) -> str:
    """Return one line about an answer that is not whole; '' if it is.

    Args:
        word: The stop word.
        ending: How the answer ended.
        details: What else the provider said of it.
    """
    if ending == "whole":
        return ""
    stop = stopped(word)
    if stop.ending != ending:
        # What was learned otherwise: by a refusal's own text, or by the tokens that were used.
        rows = (Stop(kind, meaning, advice) for kind, meaning, advice, _ in _ROWS)
        stop = next(row for row in rows if row.ending == ending)
    said = named(word, slices(details) if details else {})
    return f"the answer {stop.meaning}{f' ({said})' if said else ''}; {stop.advice}"


def named(word: str | None, details: Mapping[str, Raw]) -> str:
    """Return a stop word, and what a provider's details say for people, as one line."""
    said = [word] if word else []
    for raw in details.values():
        said += _said(encoding.decode(bytes(raw)))
    for name in _TOLD:
        if name in details:
            said.append(text(encoding.decode(bytes(details[name]))))
    return one_line(", ".join(filter(None, dict.fromkeys(said))), 400)


def _said(details: Any) -> Iterable[str]:
    inner = table(details)
    for name in _TOLD:
        if text(inner.get(name)):
            yield text(inner.get(name))
    if model := text(inner.get("recommended_model")):
        yield f"it recommends {model}"
    for value in inner.values():
        if isinstance(value, dict):
            yield from _said(value)


def details(value: Mapping[str, Any], raw: Raw, names: Iterable[str]) -> dict[str, Raw]:
    """Return what a provider says of how its answer ended, as its own text.

    Args:
        value: An object of the answer.
        raw: Its text.
        names: Its fields that say something of that.
    """
    present = [name for name in names if value.get(name)]
    if not present:
        return {}
    fields = slices(raw)
    return {name: fields[name] for name in present}


def joined(kept: Mapping[str, Raw], ending: Ending) -> Raw | None:
    """Return details as one object; of a whole answer only what is never said of one."""
    if ending == "whole":
        kept = {name: raw for name, raw in kept.items() if name == "stop_details"}
    return Raw(encoding.encode(kept)) if kept else None
