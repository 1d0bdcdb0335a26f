"""`generateContent`, field by field and across fields: what a request may hold, read into segments.

Sources: google-genai 3.6.1 types; ai.google.dev, "Function calling" and "Thought signatures"
(2026-10); refusals that clients met: a call of the current turn without a signature
(karthink/gptel#1146), a signature of another model, another number of responses than of calls,
empty parts and contents (google/adk-python#6062), an object without properties (vercel/ai#3371).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import jsonschema_rs
import msgspec

from addendum.lab.files import check_file
from addendum.lab.gemini_signatures import STAND_IN, is_own
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, segment

Json = dict[str, Any]

_TOP = frozenset(
    "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent"
    " labels model".split()
)
_GENERATION = frozenset(
    "maxOutputTokens temperature topP topK stopSequences thinkingConfig candidateCount seed"
    " responseMimeType responseJsonSchema presencePenalty frequencyPenalty".split()
)
_THINKING = {"thinkingLevel": str, "thinkingBudget": int, "includeThoughts": bool}
_DATA = ("text", "functionCall", "functionResponse")
_FILES = ("image/png", "image/jpeg", "image/webp", "application/pdf")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


class GeminiAsked(msgspec.Struct, frozen=True):
    """A request that holds nothing unknown.

    Attributes:
        body: The body as it came.
        contents: Role and parts of each content.
        offered: Names of the tools on offer.
        segments: What is counted, in cache order.
        thinking: Its `thinkingConfig`, empty if it has none.
    """

    body: Json
    contents: tuple[tuple[str, tuple[Json, ...]], ...]
    offered: tuple[str, ...]
    segments: tuple[Segment, ...]
    thinking: Json


def read(body: Json, model: str, *, signs: bool) -> GeminiAsked:
    """Read a body.

    Args:
        body: The body.
        model: The model's id, for signatures.
        signs: Whether the model asks for signatures.

    Raises:
        Refusal: It breaks a rule of the API or of the model.
    """
    _known("", body, _TOP)
    config = _table("generation_config", body.get("generationConfig", {}))
    _known("generation_config", config, _GENERATION)
    thinking = _table("thinking_config", config.get("thinkingConfig", {}))
    _known("thinking_config", thinking, frozenset(_THINKING))
    for name, value in thinking.items():
        if not isinstance(value, _THINKING[name]):
            raise Refusal(f"Invalid value at 'generation_config.thinking_config.{name}'")
    _table("tool_config", body.get("toolConfig", {}))
    if body.get("cachedContent") is not None:
        raise Refusal("CachedContent not found (or permission denied)", status=403)
    declarations = _declarations(body.get("tools", []))
    system = _table("system_instruction", body.get("systemInstruction", {}))
    texts = [
        _text_part(each) for each in _list("system_instruction.parts", system.get("parts", []))
    ]
    contents = tuple(
        _content(f"contents[{at}]", each)
        for at, each in enumerate(_list("contents", body.get("contents", [])))
    )
    _order(contents)
    _pairs(contents)
    if model.startswith("gemini-2") and any(
        "parts" in part.get("functionResponse", ()) for _, parts in contents for part in parts
    ):
        raise Refusal("Multimodal function responses are not supported by this model.")
    if signs:
        _signatures(contents, model)
    segments = [segment("tools", each) for each in declarations]
    segments += [segment("system", each) for each in texts]
    for role, parts in contents:
        word = "assistant" if role == "model" else "user"
        segments += [segment(word, each) for each in parts]
    names = tuple(each["name"] for each in declarations)
    return GeminiAsked(body, contents, names, tuple(segments), thinking)


def _declarations(value: Any) -> list[Json]:
    found: list[Json] = []
    for at, each in enumerate(_list("tools", value)):
        tool = _table(f"tools[{at}]", each)
        _known(f"tools[{at}]", tool, frozenset({"functionDeclarations"}))
        listed = _list(f"tools[{at}].function_declarations", tool.get("functionDeclarations", []))
        for number, entry in enumerate(listed):
            path = f"tools[{at}].function_declarations[{number}]"
            found.append(_declaration(path, entry))
    names = [each["name"] for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refusal(f"Duplicate function declaration found: {twice}")
    return found


def _declaration(path: str, value: Any) -> Json:
    entry = _table(path, value)
    _known(
        path,
        entry,
        frozenset(
            "name description parameters parametersJsonSchema response responseJsonSchema"
            " behavior".split()
        ),
    )
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refusal(
            f"{path}.name: Invalid function name. Must start with a letter or an underscore. Must"
            " be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-),"
            " with a maximum length of 128."
        )
    if not isinstance(entry.get("description"), str) or not entry["description"]:
        raise Refusal(f"{path}.description: must be specified")
    if "parameters" in entry and "parametersJsonSchema" in entry:
        raise Refusal(f"{path}: parameters and parameters_json_schema cannot both be set")
    plain = _table(f"{path}.parameters", entry.get("parameters", {"properties": {"a": 1}}))
    schema = _table(f"{path}.parameters_json_schema", entry.get("parametersJsonSchema", {}))
    if not plain.get("properties") or schema.get("properties", True) == {}:
        raise Refusal(f"{path}.parameters.properties: should be non-empty for OBJECT type")
    bare = {key: each for key, each in schema.items() if key != "$schema"}
    if not jsonschema_rs.meta.is_valid(bare):
        raise Refusal(f"{path}.parameters_json_schema: the JSON schema is invalid")
    return entry


def _content(path: str, value: Any) -> tuple[str, tuple[Json, ...]]:
    content = _table(path, value)
    _known(path, content, frozenset({"role", "parts"}))
    role = content.get("role")
    if role not in ("user", "model"):
        raise Refusal("Please use a valid role: user, model.")
    parts = _list(f"{path}.parts", content.get("parts", []))
    if not parts:
        raise Refusal(f"* GenerateContentRequest.{path}.parts: contents.parts must not be empty.")
    return role, tuple(_part(f"{path}.parts[{at}]", each, role) for at, each in enumerate(parts))


def _part(path: str, value: Any, role: str) -> Json:
    part = _table(path, value)
    _known(path, part, frozenset({*_DATA, "thought", "thoughtSignature"}))
    data = [name for name in _DATA if name in part]
    if len(data) != 1:
        raise Refusal(
            f"* GenerateContentRequest.{path}.data: required oneof field 'data' must have"
            " one initialized field"
        )
    if not isinstance(part.get("thought", False), bool):
        raise Refusal(f"Invalid value at '{path}.thought' (TYPE_BOOL)")
    if not isinstance(part.get("thoughtSignature", ""), str):
        raise Refusal(f"Invalid value at '{path}.thought_signature' (TYPE_BYTES)")
    if data == ["text"]:
        if not isinstance(part["text"], str):
            raise Refusal(f"Invalid value at '{path}.text' (TYPE_STRING)")
        if not part["text"] and not part.get("thoughtSignature"):
            raise Refusal(f"* GenerateContentRequest.{path}: Text parts must not be empty.")
        return part
    call = _table(f"{path}.{data[0]}", part[data[0]])
    inner = "args" if data == ["functionCall"] else "response"
    files = {"parts"} if inner == "response" else set[str]()
    _known(f"{path}.{data[0]}", call, frozenset({"id", "name", inner, *files}))
    for at, each in enumerate(_list(f"{path}.{data[0]}.parts", call.get("parts", []))):
        _inline(f"{path}.{data[0]}.parts[{at}]", each)
    if role != ("model" if inner == "args" else "user"):
        raise Refusal(f"Please ensure that {data[0]} parts have the right role ({path}).")
    if not isinstance(call.get("name"), str) or not call["name"]:
        raise Refusal(f"* GenerateContentRequest.{path}.{data[0]}.name: Name cannot be empty.")
    if not isinstance(call.get("id", ""), str):
        raise Refusal(f"Invalid value at '{path}.{data[0]}.id' (TYPE_STRING)")
    _table(f"{path}.{data[0]}.{inner}", call.get(inner, {}))
    return part


def _inline(path: str, value: Any) -> None:
    part = _table(path, value)
    _known(path, part, frozenset({"inlineData"}))
    file = _table(f"{path}.inline_data", part.get("inlineData", {}))
    _known(f"{path}.inline_data", file, frozenset({"mimeType", "data", "displayName"}))
    check_file(f"{path}.inline_data", file.get("mimeType"), file.get("data"), _FILES)


def _text_part(value: Any) -> Json:
    part = _table("system_instruction.parts", value)
    if set(part) != {"text"} or not isinstance(part["text"], str) or not part["text"]:
        raise Refusal("system_instruction: only text parts are taken")
    return part


def _order(contents: Sequence[tuple[str, tuple[Json, ...]]]) -> None:
    if not contents:
        raise Refusal("* GenerateContentRequest.contents: contents is not specified")
    if contents[0][0] != "user":
        raise Refusal("Please ensure that multiturn requests begin with a user turn.")
    if contents[-1][0] != "user":
        raise Refusal("Please ensure that multiturn requests end with a user turn.")


def _pairs(contents: Sequence[tuple[str, tuple[Json, ...]]]) -> None:
    waiting: list[Json] = []
    for _, parts in contents:
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if len(results) != len(waiting):
            raise Refusal(
                "Please ensure that the number of function response parts is equal to the number of"
                " function call parts of the function call turn."
            )
        for call, result in zip(waiting, results, strict=True):
            same = call.get("id", "") == result.get("id", "")
            if call["name"] != result["name"] or not same:
                raise Refusal(
                    "Please ensure that function response parts name the function calls of the"
                    f" function call turn: {result['name']}"
                )
        if results and any("functionResponse" not in part for part in parts[: len(results)]):
            raise Refusal("Please ensure that function response parts come first in their turn.")
        waiting = calls


def _signatures(contents: Sequence[tuple[str, tuple[Json, ...]]], model: str) -> None:
    turn = max(
        (
            at
            for at, (role, parts) in enumerate(contents)
            if role == "user" and any("text" in part for part in parts)
        ),
        default=-1,
    )
    for at, (_, parts) in enumerate(contents):
        calls = 0
        for number, part in enumerate(parts):
            given = part.get("thoughtSignature", "")
            call = part.get("functionCall")
            if given and given != STAND_IN and not is_own(given, model):
                raise Refusal("Corrupted thought signature.")
            if given == STAND_IN and (call is None or calls):
                raise Refusal("Thought signature is not valid.")
            if call is None:
                continue
            calls += 1
            if calls == 1 and not given and at > turn:
                raise Refusal(
                    "Function call is missing a thought_signature in functionCall parts. This is"
                    " required for tools to work correctly. Additional data, function call"
                    f" `default_api:{call['name']}`, position {number + 1}."
                )


def _known(path: str, value: Json, names: frozenset[str]) -> None:
    unknown = sorted(name for name in value if name not in names)
    if unknown:
        at = f" at '{path}'" if path else ""
        raise Refusal(
            f'Invalid JSON payload received. Unknown name "{unknown[0]}"{at}: Cannot find field.'
        )


def _table(path: str, value: Any) -> Json:
    if not isinstance(value, dict):
        raise Refusal(f"Invalid value at '{path}': an object is needed")
    return cast(Json, value)


def _list(path: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refusal(f"Invalid value at '{path}': a list is needed")
    return cast("list[Any]", value)
