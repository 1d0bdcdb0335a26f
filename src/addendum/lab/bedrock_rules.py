"""Converse, field by field and across fields: what a request may hold, read into blocks.

Sources: botocore 1.44.8 (service model `bedrock-runtime`), AWS "Prompt caching for faster model
inference" (2026-08), and refusals that clients met: tool blocks without `toolConfig`
(pydantic/pydantic-ai#5929), a mark behind reasoning (0xPlaygrounds/rig#1673), in `toolConfig`
or beside a result on Nova (danny-avila/LibreChat#13838, BerriAI/litellm#17479), a mark on a model
that does not cache (BerriAI/litellm#39210), more than four (twentyhq/twenty#26217), tool changes
(stdapi-ai/stdapi.ai#104).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import jsonschema_rs
import msgspec

from addendum.lab import facts
from addendum.lab.anthropic_shapes import Asked, Json, Message
from addendum.lab.files import IMAGES, check_file
from addendum.lab.refusal import Refusal

_TOP = frozenset(
    "messages system toolConfig inferenceConfig additionalModelRequestFields guardrailConfig"
    " additionalModelResponseFieldPaths promptVariables requestMetadata performanceConfig"
    " serviceTier outputConfig".split()
)
_INFERENCE = {"maxTokens": int, "temperature": (int, float), "topP": (int, float)}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_USER = ("text", "toolResult", "cachePoint")
_ASSISTANT = ("text", "toolUse", "reasoningContent", "cachePoint")
_FILE_NAME = re.compile(r"(?!.*  )[A-Za-z0-9 \-()\[\]]{1,200}")
_UNIONS = ("oneOf", "anyOf", "allOf")


class Placed(msgspec.Struct, frozen=True):
    """A block where it stands, with the lifetime of the mark behind it, or None.

    Attributes:
        section: `tools`, `system` or `messages`.
        role: Who speaks: `tools`, `system`, `user` or `assistant`.
        kind: The name of its one field.
        value: The block.
        mark: Lifetime of the mark behind it.
        place: Message and block that it is, for blocks of messages.
    """

    section: str
    role: str
    kind: str
    value: Json
    mark: str | None = None
    place: tuple[int, int] = (-1, -1)


class ConverseAsked(msgspec.Struct, frozen=True):
    """A request that holds nothing unknown.

    Attributes:
        body: The body as it came.
        blocks: All blocks in cache order, without marks.
        claude: The same for a Claude model, in that model's own shapes.
    """

    body: Json
    blocks: tuple[Placed, ...]
    claude: Asked

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the tools on offer."""
        return tuple(each.value["toolSpec"]["name"] for each in self.blocks if each.role == "tools")


def read(body: Json, model: facts.BedrockModel) -> ConverseAsked:
    """Read a body.

    Raises:
        Refusal: It breaks a rule of the API or of the model.
    """
    for name in body:
        if name not in _TOP:
            raise Refusal(f"Malformed input request: extraneous key [{name}] is not permitted")
    _inference(_table("inferenceConfig", body.get("inferenceConfig", {})))
    extra = _table("additionalModelRequestFields", body.get("additionalModelRequestFields", {}))
    config = _table("toolConfig", body.get("toolConfig", {}))
    blocks: list[Placed] = []
    if "toolConfig" in body:
        tools = _list("toolConfig.tools", config.get("tools"))
        blocks += _row("toolConfig.tools", "tools", "tools", tools, ("toolSpec", "cachePoint"))
        _tools([each.value["toolSpec"] for each in blocks])
        _choice(config.get("toolChoice"), blocks, model)
    system = _list("system", body.get("system", []), empty=True)
    blocks += _row("system", "system", "system", system, ("text", "cachePoint"))
    messages = _list("messages", body.get("messages"))
    for at, each in enumerate(messages):
        blocks += _message(f"messages.{at}", at, each)
    _order(messages)
    _pairs(blocks)
    if "toolConfig" not in body and any(b.kind in ("toolUse", "toolResult") for b in blocks):
        raise Refusal(
            "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        )
    _marks(blocks, model)
    return ConverseAsked(body, tuple(blocks), _claude(extra, blocks))


def _inference(config: Json) -> None:
    for name, value in config.items():
        if name == "stopSequences":
            _list("inferenceConfig.stopSequences", value, empty=True)
        elif name not in _INFERENCE:
            raise Refusal(f"Malformed input request: extraneous key [{name}] is not permitted")
        elif not isinstance(value, _INFERENCE[name]) or isinstance(value, bool):
            raise Refusal(f"inferenceConfig.{name}: a number is needed")


def _message(path: str, at: int, value: Any) -> list[Placed]:
    message = _table(path, value)
    if set(message) != {"role", "content"}:
        raise Refusal(f"{path}: a message has a role and content, nothing else")
    role = message["role"]
    if role == "system":
        raise Refusal(f"{path}: role system is not supported by this model")
    if role not in ("user", "assistant"):
        raise Refusal(f"{path}.role: must satisfy enum value set: [user, assistant]")
    kinds = _USER if role == "user" else _ASSISTANT
    content = _list(f"{path}.content", message["content"])
    return _row(f"{path}.content", "messages", role, content, kinds, at)


def _row(
    path: str, section: str, role: str, values: Sequence[Any], kinds: Sequence[str], at: int = -1
) -> list[Placed]:
    """Read a list in which marks stand between blocks."""
    found: list[Placed] = []
    for number, value in enumerate(values):
        place = f"{path}.{number}"
        block = _table(place, value)
        if len(block) != 1:
            raise Refusal(f"{place}: exactly one member of the union has to be set")
        kind, inner = next(iter(block.items()))
        if kind not in kinds:
            raise Refusal(f"#/{place.replace('.', '/')}: extraneous key [{kind}] is not permitted")
        if kind == "cachePoint":
            lifetime = _point(place, inner)
            if not found or found[-1].mark is not None:
                raise Refusal(f"{place}: a cachePoint has to follow a content block")
            if found[-1].kind == "reasoningContent":
                raise Refusal(f"{place}: a cachePoint cannot follow a reasoning block")
            found[-1] = msgspec.structs.replace(found[-1], mark=lifetime)
            continue
        _block(place, kind, inner)
        found.append(Placed(section, role, kind, block, None, (at, number)))
    return found


def _point(path: str, value: Any) -> str:
    point = _table(path, value)
    if point.get("type") != "default" or point.keys() - {"type", "ttl"}:
        raise Refusal(f"{path}.cachePoint: type has to be default")
    if point.get("ttl", "5m") not in ("5m", "1h"):
        raise Refusal(f"{path}.cachePoint.ttl: must satisfy enum value set: [5m, 1h]")
    return point.get("ttl", "5m")


def _block(path: str, kind: str, value: Any) -> None:
    match kind:
        case "text":
            if not isinstance(value, str):
                raise Refusal(f"{path}.text: a string is needed")
            if not value.strip():
                raise Refusal(f"{path}: The text field in the ContentBlock object is blank.")
        case "toolUse":
            use = _fields(path, value, "toolUseId name input")
            _id(f"{path}.toolUse.toolUseId", use["toolUseId"])
            _id(f"{path}.toolUse.name", use["name"])
            _table(f"{path}.toolUse.input", use["input"])
        case "toolResult":
            result = _fields(path, value, "toolUseId content", "status")
            _id(f"{path}.toolResult.toolUseId", result["toolUseId"])
            if result.get("status", "success") not in ("success", "error"):
                raise Refusal(f"{path}.toolResult.status: must be success or error")
            for at, each in enumerate(_list(f"{path}.toolResult.content", result["content"])):
                inner = _table(f"{path}.toolResult.content.{at}", each)
                if len(inner) != 1 or not inner.keys() <= {"text", "json", "image", "document"}:
                    raise Refusal(f"{path}.toolResult.content.{at}: text or json is needed")
                if "text" in inner:
                    _block(f"{path}.toolResult.content.{at}", "text", inner["text"])
                elif "json" not in inner:
                    _file(f"{path}.toolResult.content.{at}", inner)
        case "reasoningContent":
            _reasoning(path, value)
        case "toolSpec":
            _spec(path, value)
        case _:  # pragma: no cover - the caller admits no other
            raise AssertionError(kind)


def _file(path: str, block: Json) -> None:
    kind = next(iter(block))
    file = _fields(
        f"{path}.{kind}", block[kind], "format source", "name" if kind == "document" else ""
    )
    source = _fields(f"{path}.{kind}.source", file["source"], "bytes")
    takes = IMAGES if kind == "image" else ("application/pdf",)
    family = "image" if kind == "image" else "application"
    check_file(f"{path}.{kind}", f"{family}/{file['format']}", source["bytes"], takes)
    if kind == "document" and not _FILE_NAME.fullmatch(str(file.get("name"))):
        raise Refusal(f"{path}.document.name: letters, digits, single spaces, hyphens, brackets")


def _reasoning(path: str, value: Any) -> None:
    inner = _table(path, value)
    if set(inner) == {"redactedContent"} and isinstance(inner["redactedContent"], str):
        return
    if set(inner) != {"reasoningText"}:
        raise Refusal(f"{path}.reasoningContent: exactly one member has to be set")
    said = _fields(path, inner["reasoningText"], "text", "signature")
    if not isinstance(said["text"], str):
        raise Refusal(f"{path}.reasoningContent.reasoningText.text: a string is needed")
    if not isinstance(said.get("signature"), str) or not said["signature"]:
        raise Refusal(f"{path}.thinking.signature: Field required")


def _spec(path: str, value: Any) -> None:
    spec = _fields(path, value, "name inputSchema", "description strict")
    _id(f"{path}.toolSpec.name", spec["name"])
    description = spec.get("description", "-")
    if not isinstance(description, str) or not description:
        raise Refusal(f"{path}.toolSpec.description: at least one character is needed")
    schema = _fields(path, spec["inputSchema"], "json")["json"]
    if not isinstance(schema, dict) or cast(Json, schema).get("type") != "object":
        raise Refusal(
            f"{path}.toolSpec.inputSchema.json.type must be one of the following: object."
        )
    if any(name in schema for name in _UNIONS):
        raise Refusal(f"{path}: input_schema does not support oneOf, allOf, or anyOf at the top")
    bare = {name: each for name, each in cast(Json, schema).items() if name != "$schema"}
    if not jsonschema_rs.meta.is_valid(bare):
        raise Refusal(f"{path}.toolSpec.inputSchema: the JSON schema is invalid")


def _tools(specs: Sequence[Json]) -> None:
    names = [spec["name"] for spec in specs]
    if not names:
        raise Refusal("toolConfig.tools: at least one tool is needed")
    if len(set(names)) != len(names):
        raise Refusal("toolConfig.tools: the names of tools have to be unique")


def _choice(value: Any, tools: Sequence[Placed], model: facts.BedrockModel) -> None:
    if value is None:
        return
    choice = _table("toolConfig.toolChoice", value)
    kind = next(iter(choice), "")
    if len(choice) != 1 or kind not in ("auto", "any", "tool"):
        raise Refusal("toolConfig.toolChoice: exactly one of auto, any and tool has to be set")
    inner = _table(f"toolConfig.toolChoice.{kind}", choice[kind])
    if kind != "auto" and model.claude is not None and not model.claude.forced_choice:
        raise Refusal(f"toolConfig.toolChoice.{kind} is not supported by this model")
    names = [each.value["toolSpec"]["name"] for each in tools]
    if kind == "tool" and inner.get("name") not in names:
        raise Refusal("toolConfig.toolChoice.tool: no tool has that name")


def _order(messages: Sequence[Any]) -> None:
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        raise Refusal("A conversation must start with a user message. Try again with one.")
    for at in range(1, len(roles)):
        if roles[at] == roles[at - 1]:
            raise Refusal(
                "A conversation must alternate between user and assistant roles. Make sure the"
                f" conversation alternates (messages.{at}) and try again."
            )
    if roles[-1] != "user":
        raise Refusal("The conversation must end with a user message.")


def _pairs(blocks: Sequence[Placed]) -> None:
    used: set[str] = set()
    waiting: list[str] = []
    last = max((each.place[0] for each in blocks), default=-1)
    for at in range(last + 1):
        own = [each for each in blocks if each.place[0] == at and each.section == "messages"]
        results = [b.value["toolResult"]["toolUseId"] for b in own if b.kind == "toolResult"]
        calls = [b.value["toolUse"]["toolUseId"] for b in own if b.kind == "toolUse"]
        missing = [each for each in waiting if each not in results]
        if missing:
            raise Refusal(
                f"Expected toolResult blocks at messages.{at}.content for the following Ids: "
                + ", ".join(missing)
            )
        if len(results) != len(waiting):
            raise Refusal(
                f"The number of toolResult blocks at messages.{at}.content exceeds the number of"
                " toolUse blocks of previous turn."
            )
        if results and any(b.kind != "toolResult" for b in own[: len(results)]):
            raise Refusal(f"messages.{at}: toolResult blocks have to come first")
        if used & set(calls) or len(set(calls)) != len(calls):
            raise Refusal(f"messages.{at}: toolUse ids have to be unique")
        used |= set(calls)
        waiting = calls


def _marks(blocks: Sequence[Placed], model: facts.BedrockModel) -> None:
    marked = [each for each in blocks if each.mark is not None]
    if marked and not model.caches:
        raise Refusal(
            "You invoked an unsupported model or your request did not allow prompt caching.",
            status=403,
        )
    if len(marked) > facts.CLAUDE_MARKS.value:
        raise Refusal(
            f"A maximum of {facts.CLAUDE_MARKS.value} blocks with cache_control may be provided."
            f" Found {len(marked)}."
        )
    busy = {b.place[0] for b in blocks if b.kind in ("toolUse", "toolResult")} - {-1}
    short = False
    for each in marked:
        if model.text_marks and (each.section == "tools" or each.place[0] in busy):
            where = "toolConfig/tools" if each.section == "tools" else f"messages/{each.place[0]}"
            raise Refusal(
                f"Malformed input request: #/{where}: extraneous key [cachePoint] is not permitted,"
                " please reformat your input and try again."
            )
        if each.mark == "1h" and not model.hour:
            raise Refusal("cachePoint.ttl is not supported by this model")
        if each.mark == "1h" and short:
            raise Refusal("a cachePoint of 1h must not come after one of 5m")
        short = short or each.mark == "5m"


def _claude(extra: Json, blocks: Sequence[Placed]) -> Asked:
    """Return the request as Bedrock hands it to a Claude model."""
    thinking = _table("additionalModelRequestFields.thinking", extra.get("thinking", {}))
    messages: list[Message] = []
    for at in range(max((each.place[0] for each in blocks), default=-1) + 1):
        own = [each for each in blocks if each.place[0] == at and each.section == "messages"]
        messages.append(Message(own[0].role, tuple(map(_native, own))))  # pyright: ignore[reportArgumentType]
    return Asked(
        {"thinking": thinking},
        tuple(each.value["toolSpec"] for each in blocks if each.section == "tools"),
        tuple(each.value for each in blocks if each.section == "system"),
        tuple(messages),
    )


def _native(block: Placed) -> Json:
    value = block.value[block.kind]
    match block.kind:
        case "reasoningContent" if "reasoningText" in value:
            said = value["reasoningText"]
            return {
                "type": "thinking",
                "thinking": said["text"],
                "signature": said["signature"],
            }
        case "reasoningContent":
            return {"type": "redacted_thinking", "data": value["redactedContent"]}
        case "toolResult":
            return {"type": "tool_result", "value": value}
        case "toolUse":
            return {"type": "tool_use", "value": value}
        case _:
            return {"type": "text", "text": value}


def _fields(path: str, value: Any, required: str, optional: str = "") -> Json:
    table = _table(path, value)
    missing = [name for name in required.split() if name not in table]
    if missing:
        raise Refusal(f"{path}: {missing[0]} is missing")
    known = {*required.split(), *optional.split()}
    unknown = sorted(name for name in table if name not in known)
    if unknown:
        raise Refusal(f"{path}: extraneous key [{unknown[0]}] is not permitted")
    return table


def _table(path: str, value: Any) -> Json:
    if not isinstance(value, dict):
        raise Refusal(f"{path}: an object is needed")
    return cast(Json, value)


def _list(path: str, value: Any, *, empty: bool = False) -> list[Any]:
    if not isinstance(value, list) or not (value or empty):
        raise Refusal(f"{path}: a list{'' if empty else ' with an entry'} is needed")
    return cast("list[Any]", value)


def _id(path: str, value: Any) -> None:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Refusal(f"{path}: must satisfy regular expression pattern: [a-zA-Z0-9_-]+")
