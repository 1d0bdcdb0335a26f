"""Definitions that an endpoint refuses: found, left out, and told, so that the session goes on.

What an endpoint takes is data, and data can be wrong. So a refusal that speaks of a definition is
answered by leaving one out: the one that it names, or one that it has never taken. What is left
out stays so only where that helped; else all is as it was, and the refusal is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct, structs

from addendum import encoding
from addendum.agent.context.requests import Ready
from addendum.agent.context.sent import RENDERING
from addendum.agent.results import Notice
from addendum.agent.runtime import Runtime
from addendum.errors import ContentError, ProviderError
from addendum.lines import one_line
from addendum.log.events import RequestContext, ToolLeftOut
from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Change, Prompt
from addendum.prompt.updates import PLACEHOLDER
from addendum.tools.dispatcher import RESERVED_NAMES
from addendum.wire.refusal import refusal_text, refuses_form

TRIES = 3
"""Requests that may be sent once more to find what is refused."""

_OURS = RESERVED_NAMES | {PLACEHOLDER.name}

# Claude: "tools.14.custom.input_schema.properties: ..."; OpenAI: "Invalid schema for function 'f':
# In context=('properties', 'a'), array schema missing items", "Invalid 'tools[0].function.
# description'"; Kimi: "tools.function.parameters is not a valid moonshot flavored json schema";
# Gemini: "tools[0].function_declarations[5].parameters.properties[x]"; Bedrock: "toolConfig.tools.
# 26.toolSpec.inputSchema.json.type"; Groq: "invalid JSON schema for tool f, tools[24].function.
# parameters"; llama.cpp: "Pattern must start with '^' and end with '$'".
_ABOUT = re.compile(
    r"schema|\bproperties\b|property keys|function[._ ]?(?:parameters|declaration)|toolspec"
    r"|\btools?(?:\.|\[|\\?/)\d|pattern must start",
    re.IGNORECASE,
)
_SCHEMA = re.compile(
    r"input_?schema|function[._ ]?parameters|json ?schema|schema for|\bparameters\.|toolspec"
    r"|\bproperties\b|property keys|schema missing|\.description|pattern must start",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"response_format|response_?schema|text\.format|output_config|tool_choice", re.IGNORECASE
)
_MANY = re.compile(
    r"'?tools'?\W{1,4}(?:array too long|maximum number)|at most \d+ function declarations"
    r"|available_tools_limit_exceeded|(?:too many|at most \d+|more than \d+|limit of \d+) tools",
    re.IGNORECASE,
)
_MOST = re.compile(
    r"(?:maximum length|maximum number of items is|at most|more than|limit of)\D{0,20}(\d+)",
    re.IGNORECASE,
)
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[\d+\]|\\?/\w+)+")
_STEP = re.compile(r"\w+")
_HOLDERS = ("function", "toolSpec", "definition", "custom")
_PLAIN = frozenset("type properties required description items title additionalProperties".split())


class _Trial(Struct, frozen=True):
    """What is left out to see whether that helps.

    Attributes:
        before: What the first refused request was rendered with.
        tools: What is left out.
        error: The first refusal.
        tries: Requests that were sent for it so far.
    """

    before: RequestContext
    tools: tuple[ToolSchema, ...]
    error: ProviderError
    tries: int = 1


class Quarantine:
    """What is tried after one request was refused for a definition.

    Args:
        run: The session.
    """

    def __init__(self, run: Runtime) -> None:
        self._run = run
        self._trial: _Trial | None = None

    def next(
        self, context: RequestContext, ready: Ready, error: ProviderError
    ) -> RequestContext | None:
        """Return what to try next after a refusal, or None if there is nothing.

        Args:
            context: What the refused request was rendered with.
            ready: The request.
            error: The refusal.
        """
        trial = self._trial or _Trial(context, (), error, 0)
        if trial.tries >= TRIES or not speaks_of_definitions(error):
            return None
        definitions = told(ready.prompt)
        proven = self._run.requests.proven(self._run.route)
        last = trial.tries == TRIES - 1
        found = suspects(error, ready.request.body, definitions, proven, every=last)
        if context.projection == "dispatch":
            found = found or _beyond(error, ready.prompt)
        newer = trial.before.rendering < RENDERING
        if not found and not newer:
            return None
        tools = (*trial.tools, *found)
        self._trial = _Trial(trial.before, tools, trial.error, trial.tries + 1)
        if newer and not trial.tries:
            # An epoch of before: today's rendering may say it as the endpoint takes it.
            self._trial = structs.replace(self._trial, tools=())
            return structs.replace(context, rendering=RENDERING)
        digests = {*context.withheld, *(tool.definition() for tool in tools)}
        return structs.replace(context, withheld=tuple(sorted(digests)))

    def undone(self, context: RequestContext) -> RequestContext:
        """Return what to go on with where nothing that was tried helped."""
        trial, self._trial = self._trial, None
        return context if trial is None else trial.before

    async def settle(self) -> Notice | None:
        """Keep what was left out, since the request was answered without it; say what is told."""
        trial, self._trial = self._trial, None
        if trial is None or not trial.tools:
            return None
        run, route = self._run, self._run.route
        why = one_line(str(trial.error), 300)
        for tool in trial.tools:
            run.log.append(
                ToolLeftOut(
                    tool.name,
                    why,
                    route=route.name,
                    endpoint=route.endpoint.base_url,
                    definition=tool.definition(),
                )
            )
        await run.downgrades.withhold(route, [tool.definition() for tool in trial.tools])
        names = one_line(", ".join(tool.name for tool in trial.tools), 200)
        return Notice(f"{route.name} refused the definition of {names}; going on without: {why}")


def speaks_of_definitions(error: ProviderError) -> bool:
    """Say whether a refusal may be about the definition of a tool."""
    if not refuses_form(error):
        return False
    text = _text(error)
    return not _ELSEWHERE.search(text) and bool(_ABOUT.search(text) or _MANY.search(text))


def surely_of_definitions(error: ProviderError) -> bool:
    """Say whether a refusal is about what stands in a definition, and not about how it is told."""
    return speaks_of_definitions(error) and _SCHEMA.search(_text(error)) is not None


def speaks_of_too_many(error: ProviderError) -> bool:
    """Say whether a request was refused for the number of its tools."""
    return refuses_form(error) and _MANY.search(_text(error)) is not None


def told(prompt: Prompt) -> dict[str, ToolSchema]:
    """Return the definitions that a request holds, by name; without ours, which are fixed."""
    found = {tool.name: tool for tool in prompt.tools}
    for block in prompt.blocks:
        if isinstance(block, Change) and block.definition is not None:
            found[block.name] = block.definition
    return {name: tool for name, tool in found.items() if name not in _OURS}


def suspects(
    error: ProviderError,
    body: bytes,
    definitions: Mapping[str, ToolSchema],
    proven: Collection[str],
    *,
    every: bool = False,
) -> tuple[ToolSchema, ...]:
    """Return the tools that a refusal may be about.

    Those that it names, by name or by their place in the body, as far as the endpoint has not taken
    them before; else of those that it never took the unusual ones, or all.

    Args:
        error: The refusal.
        body: The request.
        definitions: What the request holds, by name.
        proven: Digests of what the endpoint has taken.
        every: Whether all that it never took are suspect, whatever it names.
    """
    if speaks_of_too_many(error):
        return ()
    fresh = {n: tool for n, tool in definitions.items() if tool.definition() not in proven}
    if every:
        return tuple(fresh.values())
    named = [name for name in _named(_text(error), body, definitions) if name in definitions]
    if chosen := [fresh[name] for name in named if name in fresh]:
        return tuple(chosen)
    if not fresh:
        return tuple(definitions[name] for name in named)
    odd = [tool for tool in fresh.values() if not _is_plain(_schema(tool))]
    return tuple(odd or fresh.values())


def _beyond(error: ProviderError, prompt: Prompt) -> tuple[ToolSchema, ...]:
    """Return what is bound beyond the number of tools that an endpoint says it takes."""
    found = _MOST.search(_text(error)) if speaks_of_too_many(error) else None
    if found is None:
        return ()
    own = [tool for tool in prompt.tools if tool.name not in _OURS]
    return tuple(own[max(0, int(found.group(1)) - (len(prompt.tools) - len(own))) :])


def _text(error: ProviderError) -> str:
    said = f"{error.code} {error} {refusal_text(error)}"
    return said.replace('\\"', '"').replace("\\'", "'")


def _named(text: str, body: bytes, definitions: Mapping[str, ToolSchema]) -> list[str]:
    """Return the names of tools that a text speaks of, or whose place it names."""
    found = dict.fromkeys(
        name
        for name in definitions
        if re.search(
            rf"(?:function|tool)\s+['\"`]?{re.escape(name)}(?![\w-])|['\"`]{re.escape(name)}['\"`]",
            text,
        )
    )
    try:
        root: Any = encoding.decode(body)
    except ContentError:
        return list(found)
    for path in _PATH.findall(text):
        name = _at(root, _STEP.findall(path))
        if name:
            found[name] = None
    return list(found)


def _at(root: Any, steps: list[str]) -> str:
    """Return the name of the innermost tool on a path; steps that lead nowhere are passed over."""
    node, name = root, ""
    for step in steps:
        inner: Any = None
        if isinstance(node, list) and step.isdigit():
            listed = cast("list[Any]", node)
            inner = listed[int(step)] if int(step) < len(listed) else None
        elif isinstance(node, dict):
            table = cast("dict[str, Any]", node)
            inner = table.get(step, table.get(_camel(step)))
        if inner is not None:
            node = inner
            name = next(_names(node), name)
    return name


def _names(node: Any) -> Iterator[str]:
    """Yield the name of the tool that a part of a body defines, if it does."""
    if not isinstance(node, dict):
        return
    table = cast("dict[str, Any]", node)
    holders = [table, *(table.get(each) for each in _HOLDERS)]
    tool: Any = table.get("tool")
    if isinstance(tool, dict):
        holders.append(cast("dict[str, Any]", tool).get("definition"))
    for holder in holders:
        if isinstance(holder, dict):
            fields = cast("dict[str, Any]", holder)
            if isinstance(fields.get("name"), str) and "content" not in fields:
                yield fields["name"]


def _camel(step: str) -> str:
    first, *rest = step.split("_")
    return first + "".join(word.title() for word in rest)


def _schema(tool: ToolSchema) -> Any:
    try:
        return encoding.decode(bytes(tool.parameters))
    except ContentError:
        return None


def _is_plain(schema: Any) -> bool:
    """Say whether a schema holds nothing that any endpoint is known to mind."""
    if not isinstance(schema, dict):
        return False
    table = cast("dict[str, Any]", schema)
    if table.keys() - _PLAIN - {"enum"} or not isinstance(table.get("type"), str):
        return False
    properties: Any = table.get("properties", {})
    if not isinstance(properties, dict) or not isinstance(table.get("items", {}), dict):
        return False
    parts = cast("dict[str, Any]", properties)
    names_are_plain = all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) for name in parts)
    below = [*parts.values(), *([table["items"]] if "items" in table else [])]
    return names_are_plain and all(map(_is_plain, below))
