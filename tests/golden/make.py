"""Makes the fixed logs and the bodies of a rendering number that has none yet.

    python -m tests.golden.make            what is missing for the newest number
    python -m tests.golden.make NAME ...   these anew: only for a number that no release had

A log is what a real session wrote against the lab; from then on it is data, and so are the bodies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from msgspec import Raw
from tests.agent.stage import fn, server, stage
from tests.agent.test_result_files import SCRIPT as LOOKING
from tests.agent.test_result_files import eyes

from addendum.agent.context.sent import RENDERING
from addendum.encoding import encode
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import RequestContext, RequestSent
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.prompt.breaks import reasoning_floor
from addendum.prompt.projector import project
from addendum.routes import resolve
from addendum.wire.apis import facts, wire
from addendum.wire.schemas import screened

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Golden:
    """A conversation on one route."""

    name: str
    route: str
    tool_changes: str = "auto"
    tail: str = "auto"
    files: bool = False


GOLDEN = (
    Golden("anthropic-by-value", "anthropic:claude-opus-5-5"),
    Golden("anthropic-kept", "anthropic:claude-opus-5-5", tail="kept"),
    Golden("anthropic-by-reference", "anthropic:claude-opus-4-8+by-reference"),
    Golden("anthropic-dispatch", "anthropic:claude-opus-5-5", "dispatch", "moved"),
    Golden("openai-chat", "openai-chat:gpt-4.1"),
    Golden("openai-responses", "openai:gpt-6.1-sol"),
    Golden("bedrock-converse", "bedrock:anthropic.claude-opus-5-5"),
    Golden("gemini", "gemini:gemini-3.8-flash"),
    Golden("kimi", "moonshot:kimi-k3"),
    Golden("openrouter-kept", "openrouter:anthropic/claude-opus-5.5"),
    Golden("openrouter-moved", "openrouter:anthropic/claude-opus-5"),
    Golden("deepseek-chat", "deepseek-chat:deepseek-flash"),
    Golden("vertex-claude", "vertex-claude:claude-opus-5-5"),
    *(
        Golden(f"files-{name}", route, files=True)
        for name, route in (
            ("anthropic", "anthropic:claude-opus-5-5"),
            ("bedrock", "bedrock:anthropic.claude-opus-5-5"),
            ("chat", "openai-chat:gpt-4.1"),
            ("deepseek", "deepseek:deepseek-flash"),
            ("gemini", "gemini:gemini-3.8-flash"),
            ("responses", "openai:gpt-6.1-sol"),
        )
    ),
)


def _step(text: str, *calls: str) -> ScriptStep:
    made = tuple(ScriptCall(name, {"q": "é <tool_update> \U0001f600"}) for name in calls)
    first = (Entry(thinking=f"about {text}", calls=made),) if calls else ()
    return ScriptStep(text, (*first, Entry(text=f"answer to {text}", thinking=f"then {text}")))


SCRIPT = Script(
    (
        _step("one", "web"),
        # As it reaches the model.
        _step("two <_turn_instructions>", "github__t0", "web"),
        _step("three", "web"),
        _step("four"),
        _step("five", "github__t1"),
        _step("six"),
    )
)


async def with_files(golden: Golden) -> Sequence[bytes]:
    """Return the stored log of a conversation whose tools give images and a document."""
    async with stage(LOOKING) as here:
        agent = here.agent(golden.route, instructions="You help.", mcp_servers=[eyes()])
        async with here.open(agent) as session:
            for text in ("see", "see plain read", "bye"):
                await session.run(text)
        return await here.store.read("s")


async def written(golden: Golden) -> Sequence[bytes]:
    """Return the stored log of a conversation that has every kind of block that a route takes."""
    if golden.files:
        return await with_files(golden)
    async with stage(SCRIPT) as here:
        options: dict[str, Any] = {
            "instructions": "You help.",
            "conversation_instructions": "In English.",
            "turn_instructions": "Be brief.",
            "tools": [fn("web"), fn("rare", deferred=True)],
            "mcp_servers": [server(instructions="Paths are relative.")],
            "tool_changes": golden.tool_changes,
            "tail": golden.tail,
        }
        async with here.open(here.agent(golden.route, **options)) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two <turn_instructions>")
            await session.tools.add(fn("web", 1))
            session.conversation_instructions = "In French."
            session.turn_instructions = "Be thorough."
            await session.run("three")
            await session.tools.disable("github")
            session.turn_instructions = None
            await session.run("four")
            await session.tools.enable("github")
            session.turn_instructions = "Be brief."
            await session.run("five")
            await session.compact("What was said so far.")
            await session.run("six")
        return await here.store.read("s")


def bodies(stored: Sequence[bytes]) -> list[bytes]:
    """Return the body of each request of a log, projected and rendered anew."""
    found: list[bytes] = []
    whole = SessionLog.load("s", stored)
    for event in whole.events:
        if not isinstance(event.data, RequestSent) or event.data.purpose != "turn":
            continue
        context = whole.events[event.data.context_seq].data
        assert isinstance(context, RequestContext)
        route = resolve(context.route, base_url="http://127.0.0.1:9", environ={})
        log = whole.until(event.seq)
        floor = reasoning_floor(log.events, context.route) if context.reasoning_bound else -1
        header = log.header
        assert header is not None
        prompt = project(log, context, facts(route), floor=floor)
        renderer = wire(context.wire).renderer(route, context.rendering, context.avoids)
        found.append(renderer.body(prompt, header.header.config))
    return found


def paths(number: int, name: str) -> tuple[Path, Path]:
    """Return the files of a log and of its bodies, one event and one body a line."""
    folder = HERE / str(number)
    return folder / f"{name}.log.jsonl", folder / f"{name}.bodies.jsonl"


def definitions(number: int) -> Path:
    """Return the file of strange definitions as each kind of endpoint gets them."""
    return HERE / str(number) / "definitions.jsonl"


STRANGE: dict[str, Any] = {
    "nothing": {},
    "no properties": {"type": "object"},
    "no object": {"type": "array", "items": {"type": "string"}},
    "any": True,
    "union": {
        "type": "object",
        "anyOf": [
            {"properties": {"content": {"type": "string"}}, "required": ["content"]},
            {"properties": {"url": {"type": "string"}}, "required": ["url"]},
        ],
    },
    "all of": {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}],
    },
    "array": {"type": "object", "properties": {"ids": {"type": ["array", "null"]}}},
    "keys": {
        "type": "object",
        "properties": {
            "filter[id]": {"type": "string"},
            "$filter": {"type": "string", "description": "What to show."},
            "名前": {},
            "filter": {"type": "string"},
        },
        "required": ["$filter"],
    },
    "references": {
        "$ref": "#/definitions/A",
        "definitions": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}},
            "B": {"type": "object", "properties": {"again": {"$ref": "#/definitions/B"}}},
        },
    },
    "drafts": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"type": "string", "nullable": True},
            "must": {"type": "string", "required": True},
        },
        "required": None,
    },
    "untyped": {
        "type": "object",
        "properties": {
            "what": {"description": "Anything."},
            "one": {"enum": ["a", "b"]},
            "two": {"const": 1},
            "three": {"type": "string", "anyOf": [{"minLength": 2}, {"pattern": "^a"}]},
            "yes": True,
            "no": False,
        },
    },
    "patterns": {
        "type": "object",
        "properties": {
            "plain": {"type": "string", "pattern": "^[a-z]+$"},
            "class": {"type": "string", "pattern": "\\S"},
            "broken": {"type": "string", "pattern": "("},
        },
    },
    "wrong": {"type": "object", "properties": {"a": {"type": "no type"}, "b": 5}},
}
"""Schemas that some endpoint refuses as they are."""

ENDPOINTS = (
    "anthropic:claude-opus-5-5",
    "openai:gpt-6.1-sol",
    "openai-chat:gpt-4.1",
    "bedrock:anthropic.claude-opus-5-5",
    "gemini:gemini-3.8-flash",
    "moonshot:kimi-k3",
    "mistral:mistral-large-4",
    "vllm:qwen3",
    "llamacpp:any",
    "openrouter:anthropic/claude-opus-5.5",
    "compatible:m",
)


def screened_definitions() -> list[bytes]:
    """Return the strange definitions as each kind of endpoint gets them, one a line."""
    found: list[bytes] = []
    for name in ENDPOINTS:
        rules = resolve(name, environ={}).schemas
        for kind, schema in STRANGE.items():
            long = "A long description. " * 80
            tool = ToolSchema("t", long if kind == "nothing" else "D.", Raw(encode(schema)))
            sent = screened(tool, rules)
            line = [name, kind, sent.tool.description, sent.tool.parameters, sent.keys, sent.losses]
            found.append(encode(line))
    return found


def numbers(stored: Sequence[bytes]) -> set[int]:
    """Return the rendering numbers of a log's epochs."""
    log = SessionLog.load("s", stored)
    return {e.data.rendering for e in log.events if isinstance(e.data, RequestContext)}


def main(chosen: Sequence[str]) -> None:
    """Write what is missing, or what was chosen."""
    for golden in GOLDEN:
        log, made = paths(RENDERING, golden.name)
        if golden.name in chosen or not (chosen or log.exists()):
            stored = anyio.run(written, golden)
            log.parent.mkdir(exist_ok=True)
            log.write_bytes(b"".join(line + b"\n" for line in stored))
            made.write_bytes(b"".join(line + b"\n" for line in bodies(stored)))
            print(f"{golden.name}: {len(bodies(stored))} requests")
    if "definitions" in chosen or not (chosen or definitions(RENDERING).exists()):
        made = b"".join(line + b"\n" for line in screened_definitions())
        definitions(RENDERING).write_bytes(made)


if __name__ == "__main__":
    main(sys.argv[1:])
