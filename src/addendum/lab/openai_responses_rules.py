"""Responses, field by field: what a request may hold, and its reading into segments.

Unknown parameters are refused, as are items without their other half: a call without its output,
an output without its call, reasoning without the item it led to, and the reverse. The lab keeps no
responses, so all that asks for stored ones is refused too.

Where the documents are silent the less kind reading is taken: `additional_tools` in front of the
first developer message ends the initial run before it begins; an item that replaces a definition
has to replace that of an earlier item; a function without `strict` is strict.

Sources: openai-python 3.57.0 types; OpenAI guides "Tool search" and "Prompt caching"; answers of
400 that users saw (openai/openai-node#1567, pydantic/pydantic-ai#2865).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from addendum.lab.facts import OPENAI_LIFETIMES, OPENAI_TOOLS, ChatModel
from addendum.lab.files import check_data_url
from addendum.lab.openai_responses_reasoning import ENCRYPTED, Reader
from addendum.lab.openai_rules import End
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, segment

Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOLLOWER = re.compile(r"(?:fc|msg)_([0-9a-f]{20})r\d+")
_INPUT = ("input_text", "input_image", "input_file")
_PART_FIELDS: Mapping[str, frozenset[str]] = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail"}),
    "input_file": frozenset({"type", "file_data", "file_id", "file_url", "filename"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_FIELDS: Mapping[str, frozenset[str]] = {
    "message": frozenset("type role content id status phase".split()),
    "function_call": frozenset("type call_id name arguments id status namespace".split()),
    "function_call_output": frozenset("type call_id output id status namespace".split()),
    "reasoning": frozenset("type id summary content encrypted_content status".split()),
    "additional_tools": frozenset("type role tools id".split()),
}
_TOP = frozenset(
    "model input instructions tools tool_choice parallel_tool_calls stream stream_options store"
    " include max_output_tokens max_tool_calls metadata reasoning safety_identifier service_tier"
    " temperature text top_p top_logprobs truncation user prompt_cache_key"
    " prompt_cache_retention".split()
)
_STORED = ("previous_response_id", "conversation", "background", "prompt", "context_management")
_ROLES = ("user", "assistant", "system", "developer")
_BREAK = "prompt_cache_breakpoint"
_TTLS = OPENAI_LIFETIMES.value
_REFUSED_SCHEMA = ("oneOf", "anyOf", "allOf", "enum", "not")


class ResponsesAsked(msgspec.Struct, frozen=True):
    """A request that holds nothing unknown, in cache order.

    Attributes:
        body: The body as it came.
        items: Its input items.
        offered: Names of all tools that were defined.
        segments: Tools, instructions, items; reasoning that is left out is not among them.
        ends: The end of each item.
        breakpoints: Indexes of the segments with an explicit breakpoint.
        dropped: Reasoning that was left out, in the shape of `input_transformations`.
    """

    body: Json
    items: tuple[Json, ...]
    offered: tuple[str, ...]
    segments: tuple[Segment, ...]
    ends: tuple[End, ...]
    breakpoints: tuple[int, ...]
    dropped: tuple[Json, ...]


def read(body: Json, model: ChatModel, *, additional_tools: bool) -> ResponsesAsked:
    """Read a body into segments.

    Args:
        body: The body.
        model: What its model does.
        additional_tools: Whether `additional_tools` items are taken.

    Raises:
        Refusal: A parameter is missing, unknown or of the wrong type, or items do not fit together.
    """
    for name in _STORED:
        if body.get(name):
            raise _bad(f"the lab keeps no responses; leave out '{name}'", name)
    _known("", body, {*_TOP, "prompt_cache_options"} if model.exact else _TOP)
    _settings(body, model)
    entries = [] if body.get("tools") is None else _array("tools", body["tools"])
    if len(entries) > OPENAI_TOOLS.value:
        raise _bad(f"Invalid 'tools': array too long, at most {OPENAI_TOOLS.value}.", "tools")
    names = _tools("tools", entries, frozenset(), search=model.exact)
    reader = _Reader(body, model, names, additional_tools)
    for entry in entries:
        # A search would bring the schema; what says that it is there stands in front.
        hidden = {"parameters"} if entry.get("defer_loading") else frozenset[str]()
        reader.segments.append(segment("tools", {k: entry[k] for k in entry if k not in hidden}))
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise _wrong("instructions", "a string")
    own = [segment("system", {"type": "text", "text": instructions})] if instructions else []
    late = re.match(r"gpt-(?:6\.[2-9]|[7-9])", body["model"]) is not None
    reader.segments += [] if late else own
    given = body.get("input")
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    items = _array("input", given)
    for at, item in enumerate(items):
        reader.item(f"input[{at}]", item)
    _pairs(items)
    reader.segments += own if late else []
    return ResponsesAsked(
        body,
        tuple(items),
        tuple(reader.offered),
        tuple(reader.segments),
        tuple(reader.ends),
        tuple(reader.breakpoints),
        tuple(reader.reasoning.dropped),
    )


def without_unknown(body: Json) -> Json:
    """Return a body as an endpoint takes it that knows no `additional_tools`.

    Items of unknown types are left out in silence.
    """
    given = body.get("input")
    if not isinstance(given, list):
        return body
    known = _FIELDS.keys() - {"additional_tools"}
    kept: list[Any] = []
    for item in cast(list[Any], given):
        if not isinstance(item, dict) or kind_of(cast(Json, item)) in known:
            kept.append(item)
    return {**body, "input": kept}


def texts(item: Json) -> tuple[str, ...]:
    """Return the text parts of a message."""
    content = item.get("content")
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in cast(list[Json], content) if part["type"] == "input_text")


def kind_of(item: Json) -> str:
    """Return an item's type; a message may leave it out."""
    return str(item.get("type") or "message")


class _Reader:
    """Reads items in order; keeps what was defined so far."""

    def __init__(
        self, body: Json, model: ChatModel, names: Sequence[str], additional_tools: bool
    ) -> None:
        self.segments: list[Segment] = []
        self.ends: list[End] = []
        self.breakpoints: list[int] = []
        self.offered: dict[str, None] = dict.fromkeys(names)
        self.reasoning = Reader(body["model"], bound=model.exact)
        # What only waits for a search may be defined by an item all the same.
        entries = cast(list[Json], body.get("tools") or [])
        waits = {each.get("name") for each in entries if each.get("defer_loading")}
        self._top = frozenset(names) - waits
        self._exact = model.exact
        self._kinds = [
            kind
            for kind in _FIELDS
            if kind != "additional_tools" or (additional_tools and model.exact)
        ]

    def item(self, path: str, value: Any) -> None:
        """Take an item.

        Raises:
            Refusal: It is none that may stand there.
        """
        if not isinstance(value, dict):
            raise _wrong(path, "an object")
        item = cast(Json, value)
        kind = kind_of(item)
        if kind not in self._kinds:
            raise _unsupported(f"{path}.type", kind, self._kinds)
        _known(path, item, _FIELDS[kind])
        for name in ("id", "namespace"):
            if not isinstance(item.get(name, ""), str):
                raise _wrong(f"{path}.{name}", "a string")
        before = len(self.segments)
        match kind:
            case "message":
                role = self._message(path, item)
            case "function_call":
                role = self._call(path, item)
            case "function_call_output":
                role = self._output(path, item)
            case "reasoning":
                role = self._reason(path, item)
            case _:
                role = self._define(path, item)
        if len(self.segments) > before:
            self.ends.append(End(role, len(self.segments) - 1))

    def _message(self, path: str, item: Json) -> str:
        role = item.get("role")
        if role not in _ROLES:
            raise _unsupported(f"{path}.role", role, _ROLES)
        phase = item.get("phase")
        self.segments.append(segment(role, {} if phase is None else {"phase": phase}))
        text = "output_text" if role == "assistant" else "input_text"
        kinds = ("output_text", "refusal") if role == "assistant" else _INPUT
        self._content(f"{path}.content", item.get("content"), role, text, kinds)
        return role

    def _call(self, path: str, item: Json) -> str:
        _call_id(path, item)
        _name(f"{path}.name", item.get("name"))
        if not isinstance(item.get("arguments"), str):
            raise _wrong(f"{path}.arguments", "a string")
        value = {name: item[name] for name in ("name", "arguments", "call_id")}
        self.segments.append(segment("assistant", value))
        return "assistant"

    def _output(self, path: str, item: Json) -> str:
        _call_id(path, item)
        self.segments.append(segment("tool", {}))
        self._content(f"{path}.output", item.get("output"), "tool", "input_text", _INPUT)
        return "tool"

    def _reason(self, path: str, item: Json) -> str:
        if not isinstance(item.get("summary"), list):
            raise _bad(f"Missing required parameter: '{path}.summary'.", f"{path}.summary")
        found = self.reasoning.read(item, self.segments)
        if found is not None:
            self.segments.append(found)
        return "assistant"

    def _define(self, path: str, item: Json) -> str:
        if item.get("role") != "developer":
            raise _unsupported(f"{path}.role", item.get("role"), ["developer"])
        entries = _array(f"{path}.tools", item.get("tools"))
        names = _tools(f"{path}.tools", entries, self._top)
        self.offered.update(dict.fromkeys(names))
        self.segments.append(segment("developer", {}))
        self.segments += [segment("developer", entry) for entry in entries]
        return "additional_tools"

    def _content(self, path: str, content: Any, role: str, text: str, kinds: Sequence[str]) -> None:
        if isinstance(content, str):
            self.segments.append(segment(role, {"type": text, "text": content}))
            return
        if not isinstance(content, list):
            raise _wrong(path, "a string or an array of parts")
        for at, value in enumerate(_array(path, cast(list[Any], content))):
            place = f"{path}[{at}]"
            part = cast(Json, value) if isinstance(value, dict) else Json()
            kind = str(part.get("type"))
            if kind not in kinds:
                raise _unsupported(f"{place}.type", kind, kinds)
            may = self._exact and role != "assistant"
            names = _PART_FIELDS[kind]
            _known(place, part, {*names, _BREAK} if may else names)
            word = "refusal" if kind == "refusal" else "text"
            if word in _PART_FIELDS[kind] and not isinstance(part.get(word), str):
                raise _wrong(f"{place}.{word}", "a string")
            for name in ("image_url", "file_data"):
                if name in part:
                    check_data_url(f"{place}.{name}", part[name])
            marker = part.get(_BREAK)
            if marker is not None:
                _known(f"{place}.{_BREAK}", marker, {"mode", "ttl"})
                if marker.get("mode") != "explicit" or marker.get("ttl", "30m") not in _TTLS:
                    raise _wrong(f"{place}.{_BREAK}", '{"mode": "explicit"}')
                self.breakpoints.append(len(self.segments))
            self.segments.append(segment(role, part))


def _settings(body: Json, model: ChatModel) -> None:
    for name in ("stream", "parallel_tool_calls", "store"):
        if not isinstance(body.get(name, False), bool):
            raise _wrong(name, "a boolean")
    include: Any = body.get("include") or []
    if not isinstance(include, list):
        raise _wrong("include", "an array")
    for name in cast(list[Any], include):
        if name != ENCRYPTED:
            raise _unsupported("include[0]", name, [ENCRYPTED])
        if not model.reasons:
            raise _bad("Encrypted content is not supported with this model.", "include")
    reasoning = body.get("reasoning")
    if reasoning is not None:
        if not model.reasons:
            raise _bad(
                "Unsupported parameter: 'reasoning' is not supported with this model.",
                "reasoning",
                "unsupported_parameter",
            )
        _known("reasoning", reasoning, {"context", "effort", "summary"})
        if reasoning.get("context") not in (None, "auto", "all_turns"):
            raise _unsupported("reasoning.context", reasoning["context"], ["auto", "all_turns"])
    if body.get("stream_options") is not None:
        _known("stream_options", body["stream_options"], {"include_obfuscation"})
    most = body.get("max_output_tokens")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 16):
        raise _wrong("max_output_tokens", "an integer of at least 16")
    if not isinstance(body.get("prompt_cache_key", ""), str):
        raise _wrong("prompt_cache_key", "a string")
    options = body.get("prompt_cache_options")
    if options is not None:
        _known("prompt_cache_options", options, {"mode", "ttl", "comparison_response_id"})
        if not isinstance(options.get("comparison_response_id") or "", str):
            raise _wrong("prompt_cache_options.comparison_response_id", "a string")
        if options.get("mode", "implicit") not in ("implicit", "explicit"):
            raise _wrong("prompt_cache_options.mode", "'implicit' or 'explicit'")
        if options.get("ttl", "30m") not in _TTLS:
            raise _wrong("prompt_cache_options.ttl", "'30m' or '12h'")


def _tools(
    path: str, entries: Sequence[Any], taken: frozenset[str], *, search: bool = False
) -> list[str]:
    """Check tool entries and return the names of functions.

    Args:
        path: Where they stand.
        entries: The entries.
        taken: Names that `tools` declares: no item may define them again.
        search: Whether `tool_search` may be among them, and functions that wait for it.
    """
    names: list[str] = []
    searched = search and any(map(_is_search, entries))
    fields = {"type", "name", "description", "parameters", "strict"}
    for at, entry in enumerate(entries):
        place = f"{path}[{at}]"
        if searched and _is_search(entry):
            _known(place, entry, {"type", "execution", "description", "parameters"})
            continue
        _known(place, entry, {*fields, "defer_loading"} if searched else fields)
        if entry.get("type") != "function":
            kinds = ["function", *(["tool_search"] if search else [])]
            raise _unsupported(f"{place}.type", entry.get("type"), kinds)
        if not isinstance(entry.get("defer_loading", False), bool):
            raise _wrong(f"{place}.defer_loading", "a boolean")
        _name(f"{place}.name", entry.get("name"))
        if not isinstance(entry.get("description") or "", str):
            raise _wrong(f"{place}.description", "a string")
        name: str = entry["name"]
        _schema(f"{place}.parameters", name, entry)
        if name in names or name in taken:
            raise _bad(f"Tool '{name}' is declared twice.", f"{place}.name")
        names.append(name)
    return names


def _is_search(entry: Any) -> bool:
    return isinstance(entry, dict) and cast(Json, entry).get("type") == "tool_search"


def _schema(path: str, name: str, entry: Json) -> None:
    value = entry.get("parameters")
    schema = cast(Json, value) if isinstance(value, dict) else Json()
    strict = entry.get("strict", True)
    problem = ""
    if schema.get("type") != "object" or any(word in schema for word in _REFUSED_SCHEMA):
        problem = (
            "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at"
            " the top level"
        )
    elif strict is not False and schema.get("additionalProperties") is not False:
        problem = "'additionalProperties' is required to be supplied and to be false"
    if problem:
        raise _bad(
            f"Invalid schema for function '{name}': {problem}.", path, "invalid_function_parameters"
        )


def _pairs(items: Sequence[Json]) -> None:
    """Check that calls and outputs, and reasoning and what it led to, stand together."""
    waiting: dict[str, None] = {}
    made: set[str] = set()
    seen: set[str] = set()
    for at, item in enumerate(items):
        kind = kind_of(item)
        if kind == "reasoning":
            seen.add(item.get("id", ""))
            _followed(item, items[at + 1] if at + 1 < len(items) else {})
        elif kind == "function_call":
            if item["call_id"] in made:
                raise _bad(f"Duplicate function call id {item['call_id']}.", "input")
            made.add(item["call_id"])
            waiting[item["call_id"]] = None
        elif kind == "function_call_output":
            if item["call_id"] not in waiting:
                raise _bad(
                    f"No tool call found for function call output with call_id {item['call_id']}.",
                    "input",
                )
            del waiting[item["call_id"]]
        led = _FOLLOWER.fullmatch(item.get("id", ""))
        if led is not None and f"rs_{led[1]}" not in seen:
            raise _bad(
                f"Item '{item['id']}' of type '{kind}' was provided without its required"
                f" 'reasoning' item: 'rs_{led[1]}'.",
                "input",
            )
    if waiting:
        raise _bad(f"No tool output found for function call {next(iter(waiting))}.", "input")


def _followed(item: Json, following: Json) -> None:
    led = _FOLLOWER.fullmatch(str(following.get("id", "")))
    if led is None or f"rs_{led[1]}" != item.get("id"):
        raise _bad(
            f"Item '{item.get('id')}' of type 'reasoning' was provided without its required"
            " following item.",
            "input",
        )


def _call_id(path: str, item: Json) -> None:
    given = item.get("call_id")
    if not isinstance(given, str) or not 1 <= len(given) <= 64:
        raise _wrong(f"{path}.call_id", "a string of 1 to 64 characters")


def _known(path: str, value: Any, names: frozenset[str] | set[str]) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, "an object")
    for name in cast(Json, value):
        if name not in names:
            full = f"{path}.{name}" if path else name
            raise _bad(f"Unknown parameter: '{full}'.", full, "unknown_parameter")


def _array(path: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "an array")
    if not value:
        raise _bad(f"Invalid '{path}': empty array, at least 1 expected.", path, "empty_array")
    return cast(list[Any], value)


def _name(path: str, value: Any) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _bad(
            f"Invalid '{path}': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'.", path
        )


def _unsupported(path: str, value: object, taken: Iterable[str]) -> Refusal:
    names = " and ".join(f"'{each}'" for each in taken)
    return _bad(f"Invalid value: '{value}'. Supported values are: {names}.", path)


def _wrong(path: str, expected: str) -> Refusal:
    return _bad(f"Invalid type or value for '{path}': expected {expected}.", path, "invalid_type")


def _bad(message: str, param: str, code: str | None = None) -> Refusal:
    return Refusal(message, param=param, code=code or "invalid_value")
