"""The OpenAI Responses wire API, stateless."""

from __future__ import annotations

WIRE = "openai_responses"
"""Its name in route data."""
