"""A chat service: one request opens a session, others use it, and any may close it.

    python web_chat.py          POST /chats/ID with a text streams the answer; DELETE /chats/ID ends

A client that goes away in the middle of an answer stops it. Needs a key for the route.
"""

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from addendum import AddendumError, Agent, Session, TextPiece

STORE = "sqlite:///chats.db"


class Chats:
    """The sessions that this process has open, by id."""

    def __init__(self, agent: Agent, store: str) -> None:
        self._agent, self._store = agent, store
        self._open: dict[str, Session] = {}
        self._opening = anyio.Lock()

    async def session(self, name: str) -> Session:
        """Return a session that this process has open."""
        async with self._opening:  # the first request that asks for a session opens it
            if name not in self._open:
                self._open[name] = await self._agent.open(name, store=self._store)
            return self._open[name]

    async def close(self, name: str) -> None:
        """Close a session; a turn that runs in it is cancelled."""
        if name in self._open:
            await self._open.pop(name).aclose()

    async def aclose(self) -> None:
        """Close all of them, when the service ends."""
        for name in list(self._open):
            await self.close(name)


async def pieces(session: Session, text: str) -> AsyncGenerator[str]:
    """Give an answer's text as it comes; whoever stops listening stops the turn."""
    try:
        async with session.stream(text) as events:
            async for event in events:
                if isinstance(event, TextPiece):
                    yield event.text
    except AddendumError as error:  # one line that says what to do; the session goes on
        yield f"\n[{error}]"


def service(agent: Agent, store: str = STORE) -> Starlette:
    """Return the application."""
    chats = Chats(agent, store)

    async def say(request: Request) -> Response:
        session = await chats.session(request.path_params["name"])
        return StreamingResponse(pieces(session, (await request.body()).decode()))

    async def end(request: Request) -> Response:
        await chats.close(request.path_params["name"])
        return Response(status_code=204)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await chats.aclose()

    routes = [
        Route("/chats/{name}", say, methods=["POST"]),
        Route("/chats/{name}", end, methods=["DELETE"]),
    ]
    return Starlette(routes=routes, lifespan=life)


if __name__ == "__main__":
    made = Agent("anthropic:claude-opus-5-5", instructions="Answer briefly.")
    uvicorn.run(service(made), port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
