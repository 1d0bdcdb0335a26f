"""What the dispatcher's numbered cases share: tools that note their runs, one session on each wire,
and a reader that finds calls and results in a request whatever its wire.

The reader is written from the providers' shapes and shares nothing with what makes requests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw, Struct
from tests.agent.stage import Stage, stage
from tests.property.driver import Home, Played
from tests.property.judging import judged

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.context.requests import Sent
from addendum.cache.record import RequestRecord
from addendum.lab.script import Entry, Form, Script, ScriptCall, ScriptStep
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool

WIRES = {
    "messages": "anthropic:claude-opus-5-5",
    "responses": "openai:gpt-6.2-sol",
    "chat": "openai-chat:gpt-4.1",
    "converse": "bedrock:anthropic.claude-sonnet-4-6",
    "gemini": "gemini:gemini-4-argon",
}
"""One dispatching route for each wire."""

TEXT_ARGUMENTS = ("gemini",)
"""Wires whose dispatcher takes its arguments as JSON text."""


# -- tools ----------------------------------------------------------------------------------


def schema(name: str, properties: Any = None, **keywords: Any) -> ToolSchema:
    """A tool with these parameters."""
    found = {"type": "object", "properties": properties or {}, **keywords}
    return ToolSchema(name, f"The tool {name}.", Raw(encoding.encode(found)))


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
BOUND = schema("clock")
DEFERRED = (
    schema("weather", {"city": STRING, "days": INTEGER}, required=["city"]),
    schema("closed", {"q": STRING}, additionalProperties=False),
    schema("kinds", {"n": INTEGER, "f": {"type": "number"}, "b": {"type": "boolean"}}),
    schema("lists", {"ids": {"type": "array", "items": INTEGER}}),
    schema("either", {"ids": {"anyOf": [{"type": "array", "items": INTEGER}, STRING]}}),
    schema(
        "deep",
        {"rows": {"type": "array", "items": {"additionalProperties": INTEGER}}},
        additionalProperties={"type": "boolean"},
    ),
    schema("ping", additionalProperties=False),
    schema("broken", {"a": {"pattern": "("}}),
    schema("remote", {"a": {"$ref": "http://127.0.0.1:9/a"}}),
    ToolSchema("free", "Takes anything.", Raw(b"{}")),
    schema("fails"),
)
"""Tools that are active and not bound."""


class Ran:
    """Notes what ran, with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def tool(self, found: ToolSchema, *, defer: bool = True) -> FunctionTool[..., Any]:
        """A tool that notes its runs and answers with its name and its arguments."""

        async def run(arguments: dict[str, Any]) -> str:
            self.calls.append((found.name, arguments))
            if found.name == "fails":
                raise ValueError("it always fails")
            return f"{found.name} {json.dumps(arguments, ensure_ascii=False)}"

        return FunctionTool.from_schema(
            msgspec.structs.replace(found, defer_loading=True if defer else None), run
        )

    def tools(self) -> list[FunctionTool[..., Any]]:
        """`clock`, which is bound, and all that are not."""
        return [self.tool(BOUND, defer=False), *(self.tool(each) for each in DEFERRED)]

    @property
    def names(self) -> list[str]:
        """The tools that ran, in order."""
        return [name for name, _ in self.calls]


# -- sessions -------------------------------------------------------------------------------


def call(name: str, form: Form = "auto", /, **arguments: Any) -> ScriptCall:
    """A call by its name, or through the dispatcher where that is not offered."""
    return ScriptCall(name, arguments, form)


def envelope(**fields: Any) -> ScriptCall:
    """A call of `call_tool` with exactly these fields."""
    return ScriptCall("call_tool", fields, "direct")


def says(*calls: ScriptCall, user: str = "go", thinking: str = "") -> ScriptStep:
    """A message, answered by these calls in one round and then by text."""
    return ScriptStep(user, (Entry(calls=calls, thinking=thinking), Entry(text=f"done {user}")))


def route_of(wire: str) -> str:
    """The dispatching route of a wire."""
    return WIRES[wire]


class On(Struct, frozen=True):
    """A stage, and a wire on it."""

    stage: Stage
    wire: str
    ran: Ran

    def agent(self, **more: Any) -> Agent:
        """An agent that dispatches, with the tools above unless others are given."""
        options: dict[str, Any] = {"tools": self.ran.tools(), "tool_changes": "dispatch"}
        return self.stage.agent(route_of(self.wire), **options | more)

    def open(self, agent: Agent | None = None, name: str = "s") -> Any:
        """Open a session."""
        return self.stage.open(agent or self.agent(), name)

    def exchanges(self, sent: Sent) -> list[Exchange]:
        """Calls and results of a request."""
        return exchanges(self.wire, json.loads(sent.body))


@asynccontextmanager
async def on(wire: str, *steps: ScriptStep) -> AsyncGenerator[On]:
    """A lab in this process that plays these steps, for one wire.

    When the block is left, all requests of its session are judged, and the lab has refused none.
    """
    async with stage(Script(steps) if steps else None) as made:
        yield On(made, wire, Ran())
        assert made.refused() == []
        if own := [each for each in made.sent if each.session == "s"]:
            log = SessionLog.load("s", await made.store.read("s"))
            judged(Played(Home(wire, WIRES[wire], ""), own, log.events, {}, {}, set(), made.lab))


async def played(here: On, *texts: str, **options: Any) -> list[Exchange]:
    """Run a turn for each text; return calls and results of the last request."""
    async with here.open(here.agent(**options)) as session:
        for text in texts or ("go",):
            await session.run(text)
        return here.exchanges(session.sent[-1])


# -- reading a request ----------------------------------------------------------------------


class Exchange(Struct, frozen=True):
    """A call and its result, as a request carries them.

    Attributes:
        id: The id they share; the place of the call where the wire has none.
        name: The name that was called.
        arguments: Its arguments, decoded.
        result: Text of the result; None if there is none.
        results: How many results there are.
    """

    id: str
    name: str
    arguments: Any
    result: str | None
    results: int

    @property
    def inner(self) -> Any:
        """Arguments inside the envelope, decoded."""
        found = self.arguments["arguments"]
        return json.loads(found) if isinstance(found, str) else found


def exchanges(wire: str, body: dict[str, Any]) -> list[Exchange]:
    """Return the calls of a request in order, each with its result."""
    calls, results = _READERS[wire](body)
    if wire == "gemini":  # ids are optional there: the order pairs them
        pairs = zip(calls, results, strict=True)
        return [
            Exchange(str(n), made[1], made[2], result[1], 1)
            for n, (made, result) in enumerate(pairs)
        ]
    order = [call_id for call_id, _ in results]
    assert order == [made[0] for made in calls], "results stand in the order of their calls"
    found: list[Exchange] = []
    for call_id, name, arguments in calls:
        texts = [text for answered, text in results if answered == call_id]
        found.append(Exchange(call_id, name, arguments, texts[0] if texts else None, len(texts)))
    return found


_Calls = list[tuple[str, str, Any]]
_Results = list[tuple[str, str]]


def _blocks(messages: Sequence[Any]) -> list[Any]:
    return [
        block
        for message in messages
        for block in (message["content"] if isinstance(message["content"], list) else [])
    ]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def _messages(body: Any) -> tuple[_Calls, _Results]:
    blocks = _blocks(body["messages"])
    return (
        [(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
        [(b["tool_use_id"], _text(b["content"])) for b in blocks if b["type"] == "tool_result"],
    )


def _responses(body: Any) -> tuple[_Calls, _Results]:
    items = body["input"]
    calls = [i for i in items if i.get("type") == "function_call"]
    results = [i for i in items if i.get("type") == "function_call_output"]
    return (
        [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in calls],
        [(i["call_id"], _text(i["output"])) for i in results],
    )


def _chat(body: Any) -> tuple[_Calls, _Results]:
    calls = [made for m in body["messages"] for made in m.get("tool_calls") or ()]
    results = [m for m in body["messages"] if m["role"] == "tool"]
    return (
        [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls],
        [(m["tool_call_id"], _text(m["content"])) for m in results],
    )


def _converse(body: Any) -> tuple[_Calls, _Results]:
    blocks = _blocks(body["messages"])
    calls = [b["toolUse"] for b in blocks if "toolUse" in b]
    results = [b["toolResult"] for b in blocks if "toolResult" in b]
    return (
        [(c["toolUseId"], c["name"], c["input"]) for c in calls],
        [(r["toolUseId"], _text(r["content"])) for r in results],
    )


def _gemini(body: Any) -> tuple[_Calls, _Results]:
    parts = [part for content in body["contents"] for part in content["parts"]]
    calls = [p["functionCall"] for p in parts if "functionCall" in p]
    results = [p["functionResponse"] for p in parts if "functionResponse" in p]
    assert [c["name"] for c in calls] == [r["name"] for r in results]
    return (
        [(c.get("id", ""), c["name"], c.get("args", {})) for c in calls],
        [(r.get("id", ""), "".join(map(str, r["response"].values()))) for r in results],
    )


_READERS = {
    "messages": _messages,
    "responses": _responses,
    "chat": _chat,
    "converse": _converse,
    "gemini": _gemini,
}


def declared(sent: Sent) -> list[str]:
    """Names of the tools that a request declares, in order."""
    body = json.loads(sent.body)
    entries = body.get("tools") or body.get("toolConfig", {}).get("tools", [])
    names: list[str] = []
    for entry in entries:
        entry = entry.get("function") if isinstance(entry.get("function"), dict) else entry
        entry = entry.get("toolSpec", entry)
        if "functionDeclarations" in entry:
            names += [each["name"] for each in entry["functionDeclarations"]]
        elif "name" in entry:
            names.append(entry["name"])
    return names


def tools_hash(sent: Sent | RequestRecord) -> str:
    """SHA-256 of the bytes of a request's tools, without cache marks."""
    members = msgspec.json.decode(sent.body, type=dict[str, Raw])
    text = bytes(members.get("tools") or members.get("toolConfig") or b"")
    for mark in (b'"ttl":"1h",', b',"ttl":"1h"'):
        text = text.replace(mark, b"")
    return hashlib.sha256(text).hexdigest()
