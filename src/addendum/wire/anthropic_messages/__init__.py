"""The Anthropic Messages wire API."""

from __future__ import annotations

WIRE = "anthropic_messages"
"""Its name in route data."""
