"""The Amazon Bedrock Converse wire API."""

from __future__ import annotations

WIRE = "bedrock_converse"
"""Its name in route data."""
