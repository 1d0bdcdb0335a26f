"""Chat Completions, field by field: what a request may hold, and its reading into segments.

Unknown arguments are refused, as are messages out of order and tools of another shape. OpenAI and
a generic compatible server share the code; what differs is a `ChatDialect`.

Source: openai-python 3.57.0 types, and 400 answers seen by their users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from addendum import encoding
from addendum.lab.chat_shapes import check_shapes
from addendum.lab.facts import OPENAI_TOOLS
from addendum.lab.files import check_data_url
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, segment

Json = dict[str, Any]

_MARKABLE = frozenset({"text", "image_url", "input_audio", "file"})
_PARTS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": _MARKABLE,
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}
_FIELDS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_TOP = frozenset(
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens"
    " max_completion_tokens temperature top_p n stop seed response_format reasoning_effort"
    " verbosity user metadata store prompt_cache_key prompt_cache_retention safety_identifier"
    " service_tier frequency_penalty presence_penalty".split()
)


class ChatDialect(msgspec.Struct, frozen=True):
    """What one server of the wire takes.

    Attributes:
        roles: Roles of messages.
        top: Further fields of the body.
        breakpoints: Takes `prompt_cache_options` and `prompt_cache_breakpoint`.
        marks: Takes `cache_control` on text parts of what goes in, and on tools.
        max_tokens: Takes `max_tokens`.
        reasoning: Fields of an assistant message that may hold reasoning.
        message_tools: Takes tools in system messages; then every name is unique in a request.
        names: Regular expression that the name of a tool has to match.
        call_ids: Regular expression that the id of a call has to match.
        refused: Shapes of a history that it refuses (`addendum.lab.chat_shapes`).
        result_names: Takes the name of the tool beside a result, which OpenAI's types have not.
    """

    roles: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")
    top: frozenset[str] = frozenset()
    breakpoints: bool = False
    marks: bool = False
    max_tokens: bool = False
    reasoning: frozenset[str] = frozenset()
    message_tools: bool = False
    names: str = "[a-zA-Z0-9_-]{1,64}"
    call_ids: str = "(?s).+"
    refused: frozenset[str] = frozenset()
    result_names: bool = True


class End(msgspec.Struct, frozen=True):
    """The end of a message.

    Attributes:
        role: The message's role.
        last: Index of its last segment.
    """

    role: str
    last: int


class ChatAsked(msgspec.Struct, frozen=True):
    """A request that holds nothing unknown, in cache order.

    Attributes:
        body: The body as it came.
        messages: Its messages.
        offered: Names of its tools, those inside messages among them.
        segments: The tools, then the messages.
        ends: The end of each message.
        breakpoints: Indexes of the segments with an explicit breakpoint.
        marks: Lifetimes of marks by the index of the segment they stand on.
        heads: Indexes of the segments that begin a message.
    """

    body: Json
    messages: tuple[Json, ...]
    offered: tuple[str, ...]
    segments: tuple[Segment, ...]
    ends: tuple[End, ...]
    breakpoints: tuple[int, ...]
    marks: Mapping[int, str] = {}
    heads: frozenset[int] = frozenset()


def read(body: Json, dialect: ChatDialect) -> ChatAsked:
    """Read a body into segments.

    Raises:
        Refusal: An argument is missing, unknown or of the wrong type, or messages are out of order.
    """
    extra = {"prompt_cache_options"} if dialect.breakpoints else set[str]()
    _known("", body, _TOP | extra | dialect.top)
    _settings(body, dialect)
    tools = [_tool(f"tools[{at}]", each, dialect) for at, each in enumerate(_tools(body))]
    messages = _array("messages", body.get("messages"))
    segments = [segment("tools", tool) for tool in tools]
    marks = {at: _lifetime(tool) for at, tool in enumerate(tools) if "cache_control" in tool}
    names: list[str] = [tool["function"]["name"] for tool in tools]
    ends: list[End] = []
    breakpoints: list[int] = []
    heads: set[int] = set()
    for at, entry in enumerate(messages):
        made = _message(f"messages[{at}]", entry, dialect)
        heads.add(len(segments))
        breakpoints += [len(segments) + number for number, marked in made if marked == "explicit"]
        marks |= {len(segments) + number: marked for number, marked in made if marked}
        segments += message_segments(entry)
        names += [tool["function"]["name"] for tool in entry.get("tools", ())]
        ends.append(End(entry["role"], len(segments) - 1))
    check_shapes(body, messages, dialect.refused)
    _order(messages)
    if dialect.message_tools and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _bad(f"function name {twice} is duplicated", "tools")
    return ChatAsked(
        body,
        tuple(messages),
        tuple(names),
        tuple(segments),
        tuple(ends),
        tuple(breakpoints),
        {} if dialect.breakpoints and not dialect.marks else marks,
        frozenset(heads),
    )


def texts(message: Json) -> tuple[str, ...]:
    """Return the text parts of a message."""
    content = message.get("content")
    if isinstance(content, str):
        return (content,)
    parts = cast(list[Json], content or [])
    return tuple(part["text"] for part in parts if part["type"] == "text")


def _settings(body: Json, dialect: ChatDialect) -> None:
    if not isinstance(body.get("model"), str):
        raise _bad("you must provide a model parameter", "model")
    if "max_tokens" in body and not dialect.max_tokens:
        raise _bad(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
            " 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    for name in ("stream", "parallel_tool_calls", "store"):
        if not isinstance(body.get(name, False), bool):
            raise _wrong(name, "a boolean")
    if body.get("n", 1) != 1:
        raise _bad("the lab answers with one choice; leave out 'n'", "n")
    if body.get("stream_options") is not None:
        if not body.get("stream"):
            raise _bad(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                "stream_options",
            )
        _known("stream_options", body["stream_options"], {"include_usage", "include_obfuscation"})
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not body.get("tools"):
            raise _bad(f"'{name}' is only allowed when 'tools' are specified.", name)
    options = body.get("prompt_cache_options")
    if dialect.breakpoints and options is not None:
        _known("prompt_cache_options", options, {"mode", "ttl"})
        if options.get("mode", "implicit") not in ("implicit", "explicit"):
            raise _wrong("prompt_cache_options.mode", "'implicit' or 'explicit'")
        if options.get("ttl", "30m") != "30m":
            raise _wrong("prompt_cache_options.ttl", "'30m' on Chat Completions")


def _tools(body: Json) -> list[Any]:
    if body.get("tools") is None:
        return []
    tools = _array("tools", body["tools"])
    if len(tools) > OPENAI_TOOLS.value:
        raise _bad(
            f"Invalid 'tools': array too long. Expected an array with maximum length"
            f" {OPENAI_TOOLS.value}, but got an array with length {len(tools)} instead.",
            "tools",
            "array_above_max_length",
        )
    return tools


def _tool(path: str, tool: Any, dialect: ChatDialect) -> Json:
    _known(path, tool, {"type", "function"} | ({"cache_control"} if dialect.marks else set()))
    if "cache_control" in tool:
        _checked_mark(path, tool)
    if tool.get("type") != "function":
        raise _wrong(f"{path}.type", "'function'")
    function = tool.get("function")
    _known(f"{path}.function", function, {"name", "description", "parameters", "strict"})
    _name(f"{path}.function.name", function.get("name"), dialect.names)
    if not isinstance(function.get("description", ""), str):
        raise _wrong(f"{path}.function.description", "a string")
    parameters = function.get("parameters", {"type": "object"})
    refused = ("oneOf", "anyOf", "allOf", "enum", "not")
    if (
        not isinstance(parameters, dict)
        or parameters.get("type") != "object"  # pyright: ignore[reportUnknownMemberType]
        or any(key in parameters for key in refused)
    ):
        raise _bad(
            f"Invalid schema for function '{function['name']}': schema must have type 'object' and"
            " not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
            f"{path}.function.parameters",
            "invalid_function_parameters",
        )
    return tool


def _message(path: str, message: Any, dialect: ChatDialect) -> list[tuple[int, str]]:
    """Check one message; return its segments' numbers and the mark that each carries."""
    if not isinstance(message, dict):
        raise _wrong(path, "an object")
    entry = cast(Json, message)
    role = entry.get("role")
    if role not in dialect.roles:
        names = ", ".join(f"'{each}'" for each in dialect.roles)
        raise _bad(f"Invalid value: {role!r}. Supported values are: {names}.", f"{path}.role")
    if dialect.message_tools and role == "system" and "tools" in entry:
        return _declaring(path, entry, dialect)
    extra = dialect.reasoning if role == "assistant" else frozenset[str]()
    if role == "tool" and dialect.result_names:
        extra = frozenset({"name"})
    _known(path, entry, _FIELDS[role] | extra)
    calls = _calls(path, entry, dialect)
    content = entry.get("content")
    if role == "tool" and not isinstance(entry.get("tool_call_id"), str):
        raise _bad(f"Missing required parameter: '{path}.tool_call_id'.", f"{path}.tool_call_id")
    if content is None and role == "assistant" and (calls or entry.get("refusal")):
        return []
    if isinstance(content, str):
        return [(1, "")]
    if not isinstance(content, list):
        raise _wrong(f"{path}.content", "a string or an array of parts")
    parts = _array(f"{path}.content", cast(list[Any], content))
    marked: list[tuple[int, str]] = []
    for at, part in enumerate(parts):
        marked.append((at + 1, _part(f"{path}.content[{at}]", part, role, dialect)))
    return marked


def _declaring(path: str, entry: Json, dialect: ChatDialect) -> list[tuple[int, str]]:
    """Check a system message that declares tools."""
    if "content" in entry:
        raise _bad("a system message with tools must not have content", f"{path}.content")
    _known(path, entry, {"role", "tools"})
    for at, tool in enumerate(_array(f"{path}.tools", entry["tools"])):
        _tool(f"{path}.tools[{at}]", tool, dialect)
    return []


def _checked_mark(path: str, value: Json) -> None:
    mark = value["cache_control"]
    _known(f"{path}.cache_control", mark, {"type", "ttl"})
    if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
        raise _wrong(f"{path}.cache_control", '{"type": "ephemeral"}')


def _lifetime(value: Json) -> str:
    return str(value["cache_control"].get("ttl", "5m"))


def _part(path: str, value: Any, role: str, dialect: ChatDialect) -> str:
    """Check one part of a content list; return the mark that it carries, or nothing."""
    part = cast(Json, value) if isinstance(value, dict) else Json()
    kind = str(part.get("type"))
    if kind not in _PARTS[role]:
        names = " and ".join(f"'{each}'" for each in sorted(_PARTS[role]))
        raise _bad(f"Invalid value: '{kind}'. Supported values are: {names}.", path)
    names = {"type", kind}
    if dialect.breakpoints and role != "assistant":
        names.add("prompt_cache_breakpoint")
    if dialect.marks and role != "assistant" and kind == "text":
        names.add("cache_control")
    _known(path, part, names)
    if "cache_control" in part:
        _checked_mark(path, part)
        if not part.get("text"):
            raise _bad("cache_control cannot be set for empty text blocks", path)
    if kind == "text" and not isinstance(part.get("text"), str):
        raise _wrong(f"{path}.text", "a string")
    if kind in ("image_url", "file"):
        if not isinstance(part.get(kind), dict):
            raise _wrong(f"{path}.{kind}", "an object")
        name = "url" if kind == "image_url" else "file_data"
        if name == "url" or name in part[kind]:
            check_data_url(f"{path}.{kind}.{name}", part[kind].get(name))
    marker = part.get("prompt_cache_breakpoint")
    if marker is None:
        return _lifetime(part) if "cache_control" in part else ""
    _known(f"{path}.prompt_cache_breakpoint", marker, {"mode", "ttl"})
    if marker.get("mode") != "explicit" or marker.get("ttl", "30m") != "30m":
        raise _wrong(f"{path}.prompt_cache_breakpoint", '{"mode": "explicit"}')
    return "explicit"


def _calls(path: str, message: Json, dialect: ChatDialect) -> list[Json]:
    if "tool_calls" not in message:
        return []
    calls = _array(f"{path}.tool_calls", message["tool_calls"])
    for at, call in enumerate(calls):
        place = f"{path}.tool_calls[{at}]"
        _known(place, call, {"id", "type", "function"})
        if not isinstance(call.get("id"), str) or call.get("type") != "function":
            raise _wrong(place, "an object with a string 'id' and type 'function'")
        if not re.fullmatch(dialect.call_ids, call["id"]):
            raise _bad(f"Tool call id was {call['id']} but must match {dialect.call_ids}", place)
        function = call.get("function")
        _known(f"{place}.function", function, {"name", "arguments"})
        _name(f"{place}.function.name", function.get("name"), dialect.names)
        if not isinstance(function.get("arguments"), str):
            raise _wrong(f"{place}.function.arguments", "a string")
    return calls


def _order(messages: Sequence[Json]) -> None:
    """Check that every call is answered once, directly behind its message, and nothing else is."""
    waiting: list[str] = []
    in_round = False
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if not in_round:
                raise _bad(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding"
                    " message with 'tool_calls'.",
                    f"messages[{at}].role",
                )
            if message["tool_call_id"] not in waiting:
                raise _bad(
                    f"Invalid parameter: 'tool_call_id' of '{message['tool_call_id']}' not found in"
                    " 'tool_calls' of the previous message, or answered twice.",
                    f"messages[{at}].tool_call_id",
                )
            waiting.remove(message["tool_call_id"])
            continue
        _answered(waiting, at)
        calls: list[Json] = message.get("tool_calls", [])
        waiting = [call["id"] for call in calls]
        in_round = bool(calls)
        if len(set(waiting)) != len(waiting):
            raise _bad("Duplicate ids in 'tool_calls'.", f"messages[{at}].tool_calls")
    _answered(waiting, len(messages))


def _answered(waiting: Sequence[str], at: int) -> None:
    if waiting:
        raise _bad(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to"
            " each 'tool_call_id'. The following tool_call_ids did not have response messages:"
            f" {', '.join(waiting)}",
            f"messages[{at}].role",
        )


def message_segments(message: Json) -> list[Segment]:
    """Return a message's head (its other fields), then its parts, tools and calls."""
    role: str = message["role"]
    apart = ("role", "content", "tool_calls", "tools")
    found = [segment(role, {k: v for k, v in message.items() if k not in apart and v is not None})]
    content = message.get("content")
    if isinstance(content, str):
        found.append(segment(role, {"type": "text", "text": content}))
    else:
        found += [segment(role, part) for part in cast(list[Json], content or [])]
    found += [segment(role, tool) for tool in message.get("tools", [])]
    found += [segment(role, call) for call in message.get("tool_calls", [])]
    return found


def _known(path: str, value: Any, names: frozenset[str] | set[str]) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, "an object")
    for name in cast(Json, value):
        if name not in names:
            full = f"{path}.{name}" if path else name
            raise _bad(f"Unrecognized request argument supplied: {full}", full, "unknown_parameter")


def _array(path: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "an array")
    if not value:
        raise _bad(
            f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an"
            " empty array instead.",
            path,
            "empty_array",
        )
    return cast(list[Any], value)


def _name(path: str, value: Any, pattern: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise _bad(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the"
            f" pattern '^{pattern}$'.",
            path,
        )


def _wrong(path: str, expected: str) -> Refusal:
    return _bad(f"Invalid type or value for '{path}': expected {expected}.", path, "invalid_type")


def _bad(message: str, param: str, code: str | None = None) -> Refusal:
    return Refusal(message, param=param, code=code or "invalid_value")


def error_body(error: Refusal) -> bytes:
    """Return a refusal in the wire's error shape."""
    kinds = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
    kind = kinds.get(error.status, error.kind)
    body = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    return encoding.encode({"error": body})
