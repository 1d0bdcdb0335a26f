"""Throw random envelopes at the dispatcher, and see that nothing breaks and nothing forbidden runs.

    python -m scripts.envelopes [--count N] [--seed N]

An envelope is what a model may write as a call: well formed, misplaced, nested, in text, cut off,
or anything at all, by the right name or by one that looks like it. Each is resolved alone, and goes
through a real session in rounds of 250: hooks, approval, execution, log, and the next request.

- No exception comes out, each call has exactly one result, in order and under its id.
- A tool that is switched off, refused by `can_dispatch`, denied by a policy or a hook, waiting for
  a person, removed or never there does not run; what runs has arguments that fit its schema.
- A refusal is one short line and names no forbidden tool that was not asked for by its exact name.
- The next request is JSON with legal names and whole arguments.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Approval, Pending, Policy
from addendum.agent.calls.hooks import Deny, Hook
from addendum.agent.setup import Limits, ToolDispatch
from addendum.log.events import AssistantMessage, ToolCall, ToolResult
from addendum.log.values import Call, ToolSchema
from addendum.stores import MemoryStore
from addendum.tools.dispatcher import (
    TOOL_DISPATCHER_NAME,
    NotDispatched,
    Resolved,
    resolve_call,
    resolve_dispatched_tool_call,
    rewrite_direct_call,
)
from addendum.tools.functions import FunctionTool
from addendum.tools.validation import validator_for
from addendum.wire.transport import Transport, TransportSettings

ROUND = 250
"""Calls in one answer of the model."""

_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}


def _schema(name: str, properties: Any, **keywords: Any) -> ToolSchema:
    found = {"type": "object", "properties": properties, **keywords}
    return ToolSchema(name, f"The tool {name}.", Raw(encoding.encode(found)))


ALLOWED = (
    _schema("open", {"path": _STRING, "n": _INTEGER}, required=["path"]),
    _schema("anything", {}),
    _schema("named", {"name": _STRING, "arguments": {"type": "object"}}),
    _schema("nested", {"rows": {"type": "array", "items": {"properties": {"n": _INTEGER}}}}),
    _schema("closed", {"q": _STRING}, additionalProperties=False),
)
"""Tools that may run."""

REFUSED = tuple(
    _schema(name, {"path": _STRING})
    for name in ("switched_off", "not_dispatchable", "denied", "hooked", "asked", "removed")
)
"""Tools that may not, each for a reason of its own; the last one is in no registry."""

BOUND = _schema("bound", {"q": _STRING})
FORBIDDEN = frozenset(tool.name for tool in REFUSED)
RULED_OUT = frozenset({"switched_off", "not_dispatchable", "removed"})
"""What resolution itself refuses; the others are for policies and hooks."""

REGISTRY = {tool.name: tool for tool in (BOUND, *ALLOWED, *REFUSED) if tool.name != "removed"}
RULES: dict[str, Any] = {
    "registry": REGISTRY,
    "bound": frozenset({"bound"}),
    "disabled": ("switched_off",),
    "can_dispatch": lambda name, _: name != "not_dispatchable",
}


# -- what a model may write -----------------------------------------------------------------


class Envelopes:
    """Makes calls at random.

    Args:
        rng: What decides.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = [*(tool.name for tool in (BOUND, *ALLOWED)), *sorted(FORBIDDEN)]

    def call(self) -> tuple[str, str]:
        """Return name and argument text of a call."""
        if self.rng.random() < 0.2:
            # A stream whose call has no name at all is no answer, and never comes this far.
            return self.name() or "?", self.text(self.value(2))
        return TOOL_DISPATCHER_NAME, self.text(self.envelope(0))

    def name(self) -> str:
        """Return a name: a real one, one that looks like it, or any text."""
        rng, real = self.rng, self.rng.choice(self._names)
        match rng.randrange(22):
            case 0:
                return real.upper()
            case 1:
                return real.title()
            case 2:
                return real + rng.choice([" ", "\n", "\u200b", "\u0000", "_", "\u0301", "\ufeff"])
            case 3:
                return rng.choice([" ", "\u200d", "./", "github__", "functions."]) + real
            case 4:
                return real.replace("e", "\u0435").replace("o", "\u043e")
            case 5:
                return "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in real)
            case 6:
                return rng.choice([TOOL_DISPATCHER_NAME, "tool_search", "", "name", "\ud800"])
            case 7:
                return "".join(chr(rng.choice([rng.randrange(0x250), 0x2028])) for _ in range(6))
            case _:
                return real

    def envelope(self, depth: int) -> Any:
        """Return an envelope in one of the forms that models get wrong."""
        rng = self.rng
        name: Any = self.name()
        arguments: Any = self.value(2) if rng.random() < 0.3 else self.arguments()
        match rng.randrange(20):
            case 0:
                return {"name": name, "arguments": json.dumps(arguments)}
            case 1:
                return json.dumps({"name": name, "arguments": arguments})
            case 2:
                return {"arguments": {"name": name, **self.arguments()}}
            case 3:
                return {"arguments": {"name": name, "arguments": arguments}}
            case 4:
                return {"name": name, **self.arguments()}
            case 5 if depth < 4:
                inner = self.envelope(depth + 1)
                outer = rng.choice([TOOL_DISPATCHER_NAME, "open", "anything", name])
                return {"name": outer, "arguments": inner}
            case 6:
                return {"name": rng.choice([[name], {"name": name}, None, 7]), "arguments": {}}
            case 7:
                return {"name": name}
            case 8:
                return {"Name": name, "args": arguments, "tool": name}
            case 9:
                return {"name": name, "arguments": arguments, "name ": self.name(), "id": 1}
            case 10:
                return self.value(3)
            case _:
                return {"name": name, "arguments": arguments}

    def arguments(self) -> dict[str, Any]:
        """Return arguments that may fit some tool."""
        rng = self.rng
        found: dict[str, Any] = {}
        for _ in range(rng.randrange(3)):
            found[rng.choice(["path", "q", "n", "rows", "name", "arguments", "x"])] = rng.choice(
                ["a", "7", "007", 7, True, None, [{"n": "1"}], {"n": 1}, "[1]", '{"a":1}', 1.5]
            )
        return found

    def value(self, depth: int) -> Any:
        """Return any JSON value."""
        rng = self.rng
        kind = rng.randrange(9 if depth else 6)
        if kind == 6:
            return [self.value(depth - 1) for _ in range(rng.randrange(3))]
        if kind > 6:
            keys = ["name", "arguments", "path", "\u0000", "__proto__", self.name()]
            return {rng.choice(keys): self.value(depth - 1) for _ in range(rng.randrange(4))}
        scalars = [None, True, 0, -1, 2**63, 1e300, "", "x", "\ud83d", self.name(), 0.1]
        return rng.choice(scalars)

    def text(self, value: Any) -> str:
        """Return the text of a value, as it is or damaged."""
        rng, text = self.rng, json.dumps(value)
        match rng.randrange(36):
            case 0:
                return text[: rng.randrange(len(text) + 1)]
            case 1:
                return text + rng.choice([" ", "}", "null", "\u0000", text])
            case 2:
                place = rng.randrange(len(text) + 1)
                return text[:place] + chr(rng.randrange(0x300)) + text[place:]
            case 3:
                return text.replace(
                    '{"name"', f'{{"name": {json.dumps(self.name())}, "name"', rng.randrange(2)
                )
            case 4:
                return rng.choice(
                    ["", " ", "NaN", '{"name":NaN}', "[" * 200, '{"name":1e999}', "\ufeff{}", "'"]
                )
            case 5:
                return json.dumps(text)
            case _:
                return text


# -- what must hold -------------------------------------------------------------------------


def judge(name: str, text: str) -> str:
    """Resolve one call in both ways; return what came of it.

    Raises:
        AssertionError: It broke a rule.
    """
    call = Call("c1", name, text)
    found = resolve_call(call, **RULES)
    through = resolve_dispatched_tool_call(call, **RULES)
    if name == TOOL_DISPATCHER_NAME:
        assert through == found
    else:
        assert isinstance(through, NotDispatched) and through.call is call
    assert found.call.id == "c1"
    assert isinstance(encoding.decode(rewrite_direct_call(call)), dict)
    if isinstance(found, Resolved):
        assert found.call.name not in RULED_OUT, found
        assert found.call.name in REGISTRY or found.call.name == "tool_search"
        assert validator_for(found.schema.parameters).validate(found.call.arguments) == ()
        return "resolved"
    assert found.message and len(found.message) < 6_000 and "\n" not in found.message
    if found.code in ("E5", "E7"):
        assert found.target in FORBIDDEN
    for each in FORBIDDEN - {found.call.name}:
        hinted = f'"{each}"' in found.message.partition("Did you mean")[2]
        assert not hinted or each not in RULED_OUT, found.message
    return found.code


class Round(Struct):
    """What a round of calls came to.

    Attributes:
        ran: Tools that ran, with their arguments.
        codes: How many results there are of each code.
    """

    ran: list[tuple[str, dict[str, Any]]]
    codes: Counter[str]


async def play(calls: Sequence[tuple[str, str]]) -> Round:
    """Send the calls through a session as one answer of its model.

    Raises:
        AssertionError: It broke a rule.
    """
    outcome = Round([], Counter())
    bodies: list[bytes] = []

    def tool(schema: ToolSchema) -> FunctionTool[..., Any]:
        async def run(arguments: dict[str, Any]) -> str:
            outcome.ran.append((schema.name, arguments))
            return f"ran {schema.name}"

        defer = None if schema.name == "bound" else True
        return FunctionTool.from_schema(msgspec.structs.replace(schema, defer_loading=defer), run)

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.content)
        content = _stream(calls) if len(bodies) == 1 else _stream(())
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    async def decide(asked: Sequence[Pending]) -> dict[str, str]:
        assert {each.name for each in asked} <= {"asked"}, asked
        return {each.call_id: "deny" for each in asked}

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        agent = Agent(
            "openai-chat:gpt-4.1",
            tools=[tool(each) for each in (BOUND, *ALLOWED, *REFUSED)],
            tool_dispatch=ToolDispatch(can_dispatch=RULES["can_dispatch"]),
            disabled=["switched_off"],
            hooks=[Hook("hooked", before=lambda _: Deny("no"))],
            approval=Approval(
                (Policy("deny", "denied"), Policy("ask", "asked")), default="allow", decide=decide
            ),
            base_url="http://127.0.0.1:9",
            transport=Transport(TransportSettings(retries=0), client=client),
            limits=Limits(steps=2),
        )
        async with agent.open("s", store=MemoryStore()) as session:
            await session.tools.remove("removed")
            await session.run("go")
            data = [event.data for event in session.log.events]
    message = next(each for each in data if isinstance(each, AssistantMessage))
    results = [each for each in data if isinstance(each, ToolResult)]
    assert [each.call_id for each in results] == [each.id for each in message.calls]
    assert len(results) == len(calls)
    started = [each for each in data if isinstance(each, ToolCall)]
    assert not FORBIDDEN & {each.name for each in started}
    for name, arguments in outcome.ran:
        assert name not in FORBIDDEN, name
        schema = REGISTRY[name].parameters
        assert validator_for(schema).validate(encoding.encode(arguments)) == ()
    outcome.codes.update(each.code or "ran" for each in results)
    _request(bodies[-1], len(calls))
    return outcome


def _stream(calls: Sequence[tuple[str, str]]) -> bytes:
    made = [
        {"index": n, "id": f"call_{n}", "type": "function",
         "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(calls)
    ]  # fmt: skip
    delta: dict[str, Any] = {"role": "assistant", "content": None if made else "done"}
    if made:
        delta["tool_calls"] = made
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1"}
    first = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    stop = "tool_calls" if made else "stop"
    last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in (first, last)) + (
        b"data: [DONE]\n\n"
    )


def _request(body: bytes, count: int) -> None:
    """Check the request that carries the round back."""
    messages: list[Any] = json.loads(body)["messages"]
    (said,) = [each for each in messages if each.get("tool_calls")]
    results = [each["tool_call_id"] for each in messages if each["role"] == "tool"]
    assert results == [each["id"] for each in said["tool_calls"]] and len(results) == count
    for each in said["tool_calls"]:
        function = each["function"]
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", function["name"]), function
        assert isinstance(json.loads(function["arguments"]), dict), function


# -- running it -----------------------------------------------------------------------------


async def run(count: int, seed: int) -> int:
    """Throw so many envelopes; print what came of them."""
    envelopes, alone, played = Envelopes(random.Random(seed)), Counter[str](), Counter[str]()
    began = time.perf_counter()
    took = 0.0
    ran: Counter[str] = Counter()
    for start in range(0, count, ROUND):
        calls = [envelopes.call() for _ in range(min(ROUND, count - start))]
        before = time.perf_counter()
        alone.update(judge(name, text) for name, text in calls)
        took += time.perf_counter() - before
        found = await play(calls)
        played += found.codes
        ran.update(name for name, _ in found.ran)
        if start // ROUND % 400 == 399:
            print(f"  {start + ROUND:,} thrown", flush=True)
    seconds = time.perf_counter() - began
    print(f"{count:,} envelopes (seed {seed}) in {seconds:,.0f} s; resolving alone {took:,.0f} s")
    print("resolved alone: " + ", ".join(f"{key} {n:,}" for key, n in sorted(alone.items())))
    print("in sessions:    " + ", ".join(f"{key} {n:,}" for key, n in sorted(played.items())))
    print("tools that ran: " + ", ".join(f"{key} {n:,}" for key, n in sorted(ran.items())))
    print("no exception, no forbidden tool, one result a call")
    return 0


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="random envelopes for the dispatcher")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return anyio.run(run, given.count, given.seed)


if __name__ == "__main__":
    sys.exit(main())
