"""Stored sessions for the commands that read them: as they were run, and with faults put in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import structs
from tests.cli.commands import told

from addendum.log import codec
from addendum.log.events import AssistantMessage, CacheBreak, Event, ToolPolicy
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.stores import open_store

CLAUDE = "anthropic:claude-opus-5-5"
CHAT = "openai-chat:gpt-4.1"
TEXT = """
name: NAME
instructions: {text: Be brief., tokens: 1600}
tools:
  - {name: look, parameters: {properties: {q: {type: string}}}, result: {text: seen, tokens: 300}}
servers:
  files: {tools: [{name: read, result: text}, {name: write}]}
steps:
  - user: One.
    model: [{calls: [{tool: look, arguments: {q: a}}]}, {text: First.}]
  - enable: files
  - user: Two.
    model: [{calls: [{tool: read}, {tool: read}]}, {text: Second.}]
  - disable: files
  - user: Three.
    model: [{text: Third.}]
  - compact: {summary: They counted.}
  - user: Four.
    model: [{text: Fourth.}]
"""


def play(folder: Path, name: str, route: str, *more: str) -> str:
    """Run the scenario on a route into `folder`'s store; the session's id begins with `name`."""
    file = folder / f"{name}.yaml"
    file.write_text(TEXT.replace("NAME", name), "utf-8")
    told("run", str(file), "--route", route, "--store", url(folder), *more)
    return url(folder)


def url(folder: Path) -> str:
    """Return the address of a folder's store."""
    return f"sqlite:///{folder / 'sessions.db'}"


def rewritten(folder: Path, beginning: str, name: str, change: Callable[[Event], Event]) -> None:
    """Copy a session under another id, with its events changed on the way."""

    async def copy() -> None:
        store = await open_store(url(folder))
        try:
            rows = [row for row in await store.sessions() if row.id.startswith(beginning)]
            assert len(rows) == 1
            events = [codec.decode_event(raw) for raw in await store.read(rows[0].id)]
            log = SessionLog.load(name, [codec.encode_event(change(event)) for event in events])
            log._durable = 0  # pyright: ignore[reportPrivateUsage]
            lease = await store.acquire(name)
            await log.flush(store, lease)
            await store.release(lease)
        finally:
            await store.aclose()

    anyio.run(copy)


def silent(event: Event) -> Event:
    """Take a declared break out of a log."""
    if isinstance(event.data, CacheBreak):
        return structs.replace(event, data=ToolPolicy())
    return event


def unread(number: int) -> Callable[[Event], Event]:
    """Have the provider read nothing for the answer with this place among all answers."""
    seen = 0

    def change(event: Event) -> Event:
        nonlocal seen
        if not isinstance(event.data, AssistantMessage):
            return event
        seen += 1
        if seen != number:
            return event
        usage = event.data.usage
        written = (usage.cache_read or 0) + (usage.cache_write or 0)
        lost = structs.replace(usage, cache_read=0, cache_write=written)
        return structs.replace(event, data=structs.replace(event.data, usage=lost))

    return change


def unreported(event: Event) -> Event:
    """Have the provider report no tokens at all."""
    if isinstance(event.data, AssistantMessage):
        return structs.replace(event, data=structs.replace(event.data, usage=Usage()))
    return event
