"""A tool behind hooks and approval, called in every way there is, on routes of each kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.agent.trouble import World

from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Approval, Decision, Pending, Policy
from addendum.agent.session import Session
from addendum.lab.script import Entry, Form, Script, ScriptCall, ScriptStep
from addendum.log.events import EventData
from addendum.tools.functions import FunctionTool, ToolContext, tool

DISPATCH = "openai-chat:gpt-4.1"


class Tools:
    """Tools that note with what they ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    def weather(self, *, defer: bool = True) -> FunctionTool[..., Any]:
        async def weather(city: str, days: int = 1) -> str:
            """Tell the weather."""
            self.ran.append(("weather", (city, days)))
            if city == "Atlantis":
                raise ValueError("it has sunk")
            return f"rain in {city}"

        return tool(name="weather", defer_loading=defer)(weather)

    def clock(self) -> FunctionTool[..., Any]:
        async def clock(context: ToolContext) -> str:
            """Tell the time."""
            self.ran.append(("clock", context.call_id))
            return "noon"

        return tool(name="clock")(clock)


def call(name: str, form: Form = "auto", /, **arguments: Any) -> ScriptCall:
    return ScriptCall(name, arguments, form)


def weather(city: Any = "Oslo", **more: Any) -> ScriptCall:
    """A call through the dispatcher, or by name where there is none."""
    return call("weather", city=city, **more)


def script(*calls: ScriptCall, user: str = "go", more: tuple[ScriptStep, ...] = ()) -> Script:
    return Script((ScriptStep(user, (Entry(calls=calls), Entry(text="done"))), *more))


def agent(here: World, own: Tools, **more: Any) -> Agent:
    return here.agent(
        **{"tools": [own.clock(), own.weather()], "tool_dispatch": True, "record": True} | more
    )


def sent_results(here: World) -> list[tuple[str, str]]:
    """Return name and content of the results in the last chat request."""
    body = json.loads(here.lab.captures[-1].body)
    names = {
        made["id"]: made["function"]["name"]
        for message in body["messages"]
        for made in message.get("tool_calls", ())
    }
    return [
        (names[message["tool_call_id"]], message["content"])
        for message in body["messages"]
        if message["role"] == "tool"
    ]


def only(data: list[EventData], kind: type[Any]) -> Any:
    (found,) = [each for each in data if isinstance(each, kind)]
    return found


ASK = Approval((Policy("allow", "clock"),))


def deciding(*answers: Any) -> tuple[Approval, list[Sequence[Pending]]]:
    """Rules whose person gives these answers in turn, to all calls that are asked at once."""
    asked: list[Sequence[Pending]] = []
    left = list(answers)

    async def decide(batch: Sequence[Pending]) -> Mapping[str, Decision | str]:
        asked.append(batch)
        answer = left.pop(0)
        return {each.call_id: answer for each in batch}

    return Approval((Policy("allow", "clock"),), decide=decide), asked


def decide_all(session: Session, decision: Decision | str) -> dict[str, Decision | str]:
    return {each.call_id: decision for each in session.pending()}
