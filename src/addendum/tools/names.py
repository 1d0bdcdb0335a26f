"""Names under which a model sees tools.

A server's tool is `SERVER__TOOL`. Where that is no name every provider takes, or is not free, it
gets a suffix from the digest of the full name, so the same tool has the same name in every process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from addendum.encoding import clean, digest
from addendum.errors import ConfigurationError

MAX_NAME = 64
"""Characters of a name: the lowest limit among the providers (OpenAI, Anthropic, Gemini)."""

_STEM = 55
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_GOOD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def model_name(server: str, tool: str, taken: Collection[str]) -> str:
    """Return the name under which a model sees a server's tool.

    `SERVER__TOOL`, with `_` for characters outside `[A-Za-z0-9_-]`. A name that was changed so, is
    longer than 64, does not start with a letter or `_`, comes from a server whose name has `__`,
    or is taken, becomes: at most 55 characters of it, `_`, and 8 hex digits of the digest of the
    unchanged full name. A first character that no provider takes is kept behind a `_`.

    Args:
        server: The server's configured name.
        tool: The server's own name for the tool.
        taken: Names that came earlier. Two different tools may share a full name
            (`a__b` + `c`, `a` + `b__c`); the later one gets another digest.
    """
    full = clean(f"{server}__{tool}")
    name = _FOREIGN.sub("_", full)
    if name == full and "__" not in server and _GOOD.fullmatch(name) and name not in taken:
        return name
    seed = full
    while True:
        unique = f"{_began(name)[:_STEM]}_{digest(seed)[:8]}"
        if unique not in taken:
            return unique
        seed += "\n"


def legal_name(name: str) -> str:
    """Return a name that a model made up as one that every provider takes back in a history.

    A good name stays; another becomes at most 55 characters of it, `_`, and 8 hex digits of its
    digest, so that two bad ones stay apart.
    """
    if _GOOD.fullmatch(name):
        return name
    return f"{_began(_FOREIGN.sub('_', clean(name)))[:_STEM]}_{digest(clean(name))[:8]}"


def _began(name: str) -> str:
    return name if _GOOD.match(name) else f"_{name}"


def model_prefix(server: str) -> str:
    """Return how the names begin under which a model sees a server's tools."""
    return _began(_FOREIGN.sub("_", clean(f"{server}__")))[:_STEM]


def namer(servers: Iterable[str], name: str) -> str | None:
    """Return the server that a tool of this name belongs to; None if none has its prefix.

    The longest prefix counts. Where names of servers become the same prefix, a digest in the name
    tells them apart, or that it has none; where it was cut, or more was replaced than the server's
    part, the first server counts.
    """
    prefixes = {server: model_prefix(server) for server in servers}
    longest = max((len(each) for each in prefixes.values() if name.startswith(each)), default=0)
    found = [
        server
        for server, each in prefixes.items()
        if len(each) == longest and name.startswith(each)
    ]
    for tool in (name[longest:-9], name[longest:]):
        own = next((server for server in found if model_name(server, tool, ()) == name), None)
        if own is not None:
            return own
    return found[0] if found else None


def check_function_names(names: Iterable[str], reserved: Iterable[str] = ()) -> None:
    """Check that function tools have names that every provider takes, each only once.

    Args:
        names: The names in order.
        reserved: Names that belong to us.

    Raises:
        ConfigurationError: A name is no good, reserved, or used twice.
    """
    ours = set(reserved)
    seen: set[str] = set()
    for name in names:
        if not _GOOD.fullmatch(name):
            raise ConfigurationError(
                f"tool name {name!r} is not usable; take 1 to {MAX_NAME} letters, digits, `_` or "
                "`-`, beginning with a letter or `_`"
            )
        if name in ours:
            raise ConfigurationError(f"tool name {name!r} is reserved; rename the function tool")
        if name in seen:
            raise ConfigurationError(f"two function tools are named {name!r}; rename one of them")
        seen.add(name)
