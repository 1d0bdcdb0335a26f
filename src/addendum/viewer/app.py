"""The application: which handler answers at which address, behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from addendum import encoding
from addendum.errors import AddendumError, ConfigurationError, SessionMissing
from addendum.masking import masked, masked_json
from addendum.viewer import pages
from addendum.viewer.actions import ACTIONS
from addendum.viewer.page import Page
from addendum.viewer.rooms import House
from addendum.viewer.safety import Guard

MAX_ERROR = 2_000
"""Characters of what went wrong that a page is told."""

Handler = Callable[[Page], Awaitable[Response]]

_PAGES: dict[str, Handler] = {
    "/": pages.home,
    "/sessions": pages.sessions,
    "/s/{session}": pages.chat,
    "/s/{session}/turns": pages.earlier_turns,
    "/s/{session}/events": pages.stream,
    "/s/{session}/trajectory": pages.trajectory,
    "/s/{session}/rows": pages.rows,
    "/s/{session}/event/{seq}": pages.event,
    "/s/{session}/event/{seq}/media/{place}": pages.event_media,
    "/s/{session}/event/{seq}/{part:path}": pages.event_text,
    "/s/{session}/requests/{number}": pages.request_page,
    "/s/{session}/requests/{number}/body": pages.request_body,
    "/s/{session}/requests/{number}/segment": pages.request_segment,
    "/s/{session}/requests/{number}/run/{at}/{count}": pages.request_run,
    "/s/{session}/diff/{a}/{b}": pages.diff,
    "/s/{session}/tools": pages.tools,
    "/s/{session}/usage": pages.usage,
    "/s/{session}/export": pages.export_page,
}


def build(house: House, *, host: str = "127.0.0.1", access: str | None = None) -> Guard:
    """Return the application.

    Args:
        house: What it shows.
        host: The address that it is served on.
        access: A secret that every visitor has to bring; None on loopback.
    """
    guard: Guard

    def page(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            made = Page(request, house, guard.token)
            try:
                return await handler(made)
            except AddendumError as error:
                status = 404 if isinstance(error, SessionMissing | ConfigurationError) else 500
                return await _trouble(made, status, str(error))

        return answer

    def action(handler: Any) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                given = encoding.decode(await request.body() or b"{}")
                if not isinstance(given, dict):
                    raise ConfigurationError("the request is no JSON object")
                return _json(await handler(house, request.path_params.get("session"), given))
            except AddendumError as error:
                return _json({"error": masked(str(error))[:MAX_ERROR]}, 409)

        return answer

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        made = Page(request, house, guard.token)
        return await _trouble(made, status, made.words("app.not_found"))

    static = StaticFiles(directory=Path(__file__).parent / "static")
    routes: list[Any] = [Route(path, page(handler)) for path, handler in _PAGES.items()]
    routes += [Route(path, action(handler), methods=["POST"]) for path, handler in ACTIONS.items()]
    routes.append(Mount("/static", static))
    app = Starlette(routes=routes, exception_handlers={404: missing, 405: missing})
    guard = Guard(app, host=host, access=access)
    return guard


async def _trouble(page: Page, status: int, text: str) -> Response:
    if page.request.headers.get("x-part") == "1":
        return PlainTextResponse(masked(text), status)
    heading = page.words("app.not_found") if status == 404 else page.words("app.failed")
    response = await page.full("message.html", heading=heading, text=text)
    response.status_code = status
    return response


def _json(value: Any, status: int = 200) -> Response:
    data = masked_json(msgspec.json.encode(value))
    return Response(data, status, media_type="application/json")
