"""One session told in five ways: moved from route to route in mid-conversation, and back."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from tests.agent.stage import breaks, data, fn, stage
from tests.property.reference import blocks, extends

from addendum.agent.context.requests import Sent
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage
from addendum.routes import resolve

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic:claude-opus-5-5"
DEEPSEEK = "deepseek:deepseek-flash"
OPENAI = "openai:gpt-6.1-sol"
CHAT = "openai-chat:gpt-4.1"
GEMINI = "gemini:gemini-4-argon"

WAYS = {
    CLAUDE: ("in-history", "by-value"),
    DEEPSEEK: ("dispatch", "by-value"),
    OPENAI: ("addition-only", "by-value"),
    CHAT: ("dispatch", "by-value"),
    GEMINI: ("rebind", "by-reference"),
}
"""How each is told: by value, in items, by dispatch on two wires, and by a list written anew."""

TOURS = 2


def tool_of(number: int) -> str:
    """Every turn calls one of three tools: one of the head, two that came later."""
    return ("web", "late", "later")[number % 3 if number > 3 else min(number, 1)]


def script() -> Script:
    steps = []
    for number in range(1, TOURS * len(WAYS) + 2):
        call = ScriptCall(tool_of(number), {"q0": f"query {number}"})
        thought = f"secret thought {number}"
        steps.append(
            ScriptStep(
                f"question {number}",
                (Entry(thinking=thought, calls=(call,)), Entry(text=f"answer {number}")),
            )
        )
    return Script(tuple(steps))


Pair = tuple[str, str, str]


def pairs(sent: Sent) -> list[Pair]:
    """Calls of a body in order: form, name and arguments, each with its result; fails on others."""
    value: dict[str, Any] = json.loads(sent.body)
    calls: dict[str, tuple[str, str, str]] = {}
    results: list[str] = []

    def call(ident: str, name: str, arguments: Any) -> None:
        assert ident not in calls
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        form = "direct"
        if name == "call_tool":
            form, name, given = "dispatch", given["name"], given["arguments"]
        calls[ident] = (form, name, given["q0"])

    for item in value.get("input", []):
        if item["type"] == "function_call":
            call(item["call_id"], item["name"], item["arguments"])
        elif item["type"] == "function_call_output":
            results.append(item["call_id"])
    for message in value.get("contents", []):
        for part in message["parts"]:
            if "functionCall" in part:
                call(
                    part["functionCall"]["id"], *(part["functionCall"][k] for k in ("name", "args"))
                )
            elif "functionResponse" in part:
                results.append(part["functionResponse"]["id"])
    for message in value.get("messages", []):
        for each in message.get("tool_calls") or ():
            call(each["id"], each["function"]["name"], each["function"]["arguments"])
        if message["role"] == "tool":
            results.append(message["tool_call_id"])
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                call(block["id"], block["name"], block["input"])
            elif block["type"] == "tool_result":
                results.append(block["tool_use_id"])
    assert list(calls) == results
    return list(calls.values())


def secrets(message: AssistantMessage) -> set[str]:
    """What only the model that made it may read: signatures and sealed reasoning."""
    text = b"\n".join(bytes(each) for each in message.native).decode()
    return set(re.findall(r'"(?:signature|encrypted_content|thoughtSignature)":"([^"]+)"', text))


async def test_d1_a_session_moves_between_five_routes_and_back() -> None:
    async with stage(script()) as here:
        options: dict[str, Any] = {"tool_dispatch": True, "tools": [fn("web")]}
        asked = 0
        served: list[str] = []

        async def turn(session: Any) -> None:
            nonlocal asked
            asked += 1
            result = await session.run(f"question {asked}")
            assert result.text == f"answer {asked}"
            served.append(session.route.name)

        def route(name: str) -> Any:
            base_url = here.lab.base_url(name.partition(":")[0])
            return resolve(name, base_url=base_url, environ={})

        for tour in range(TOURS):
            agent = here.agent(CLAUDE, **options)
            async with here.open(agent) as session:
                for name in (CLAUDE, DEEPSEEK, OPENAI, CHAT):
                    session.use(route(name))
                    if tour == 0 and name == CLAUDE:
                        await session.tools.add(fn("late"))
                    if tour == 0 and name == OPENAI:
                        await session.tools.add(fn("later"))
                    elif tour:
                        # What was added by hand is there again in a new process once it is added.
                        await session.tools.add(fn("late"))
                        await session.tools.add(fn("later"))
                    await turn(session)
            rebinding = here.agent(GEMINI, **options | {"tool_changes": "rebind"})
            async with here.open(rebinding) as session:
                await session.tools.add(fn("late"))
                await session.tools.add(fn("later"))
                await turn(session)
        # And where it began once more.
        async with here.open(here.agent(CLAUDE, **options)) as session:
            await session.tools.add(fn("late"))
            await session.tools.add(fn("later"))
            await turn(session)
            reasons = breaks(session)
            messages = [each for each in data(session) if isinstance(each, AssistantMessage)]
        sent = here.sent
        assert [each.context.route for each in sent] == [name for name in served for _ in range(2)]
        assert not here.refused()
        assert all(capture.status == 200 for capture in here.lab.captures)

        # Told in its own way on each, and every earlier call and result is there in its form.
        for number, each in enumerate(sent):
            name = each.context.route
            assert (each.context.projection, each.context.definitions) == WAYS[name]
            turns = range(1, number // 2 + 1 + number % 2)
            expected = [
                (
                    "dispatch" if name in (CHAT, DEEPSEEK) and tool_of(turn) != "web" else "direct",
                    tool_of(turn),
                    f"query {turn}",
                )
                for turn in turns
            ]
            assert pairs(each) == expected

        # Reasoning goes back to whoever made it, and to nobody else.
        made = {name: set[str]() for name in WAYS}
        for message in messages:
            made[message.route] |= secrets(message)
        assert all(made[name] for name in (CLAUDE, OPENAI, GEMINI))
        for each in sent:
            body = each.body.decode()
            for name, own in made.items():
                if name != each.context.route:
                    assert not any(secret in body for secret in own)
        for name in (CLAUDE, OPENAI, GEMINI):
            last = [each for each in sent if each.context.route == name][-1].body.decode()
            assert sum(secret in last for secret in made[name]) >= TOURS

        # Coming back renders the earlier bytes again, and reads them from the cache.
        for name in WAYS:
            own = [each for each in sent if each.context.route == name]
            for before, after in itertools.pairwise(own):
                assert extends(
                    blocks(before.body, before.context), blocks(after.body, after.context)
                )
            assert here.judged(name).totals.undeclared_misses == 0
            assert here.judged(name).totals.misses == 0
        assert {reason for reason, _ in reasons} == {"route changed"}
        assert len(reasons) == len(WAYS) - 1
