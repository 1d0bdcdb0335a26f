"""The OpenAI Chat Completions wire API."""

from __future__ import annotations

WIRE = "openai_chat"
"""Its name in route data."""
