"""The Gemini `generateContent` wire API."""

from __future__ import annotations

WIRE = "gemini"
"""Its name in route data."""
