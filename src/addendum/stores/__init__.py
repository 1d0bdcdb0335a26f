"""Where sessions are kept: implementations of `addendum.log.store.Store`."""

from __future__ import annotations

import os
from pathlib import Path

from addendum.checked import checks_arguments
from addendum.errors import ConfigurationError
from addendum.log.store import Store
from addendum.stores.memory import MemoryStore
from addendum.stores.sqlite import PREFIX, SqliteStore

__all__ = ["DEFAULT_URL", "MemoryStore", "SqliteStore", "check_url", "open_store"]

MEMORY = "memory://"


def _default_url(data_home: str | None) -> str:
    """Return the default address; a relative XDG_DATA_HOME does not count (its specification)."""
    home = data_home if data_home and Path(data_home).is_absolute() else "~/.local/share"
    return f"{PREFIX}{home}/addendum/sessions.db"


DEFAULT_URL = _default_url(os.environ.get("XDG_DATA_HOME"))
"""Where sessions are kept unless the caller says otherwise: the user's own data directory."""


@checks_arguments
async def open_store(url: str | Store) -> Store:
    """Open the store that an address names.

    Args:
        url: `memory://` (this process only, a new one each time), `sqlite:///path.db` or
            `sqlite:////absolute/path.db`; a store that is open already is returned as it is.

    Returns:
        The store. Whoever opened it closes it with `aclose()`.

    Raises:
        ConfigurationError: No kind of store has such an address.
        StoreTooNew: A later release wrote the file.
        StoreError: It cannot be opened.
    """
    if not isinstance(url, str):
        return url
    check_url(url)
    return MemoryStore() if url == MEMORY else await SqliteStore.open(url)


def check_url(url: str) -> None:
    """Check that there is a kind of store for an address.

    Raises:
        ConfigurationError: There is none.
    """
    if url == MEMORY or url.startswith("sqlite:"):
        return
    # Only the scheme is repeated: the rest of an address may hold a password.
    scheme, found, _ = url.partition("://")
    named = f"a store of kind {scheme[:40]!r}" if found else "a store address without a scheme"
    raise ConfigurationError(
        f"{named} is not supported: write sqlite:///path.db, sqlite:////absolute/path.db "
        "or memory://"
    )
