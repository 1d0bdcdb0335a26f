"""Every error addendum raises, in one tree.

    AddendumError
    ├── ConfigurationError      the caller asked for something that cannot be set up
    │   ├── UnknownRoute        no such provider, model pattern or `+FACT`
    │   ├── MissingExtra        an optional dependency is not installed
    │   ├── MissingCredential   no key for the route in the environment
    │   └── EngineUnavailable   the real engine cannot run here (in `lab.engine.server`)
    ├── ContentError            JSON, text or a schema from outside breaks a stated rule
    │   └── SchemaUnusable      a schema cannot be applied (in `tools.references`)
    ├── LogError                the log refuses an event, or cannot be read
    │   ├── AppendRefused       the event breaks a rule of the log; nothing was written
    │   ├── Conflict            somebody else appended first
    │   └── UnknownEvent        a required event type this release does not know
    ├── StoreError              a store cannot be read or written
    │   ├── SessionBusy         another writer holds the session's lease
    │   ├── SessionMissing      no session with this id
    │   └── StoreTooNew         the store was written by a later release
    ├── UnsupportedContent      a route cannot say this; nothing was sent
    ├── ProviderError           the provider answered with an error
    │   ├── ProviderRefused     4xx: the request will not be accepted as it is
    │   ├── ProviderBusy        429 or 5xx, after the retries
    │   └── StreamBroken        the answer was cut or is not in the provider's format
    └── LimitReached            a limit of the agent ended the turn

Every message is one line and ends with what to do. `session`, `route` and `seq` say where it
happened, where that is known. A message often quotes others (a provider, a server, an address), so
none holds a credential: each is masked when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from addendum.masking import masked

MAX_LEAVES = 10
"""Errors of one group that are told one by one."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or of a group what failed in it: a group's own text says only how many."""
    pending = [error]
    while pending:
        each = pending.pop()
        if isinstance(each, BaseExceptionGroup):
            pending += reversed(cast("BaseExceptionGroup[BaseException]", each).exceptions)
        else:
            yield each


def described(error: BaseException) -> str:
    """Return type and text of what foreign code raised, whatever it does when it is asked.

    Of a group each leaf is told, once, and beyond `MAX_LEAVES` how many more there are.
    """
    told = list(dict.fromkeys(_described(leaf) for leaf in leaves(error)))
    more = [f"and {len(told) - MAX_LEAVES} more"] if len(told) > MAX_LEAVES else []
    return "; ".join([*told[:MAX_LEAVES], *more])


def _described(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        said = "its message cannot be shown"
    name = type(error).__name__
    return f"{name}: {said}" if said else name


class AddendumError(Exception):
    """Base of all errors of this library.

    Attributes:
        session: Id of the session concerned, if any.
        route: Name of the route concerned (`provider:model`), if any.
        seq: Sequence number of the event concerned, if any.
    """

    def __init__(
        self,
        message: str,
        *,
        session: str | None = None,
        route: str | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(masked(message))
        self.session = session
        self.route = route
        self.seq = seq


class ConfigurationError(AddendumError):
    """The caller asked for something that cannot be set up."""


class UnknownRoute(ConfigurationError):
    """No such provider, model or `+FACT`."""


class MissingExtra(ConfigurationError):
    """An optional dependency is not installed."""


def install_hint(extra: str) -> str:
    """Return how an optional dependency is installed, from an index and in a checkout."""
    return f'pip install "addendum[{extra}]", or in a checkout pip install ".[{extra}]"'


class MissingCredential(ConfigurationError):
    """No key for the route in the environment."""


class ContentError(AddendumError):
    """JSON, text or a schema from outside breaks a rule stated in `encoding`."""


class LogError(AddendumError):
    """The log refuses an event, or cannot be read."""


class AppendRefused(LogError):
    """The event breaks a rule of the log; the log is unchanged."""


class Conflict(LogError):
    """Another writer appended first: the expected seq is no longer the log's end."""


class UnknownEvent(LogError):
    """The log holds a required event type that this release does not know."""


class StoreError(AddendumError):
    """A store cannot be read or written."""


class SessionBusy(StoreError):
    """Another writer holds the session's lease."""


class SessionMissing(StoreError):
    """The store has no session with this id."""


class StoreTooNew(StoreError):
    """The store was written by a later release."""


class UnsupportedContent(AddendumError):
    """The route cannot say this; nothing was sent."""


class ProviderError(AddendumError):
    """The provider answered with an error.

    Attributes:
        status: HTTP status, or None if the connection broke before one.
        code: The provider's own error code or type, if it gave one.
        again: Whether the same request may well succeed if it is sent again, so long as nothing of
            its answer was passed on.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        again: bool = False,
        session: str | None = None,
        route: str | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(message, session=session, route=route, seq=seq)
        self.status = status
        self.code = code
        self.again = again


class ProviderRefused(ProviderError):
    """4xx: the request will not be accepted as it is."""


class ProviderBusy(ProviderError):
    """429 or 5xx, still so after the retries."""


class StreamBroken(ProviderError):
    """The answer was cut, or is not in the provider's format."""


class LimitReached(AddendumError):
    """A limit of the agent (steps, tokens, time) ended the turn."""
