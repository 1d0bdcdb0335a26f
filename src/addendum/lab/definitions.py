"""What vendors refuse of a tool's definition, beyond what each wire's own rules check.

Each rule is as people reported it in public, with the vendor's words. It holds where a test asks
for it (`Switches.strict_definitions`): what is refused here is taken by others of the same wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

_CLAUDE_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
    "additionalItems",
)
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")


class Definition(NamedTuple):
    """A definition as it stands in a body."""

    name: str
    description: str
    schema: Json


Rule: TypeAlias = Callable[[Definition], str]
"""Gives what a vendor says against a definition; empty if nothing."""


def _parts(schema: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every schema in a schema, with its place."""
    if not isinstance(schema, dict):
        return
    part = cast(Json, schema)
    yield path, part
    for keyword in _BY_NAME:
        for name, each in _table(part.get(keyword)).items():
            yield from _parts(each, f"{path}.{keyword}.{name}")
    for keyword in _ONE:
        yield from _parts(part.get(keyword), f"{path}.{keyword}")
    for keyword in _MANY:
        listed: Any = part.get(keyword)
        for at, each in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
            yield from _parts(each, f"{path}.{keyword}.{at}")


def _table(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def _claude_keys(tool: Definition) -> str:
    wrong = [key for key in _table(tool.schema.get("properties")) if not _CLAUDE_KEY.fullmatch(key)]
    words = "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    return words if wrong else ""


def _named(tool: Definition, problem: str) -> str:
    return f"Invalid schema for function '{tool.name}': {problem}"


def _properties(tool: Definition) -> str:
    if "properties" in tool.schema:
        return ""
    return _named(tool, "In context=(), object schema missing properties.")


def _items(tool: Definition) -> str:
    for path, part in _parts(tool.schema):
        kind: Any = part.get("type")
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        if "array" in kinds and "items" not in part:
            return _named(tool, f"In context=('{path}'), array schema missing items.")
    return ""


def _required(tool: Definition) -> str:
    for _, part in _parts(tool.schema):
        if part.get("type") == "object" and "required" in part and "properties" not in part:
            problem = "'required' present but 'properties' is missing"
            return f"invalid JSON schema for tool {tool.name}: {problem}"
    return ""


def _long(tool: Definition) -> str:
    if len(tool.description) <= 1024:
        return ""
    expected = "Expected a string with maximum length 1024"
    return f"Invalid 'function.description' of '{tool.name}': string too long. {expected}"


def _moonshot(tool: Definition) -> str:
    words = "tools.function.parameters is not a valid moonshot flavored json schema, details: "
    for path, part in _parts(tool.schema):
        where = f"<At path '{path}': "
        if "anyOf" in part and "type" in part:
            return f"{words}{where}when using anyOf, type should be defined in anyOf items>"
        if not part.keys() & {"type", "$ref", "anyOf", "oneOf"}:
            return f"{words}{where}type is not defined>"
        reference = part.get("$ref", "#/$defs/")
        if not (isinstance(reference, str) and reference.startswith("#/$defs/")):
            return f"{words}{where}references must start with #/$defs/>"
    return ""


def _no_references(tool: Definition) -> str:
    for path, part in _parts(tool.schema):
        if "$ref" in part:
            return f"reference to undefined schema at {path}"
    return ""


def _references(tool: Definition) -> str:
    for path, part in _parts(tool.schema):
        if not _leads(tool.schema, part.get("$ref", "#")):
            return f"the JSON schema is invalid: unresolvable reference at {path}"
    return ""


def _leads(root: Any, reference: Any) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    node: Any = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[key if isinstance(node, dict) else int(key)]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return True


def _keyword(name: str) -> Rule:
    def rule(tool: Definition) -> str:
        there = any(name in part for _, part in _parts(tool.schema))
        return f"Grammar error: failed to compile JSON schema: {name}" if there else ""

    return rule


def _booleans(tool: Definition) -> str:
    for path, part in _parts(tool.schema):
        if any(isinstance(each, bool) for each in _table(part.get("properties")).values()):
            return f"parameters{path}.properties: a boolean is no schema here"
    return ""


def _anchored(tool: Definition) -> str:
    for _, part in _parts(tool.schema):
        pattern: Any = part.get("pattern", "^$")
        if not (isinstance(pattern, str) and pattern[:1] == "^" and pattern[-1:] == "$"):
            return "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"
        if re.search(r"\\[a-zA-Z]|\(\?", pattern):
            return "JSON schema conversion failed:\nunsupported pattern syntax"
    return ""


def _no_nul(tool: Definition) -> str:
    there = any("\0" in text for text in _texts([tool.description, tool.schema]))
    return "the request holds a NUL character" if there else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast(Json, value).values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _texts(each)


_OPENAI = (_properties, _items, _required, _long, _references)
_GOOGLE = (_items, _no_references, _keyword("$schema"), _booleans)
_ALL: tuple[Rule, ...] = (*_OPENAI, *_GOOGLE, _claude_keys, _keyword("$id"), _no_nul)

RULES: Mapping[str, tuple[Rule, ...]] = {
    # langchain-ai/langchain#39271, decocms/studio#6874, beautyfree/appstore-connect-mcp#1
    "anthropic": (_claude_keys, _references),
    "deepseek": (_claude_keys, _references),
    # mark3labs/mcphost#35 and #90, tailcallhq/forgecode#1359, getsentry/sentry-mcp#106
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "azure": _OPENAI,
    "azure-chat": _OPENAI,
    "xai": _OPENAI,
    # usestrix/strix#1088
    "groq": _OPENAI,
    # MoonshotAI/kimi-cli#1595 and #2531, CommandCodeAI/command-code#594
    "moonshot": (*_OPENAI, _moonshot),
    # BerriAI/litellm#13389
    "mistral": (*_OPENAI, _keyword("$schema"), _keyword("$id")),
    # google-gemini/gemini-cli#13326, anomalyco/opencode#12295, DEEIX-AI/DEEIX-Chat#546
    "gemini": _GOOGLE,
    "vertex": _GOOGLE,
    # aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws#709
    "bedrock": (_claude_keys, _references),
    # ggml-org/llama.cpp#26930, aebrer/dreb#422
    "llamacpp": (_anchored,),
    # Whose model answers is not known: the strictest of all.
    "openrouter": _ALL,
    "compatible": _ALL,
}
"""What each provider of the lab refuses, by its name."""


def problem(provider: str, body: Json) -> str:
    """Return what a vendor says against the definitions of a request; empty if nothing.

    Args:
        provider: The lab's name of the vendor.
        body: The decoded request.
    """
    rules = RULES.get(provider, ())
    said = (rule(tool) for tool in definitions(body) for rule in rules)
    return next(filter(None, said), "")


def definitions(body: Json) -> Iterator[Definition]:
    """Yield the definitions of a request, on any wire, wherever they stand."""
    stack: list[Any] = [body.get(name) for name in ("tools", "toolConfig", "messages", "input")]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(cast("list[Any]", node))
        if not isinstance(node, dict):
            continue
        part = cast(Json, node)
        holder = next(
            (
                name
                for name in ("input_schema", "inputSchema", "parametersJsonSchema", "parameters")
                if isinstance(part.get(name), dict)
            ),
            "",
        )
        if holder and isinstance(part.get("name"), str):
            schema = _table(part[holder])
            schema = _table(schema["json"]) if holder == "inputSchema" else schema
            yield Definition(part["name"], str(part.get("description", "")), schema)
            continue
        # Arguments of calls are no definitions, whatever they hold.
        stack.extend(each for name, each in part.items() if name not in ("input", "args"))
