"""To whom a request goes: providers, models and what they can be told, as data."""

from __future__ import annotations

from addendum.routes.choose import (
    MESSAGE_TOOLS,
    SYSTEM_ROLE,
    TOOLS_REFUSED,
    Lifetime,
    TailChoice,
    ToolChanges,
    choose_projection,
    context,
    dispatching,
    fields,
    shapes,
    too_many,
    weaker,
)
from addendum.routes.credentials import Secret, credentials
from addendum.routes.data import load
from addendum.routes.describe import describe
from addendum.routes.model import (
    Beta,
    CacheRules,
    Capabilities,
    Endpoint,
    Route,
    is_loopback,
)
from addendum.routes.resolve import resolve

__all__ = [
    "MESSAGE_TOOLS",
    "SYSTEM_ROLE",
    "TOOLS_REFUSED",
    "Beta",
    "CacheRules",
    "Capabilities",
    "Endpoint",
    "Lifetime",
    "Route",
    "Secret",
    "TailChoice",
    "ToolChanges",
    "choose_projection",
    "context",
    "credentials",
    "describe",
    "dispatching",
    "fields",
    "is_loopback",
    "load",
    "resolve",
    "shapes",
    "too_many",
    "weaker",
]
