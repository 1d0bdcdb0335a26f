"""Sends one request and reads its answer, again while nothing of an answer was passed on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from addendum.errors import ProviderError
from addendum.wire.answer import Answer, Delta, Parser
from addendum.wire.apis import Wire
from addendum.wire.transport import Carrier, Reply, Retries, Retry, WireRequest


class Sending:
    """One request on its way.

    Args:
        transport: Carries it.
        api: The wire API.
        request: The request.
        most: Tokens of output that the request allows, if it says so.
        on_retry: Told of each retry, in front of its wait.

    Attributes:
        parser: Has what arrived so far, of the latest attempt; None before the first.
        answer: The answer, once all of it was taken.
    """

    def __init__(
        self,
        transport: Carrier,
        api: Wire,
        request: WireRequest,
        *,
        most: int | None = None,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        self.parser: Parser | None = None
        self.answer = Answer()
        self._transport = transport
        self._api = api
        self._request = request
        self._most = most
        self._on_retry = on_retry

    async def pieces(self) -> AsyncGenerator[tuple[Delta, ...]]:
        """Send it, and yield what each event of the answer adds, which may be nothing.

        Raises:
            ProviderError: The provider refused, was busy, or the stream broke.
        """
        retries: Retries | None = None
        while True:
            parser = self.parser = self._api.parser()
            passed_on = False
            reply: Reply | None = None
            again = {} if retries is None else {"retries": retries}
            try:
                async with self._transport.stream(
                    self._request, on_retry=self._on_retry, **again
                ) as reply:
                    retries = reply.retries
                    async for event in reply.events:
                        deltas = parser.feed(event)
                        passed_on = passed_on or bool(deltas)
                        yield deltas
                self.answer = parser.finish(self._most)
                return
            except ProviderError as error:
                if passed_on or reply is None or retries is None:
                    raise
                failed = error
            # The failed connection is closed by now: its place may be needed while this waits.
            await retries.wait(failed, reply.headers)


async def send(transport: Carrier, api: Wire, request: WireRequest) -> Answer:
    """Send a request of which only the answer is wanted.

    Raises:
        ProviderError: The provider refused, was busy, or the stream broke.
    """
    sending = Sending(transport, api, request)
    async with aclosing(sending.pieces()) as pieces:
        async for _ in pieces:
            pass
    return sending.answer
