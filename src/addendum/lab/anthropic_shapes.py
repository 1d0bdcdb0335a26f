"""The Anthropic wire, field by field: what a request may hold, and its reading into messages.

Unknown fields and block types are refused, as the Messages API refuses them. What one speaker of
the wire takes and another does not is a `Dialect`, so that Claude and DeepSeek share the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeGuard, cast

import jsonschema_rs
import msgspec

from addendum import encoding
from addendum.lab.facts import CLAUDE_LIFETIME_SECONDS
from addendum.lab.files import IMAGES, check_file
from addendum.lab.refusal import Refusal

Json = dict[str, Any]
Role = Literal["user", "assistant", "system"]
Fields = tuple[frozenset[str], frozenset[str]]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CHANGES = ("tool_addition", "tool_removal")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


def fields(required: str, optional: str = "") -> Fields:
    """Return two sets of field names from two lists separated by blanks."""
    return frozenset(required.split()), frozenset(optional.split())


class Dialect(msgspec.Struct, frozen=True):
    """What one speaker of the wire takes.

    Attributes:
        top: Fields of the body.
        tool: Fields of a tool that the client runs.
        hosted: Types of tools that the provider runs.
        blocks: Block types and their fields by role; no entry for a role: the role is refused.
        inline: A `tool_addition` may hold a definition.
        clear_at: A system message may carry `clear_at`.
        output_config: A system message may carry `output_config`.
        binding: `thinking` may carry `block_binding`.
        budget: Manual thinking has to say its budget.
        marks: `cache_control` is checked; otherwise it is ignored.
        forced_name: `tool_choice` may name a tool.
        no_system: The refusal of a system-role message, where the model takes none.
        misplaced_changes: Every tool change is refused as if it stood in the wrong place, as
            endpoints do that know the blocks and not the feature.
    """

    top: Fields
    tool: Fields
    hosted: frozenset[str]
    blocks: Mapping[Role, Mapping[str, Fields]]
    inline: bool = False
    clear_at: bool = False
    output_config: bool = False
    binding: bool = False
    budget: bool = True
    marks: bool = True
    forced_name: bool = True
    no_system: str = ""
    misplaced_changes: bool = False


class Message(msgspec.Struct, frozen=True):
    """One message, its content always a list of blocks.

    Attributes:
        role: Its role.
        blocks: Its blocks.
        turn_scoped: It carries `clear_at`.
        effort: It carries `output_config`.
    """

    role: Role
    blocks: tuple[Json, ...]
    turn_scoped: bool = False
    effort: bool = False


class Asked(msgspec.Struct, frozen=True):
    """A request that holds nothing unknown.

    Attributes:
        body: The body as it came.
        tools: Entries of `tools`.
        system: The blocks of `system`.
        messages: The messages.
    """

    body: Json
    tools: tuple[Json, ...]
    system: tuple[Json, ...]
    messages: tuple[Message, ...]

    @property
    def thinking(self) -> Json:
        """The request's `thinking` field, empty if it has none."""
        return self.body.get("thinking", {})


def read(body: Json, dialect: Dialect) -> Asked:
    """Read a body into tools, system blocks and messages.

    Raises:
        Refusal: A field is missing, unknown or of the wrong type; the message begins with its path.
    """
    _fields("", body, dialect.top)
    _settings(body, dialect)
    tools = tuple(
        _tool(f"tools.{at}", each, dialect) for at, each in enumerate(_list("tools", body))
    )
    system = _text_blocks("system", body.get("system", []))
    for at, block in enumerate(system):
        _block(f"system.{at}", block, "system", {"text": fields("text", "cache_control citations")})
        _mark(f"system.{at}", block, dialect)
    messages = tuple(
        _message(f"messages.{at}", each, dialect)
        for at, each in enumerate(_list("messages", body, required=True))
    )
    return Asked(body, tools, system, messages)


def without_unknown(body: Json, dialect: Dialect) -> Json:
    """Return a body as an endpoint takes it that leaves out what it does not know.

    Unknown block types go, and messages that held nothing else; so do unknown fields of tools,
    `defer_loading` among them.
    """
    known = dialect.tool[0] | dialect.tool[1] - {"defer_loading"}
    tools = [
        {name: tool[name] for name in tool if name in known} if _is_object(tool) else tool
        for tool in _list("tools", body)
    ]
    messages: list[Any] = []
    for message in _list("messages", body):
        content: Any = message.get("content") if _is_object(message) else None
        if isinstance(content, list):
            taken = dialect.blocks.get(cast(Role, _word(message, "role")), {})
            given = cast(list[Any], content)
            blocks = [b for b in given if not _is_object(b) or _word(b, "type") in taken]
            if given and not blocks:
                continue
            message = {**message, "content": blocks}
        messages.append(message)
    return {**body, **({"tools": tools} if tools else {}), "messages": messages}


def marks_of(block: Json) -> list[Json]:
    """Return the cache marks that a block carries, those of its inner blocks included."""
    inner: list[Any] = [block]
    if isinstance(block.get("content"), list):
        inner += block["content"]
    if isinstance(block.get("tool"), dict):
        inner.append(block["tool"].get("definition"))
    held = [cast(Json, each) for each in inner if isinstance(each, dict)]
    marks = [each.get("cache_control") for each in held]
    return [cast(Json, mark) for mark in marks if isinstance(mark, dict)]


def _settings(body: Json, dialect: Dialect) -> None:
    _type("model", body["model"], str)
    limit = _type("max_tokens", body["max_tokens"], int)
    if limit < 0:
        raise Refusal("max_tokens: Input should be greater than or equal to 0")
    _type("stream", body.get("stream", False), bool)
    thinking = _type("thinking", body.get("thinking", {"type": "disabled"}), dict)
    kind = _word(thinking, "type")
    allowed = {"enabled": "budget_tokens display", "adaptive": "display", "disabled": ""}
    if kind not in allowed:
        raise _tag("thinking", kind, allowed)
    extra = " block_binding" if dialect.binding else ""
    _fields("thinking", thinking, fields("type", allowed[kind] + extra))
    if kind == "enabled" and dialect.budget:
        if "budget_tokens" not in thinking:
            raise Refusal("thinking.enabled.budget_tokens: Field required")
        budget = _type("thinking.enabled.budget_tokens", thinking["budget_tokens"], int)
        if budget < 1024:
            raise Refusal("thinking.enabled.budget_tokens: Input should be >= 1024")
        if budget >= limit:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`")
    binding = _type("thinking.block_binding", thinking.get("block_binding", {}), dict)
    _fields("thinking.block_binding", binding, fields("", "prefix_mismatch_behavior"))
    if binding.get("prefix_mismatch_behavior", "error") not in ("error", "drop_block"):
        raise Refusal(
            "thinking.block_binding.prefix_mismatch_behavior: Input should be 'error' or"
            " 'drop_block'"
        )
    _type("output_config", body.get("output_config", {}), dict)
    choice = body.get("tool_choice")
    if choice is not None:
        kinds = ("auto", "any", "none", "tool") if dialect.forced_name else ("auto", "any", "none")
        kind = _word(_type("tool_choice", choice, dict), "type")
        if kind not in kinds:
            raise _tag("tool_choice", kind, kinds)
        named = "name" if kind == "tool" else ""
        _fields("tool_choice", choice, fields(f"type {named}", "disable_parallel_tool_use"))
    if dialect.marks and "cache_control" in body:
        _mark("", body, dialect)


def _tool(path: str, entry: Any, dialect: Dialect) -> Json:
    tool = _type(path, entry, dict)
    kind = _word(tool, "type", "custom")
    if kind != "custom":
        if kind not in dialect.hosted:
            raise _tag(path, kind, {"custom", *dialect.hosted} if "type" in dialect.tool[1] else [])
        _fields(path, tool, fields("type name", "cache_control defer_loading"))
    else:
        path = f"{path}.custom" if dialect.hosted else path
        _fields(path, tool, dialect.tool)
        _type(f"{path}.description", tool.get("description", ""), str)
        _schema(f"{path}.input_schema", tool["input_schema"])
    if not _NAME.fullmatch(_type(f"{path}.name", tool["name"], str)):
        raise Refusal(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    _type(f"{path}.defer_loading", tool.get("defer_loading", False), bool)
    _mark(path, tool, dialect)
    if dialect.marks and tool.get("defer_loading") and tool.get("cache_control"):
        raise Refusal(f"{path}: a tool with `defer_loading` cannot have `cache_control`")
    return tool


def _schema(path: str, value: Any) -> None:
    schema = _type(path, value, dict)
    if "type" not in schema:
        raise Refusal(f"{path}.type: Field required")
    if schema["type"] != "object":
        raise Refusal(f"{path}.type: Input should be 'object'")
    if any(key in schema for key in ("oneOf", "anyOf", "allOf")):
        raise Refusal(f"{path}: does not support oneOf, allOf, or anyOf at the top level")
    if not _is_schema(encoding.encode(schema)):
        raise Refusal(f"{path}: JSON schema is invalid. It must match JSON Schema draft 2020-12")


@lru_cache(maxsize=4096)
def _is_schema(text: bytes) -> bool:
    schema = encoding.decode(text)
    schema.pop("$schema", None)
    return jsonschema_rs.meta.is_valid(schema)


def _message(path: str, entry: Any, dialect: Dialect) -> Message:
    message = _type(path, entry, dict)
    role = cast(Role, _word(message, "role"))
    if role == "system" and "system" not in dialect.blocks:
        raise Refusal(f"{path}: {dialect.no_system}")
    if role not in dialect.blocks:
        names = " or ".join(f"'{each}'" for each in dialect.blocks)
        raise Refusal(f"{path}.role: Input should be {names}")
    extra = " ".join(
        name
        for name, allowed in (
            ("clear_at", dialect.clear_at),
            ("output_config", dialect.output_config),
        )
        if role == "system" and allowed
    )
    _fields(path, message, fields("role content", extra))
    blocks = _text_blocks(f"{path}.content", message["content"])
    turn_scoped = "clear_at" in message
    effort = "output_config" in message
    if turn_scoped and message["clear_at"] != "next_user_message":
        raise Refusal(f"{path}.clear_at: Input should be 'next_user_message'")
    if turn_scoped and effort:
        raise Refusal(f"{path}: `clear_at` and `output_config` cannot be combined")
    if not blocks and not effort:
        raise Refusal(f"{path}: all messages must have non-empty content")
    for at, block in enumerate(blocks):
        place = f"{path}.content.{at}"
        _block(place, block, role, dialect.blocks[role], dialect)
        if turn_scoped and block["type"] != "text":
            raise Refusal(f"{place}: a message with `clear_at` may hold text only")
        if turn_scoped and dialect.marks and marks_of(block):
            raise Refusal(f"{place}.cache_control: not allowed in a message with `clear_at`")
    return Message(role, blocks, turn_scoped, effort)


def _block(
    path: str, block: Json, role: str, known: Mapping[str, Fields], dialect: Dialect | None = None
) -> None:
    kind = _word(block, "type")
    if kind not in known:
        if kind in _CHANGES and (role != "system" or (dialect and dialect.misplaced_changes)):
            raise Refusal(f"{path}: {kind} blocks can only be in `system` messages")
        raise _tag(path, kind, known)
    place = f"{path}.{kind}"
    required, optional = known[kind]
    _fields(place, block, (required | {"type"}, optional))
    if kind == "text":
        text = _type(f"{place}.text", block["text"], str)
        if not text:
            raise Refusal(f"{path}: text content blocks must be non-empty")
        if dialect is not None and not text.strip():
            raise Refusal(f"{path}: text content blocks must contain non-whitespace text")
    if kind == "tool_use":
        _call_id(f"{place}.id", block["id"])
        _type(f"{place}.input", block["input"], dict)
        if not _NAME.fullmatch(_type(f"{place}.name", block["name"], str)):
            raise Refusal(f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if kind in ("image", "document"):
        source = _type(f"{place}.source", block["source"], dict)
        if source.get("type") == "base64":
            _fields(f"{place}.source", source, fields("type media_type data"))
            pdf = ("application/pdf",)
            takes = IMAGES if kind == "image" else pdf
            check_file(f"{place}.source.base64", source["media_type"], source["data"], takes)
    if dialect is None:
        return
    _mark(place, block, dialect)
    if kind == "tool_result":
        _call_id(f"{place}.tool_use_id", block["tool_use_id"])
        _result(place, block, dialect)
    elif kind in _CHANGES:
        _change(place, block, dialect)


def _result(path: str, block: Json, dialect: Dialect) -> None:
    _type(f"{path}.is_error", block.get("is_error", False), bool)
    content = block.get("content", "")
    if isinstance(content, str):
        return
    inner = {kind: known for kind, known in dialect.blocks["user"].items() if kind != "tool_result"}
    if dialect.hosted:
        inner["tool_reference"] = fields("tool_name", "cache_control")
    blocks = [_type(path, each, dict) for each in _type(f"{path}.content", content, list)]
    for at, each in enumerate(blocks):
        _block(f"{path}.content.{at}", each, "user", inner)
        _mark(f"{path}.content.{at}", each, dialect)
        _type(f"{path}.content.{at}.tool_name", each.get("tool_name", ""), str)
    kinds = {each["type"] for each in blocks}
    if block.get("is_error") and kinds - {"text"}:
        raise Refusal(f"{path}: all content must be type `text` if `is_error` is true")
    if "tool_reference" in kinds and len(kinds) > 1:
        raise Refusal(f"{path}: Tool definitions cannot be mixed with other content")


def _change(path: str, block: Json, dialect: Dialect) -> None:
    tool = _type(f"{path}.tool", block["tool"], dict)
    kinds = {"tool_reference": fields("type name")}
    if dialect.inline and block["type"] == "tool_addition":
        kinds["tool_definition"] = fields("type definition")
    kind = _word(tool, "type")
    if kind not in kinds:
        raise _tag(f"{path}.tool", kind, kinds)
    _fields(f"{path}.tool", tool, kinds[kind])
    if kind == "tool_reference":
        _type(f"{path}.tool.name", tool["name"], str)
        return
    definition = _type(f"{path}.tool.definition", tool["definition"], dict)
    if _word(definition, "type", "custom") != "custom":
        raise Refusal(
            f"{path}.tool.definition: a tool of type {definition['type']!r} cannot be defined by"
            " value; declare it in `tools`"
        )
    _tool(f"{path}.tool.definition", definition, dialect)
    if definition.get("cache_control") and block.get("cache_control"):
        raise Refusal(f"{path}: `cache_control` is on the block and on its definition; keep one")


def _mark(path: str, holder: Json, dialect: Dialect) -> None:
    mark = holder.get("cache_control")
    if mark is None or not dialect.marks:
        return
    place = f"{path}.cache_control" if path else "cache_control"
    _fields(place, _type(place, mark, dict), fields("type", "ttl"))
    if mark["type"] != "ephemeral":
        raise _tag(place, _word(mark, "type"), ("ephemeral",))
    if _word(mark, "ttl", "5m") not in CLAUDE_LIFETIME_SECONDS.value:
        raise Refusal(f"{place}.ephemeral.ttl: Input should be '5m' or '1h'")


def _call_id(path: str, value: Any) -> None:
    if not _CALL_ID.fullmatch(_type(path, value, str)):
        raise Refusal(f"{path}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _text_blocks(path: str, content: Any) -> tuple[Json, ...]:
    """Return content as blocks; a plain string is one text block, an empty one is none."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    blocks = _type(path, content, list)
    return tuple(_type(f"{path}.{at}", each, dict) for at, each in enumerate(blocks))


def _list(name: str, body: Json, *, required: bool = False) -> list[Any]:
    value = _type(name, body.get(name, []), list)
    if required and not value:
        raise Refusal(f"{name}: at least one message is required")
    return value


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _fields(path: str, value: Json, known: Fields) -> None:
    required, optional = known
    prefix = f"{path}." if path else ""
    for name in sorted(required - value.keys()):
        raise Refusal(f"{prefix}{name}: Field required")
    for name in value:
        if name not in required and name not in optional:
            raise Refusal(f"{prefix}{name}: Extra inputs are not permitted")


def _type(path: str, value: Any, kind: type[Any]) -> Any:
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if wrong:
        words = {dict: "an object", list: "an array", str: "a valid string", int: "a valid integer"}
        raise Refusal(f"{path}: Input should be {words.get(kind, 'a valid boolean')}")
    return value


def _word(value: Json, name: str, default: str = "") -> str:
    """Return a field that should be a word; anything else is no word that is known."""
    found = value.get(name, default)
    return found if isinstance(found, str) else ""


def _tag(path: str, found: Any, expected: Any) -> Refusal:
    tags = ", ".join(f"'{each}'" for each in sorted(expected))
    return Refusal(
        f"{path}: Input tag '{found}' found using 'type' does not match any of the expected tags:"
        f" {tags}"
    )
