"""When a request is sent again, and after which wait: one rule, wherever the error stood.

Only while nothing of the answer was passed on, and only what may well succeed then
(`ProviderError.again`). Waits follow what the provider asks for, in a header or in the body of its
error; else they double with jitter. A wait beyond the limit is not begun: the error names it.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from addendum.errors import ProviderError
from addendum.wire.limits import TransportSettings
from addendum.wire.refusal import asked_wait, seconds


class Retry(Struct, frozen=True):
    """A request is about to be sent again.

    Attributes:
        attempt: Attempts so far.
        delay: Seconds until the next one.
        error: Why the last one failed.
    """

    attempt: int
    delay: float
    error: ProviderError


class Retries:
    """The attempts of one request.

    Attributes:
        attempt: The number of the attempt that is being made.

    Args:
        settings: How many, and how long the waits may be.
        sleep: Waits some seconds.
        jitter: Gives a number from 0 to 1.
        clock: Gives the time in seconds since the epoch, to read a date.
        on_retry: Told of each wait before it begins.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        sleep: Callable[[float], Awaitable[None]],
        jitter: Callable[[], float],
        clock: Callable[[], float] = time.time,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        self.attempt = 1
        self._settings = settings
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        self._on_retry = on_retry

    async def wait(self, error: ProviderError, headers: Mapping[str, str]) -> None:
        """Wait until the request may be sent again.

        Args:
            error: Why it failed.
            headers: Those of the answer, names in lower case.

        Raises:
            ProviderError: The very error: it is not to be sent again; or one like it that says
                how long the provider would have it wait.
        """
        settings, now = self._settings, self._clock()
        if not error.again:
            raise error
        asked = _retry_after(headers, now)
        if asked is None:
            asked = asked_wait(error)
        if asked is not None and asked > settings.max_retry_after:
            raise _too_long(error, asked, settings.max_retry_after, now) from error
        if self.attempt > settings.retries:
            raise error
        delay = asked
        if delay is None:
            longest = min(settings.first_delay * 2 ** (self.attempt - 1), settings.max_delay)
            delay = longest * (0.5 + 0.5 * self._jitter())
        if self._on_retry is not None:
            self._on_retry(Retry(self.attempt, delay, error))
        await self._sleep(delay)
        self.attempt += 1


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that a provider asks to wait, if it says so in a form we know."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        asked = seconds(headers.get(name, ""))
        if asked is not None:
            return asked * unit
    try:
        date = email.utils.parsedate_to_datetime(headers["retry-after"])
        # A date without a zone is one of Greenwich.
        until = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
    return max(until - now, 0.0)


def _too_long(error: ProviderError, asked: float, limit: float, now: float) -> ProviderError:
    """Return the same error, with the wait that the provider asks for in place of the advice."""
    said = str(error).rpartition("; ")[0] or str(error)
    longer = type(error)(
        f"{said}; it asks to wait {_span(asked)}, longer than the {limit:g} s that are waited here "
        f"(TransportSettings.max_retry_after): try again {_moment(asked, now)}",
        status=error.status,
        code=error.code,
    )
    vars(longer).update({"body": vars(error).get("body", "")})
    return longer


_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_YEAR = 366 * 86_400


def _span(asked: float) -> str:
    if asked > _YEAR:
        return "more than a year"
    size, unit = next(each for each in _UNITS if asked >= each[0] or each[0] == 1)
    number = round(asked / size, 1)
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _moment(asked: float, now: float) -> str:
    if asked > _YEAR:
        return "with another model or account"
    return f"after {datetime.fromtimestamp(now + asked, UTC):%Y-%m-%d %H:%M:%S} UTC"
