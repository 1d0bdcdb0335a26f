"""Makes the log of a released format, and the body of the request that continues it.

    python -m tests.golden.make_logs            for today's format, if there is none yet

Both are data from then on: a later release has to open the log and send that very body.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Raw
from tests.agent.stage import CLAUDE, LONG, Stage, fn, server, stage

from addendum import Agent, Approval, Limits, Policy
from addendum.errors import AddendumError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import FORMAT
from addendum.log.values import ToolSchema
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool

LOGS = Path(__file__).resolve().parent / "logs"
NEXT = "and what follows?"


def _call(text: str, *names: str, summary: str | None = None) -> ScriptStep:
    calls = tuple(ScriptCall(name, {"q0": "é"}) for name in names)
    first = (Entry(thinking=f"about {text}", calls=calls),) if calls else ()
    return ScriptStep(text, (*first, Entry(text=f"answer to {text}")), summary=summary)


SCRIPT = Script(
    (
        _call("one", "web", "long", summary="kept"),
        _call("two", "github__t0", summary=" "),
        _call("three", "ask"),
        _call("three, but otherwise"),
        _call("four"),
        _call("five", "web"),
        _call("six"),
        _call(NEXT),
    )
)


def agent(here: Stage) -> Agent:
    """Return the agent that the conversation belongs to."""

    async def run(arguments: dict[str, Any]) -> str:
        return "".join(f"line {number}\n" for number in range(300))

    schema = ToolSchema("long", "Gives much.", Raw(b'{"type":"object","properties":{}}'))
    return here.agent(
        CLAUDE,
        instructions=LONG,
        conversation_instructions="In English.",
        turn_instructions="Be brief.",
        tools=[fn("web"), fn("ask"), FunctionTool.from_schema(schema, run), fn("off")],
        disabled=["off"],
        mcp_servers=[server(instructions="Paths are relative.")],
        approval=Approval((Policy("ask", "ask"),), default="allow"),
        limits=Limits(shown_bytes=500, server_wait=3.0),
    )


async def written() -> Sequence[bytes]:
    """Return a stored log with every kind of event that this release writes."""
    async with stage(SCRIPT) as here:
        made = agent(here)
        async with here.open(made, "parent") as session:
            await session.run("one")
            await session.keep_alive()
            await session.tools.enable("github")
            await session.run("two")
            try:
                await session.compact()
            except AddendumError:
                pass
            result = await session.run("three")
            await session.decide({each.call_id: "approve" for each in result.waiting})
            await session.edit(3, "three, but otherwise")
            here.lab.fail_next("anthropic", status=500)
            try:
                await session.run("four")
            except AddendumError:
                pass
            await session.retry()
            await session.tools.add(fn("web", 1))
            await session.compact("What was said so far.", keep_turns=1)
            await session.run("five")
            async with session.fork("s") as child:
                await child.tools.disable("github")
                await child.run("six")
        return await here.store.read("s")


async def continued(stored: Sequence[bytes]) -> bytes:
    """Return the body of the request that the next turn of a stored log sends."""
    async with stage(SCRIPT) as here:
        assert isinstance(here.store, MemoryStore)
        lease = await here.store.acquire("s")
        await here.store.append(lease, 0, stored)
        await here.store.release(lease)
        async with here.open(agent(here)) as session:
            await session.run(NEXT)
            return session.sent[-1].body


def paths(number: int) -> tuple[Path, Path]:
    """Return the files of a format's log, one event a line, and of the body that continues it."""
    return LOGS / f"{number}.events.jsonl", LOGS / f"{number}.next.json"


def main() -> None:
    """Write what is missing for today's format."""
    log, following = paths(FORMAT)
    if log.exists():
        return
    stored = anyio.run(written)
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"".join(line + b"\n" for line in stored))
    following.write_bytes(anyio.run(continued, stored))


if __name__ == "__main__":
    main()
