"""What a framework's own code saw: the calls that reached its tools, and the answers it read."""

from __future__ import annotations

import json
import os
from typing import Any

NODES = os.environ.get("ADDENDUM_NODES")
"""Where what is known of a conversation is kept, for whoever looks at it afterwards."""

CALLS: list[Any] = []
TEXTS: list[str] = []


def called(name: str, arguments: Any) -> None:
    """Note a call that reached a tool."""
    CALLS.append([name, arguments])


def answered(text: str) -> None:
    """Note the text that ends a turn."""
    TEXTS.append(text)


def tell() -> None:
    """Print all of it, for whoever compares two runs."""
    # Calls of one answer may run side by side, in any order.
    calls = sorted(CALLS, key=json.dumps)
    print(json.dumps({"calls": calls, "texts": TEXTS}, sort_keys=True))
