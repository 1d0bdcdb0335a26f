"""The Anthropic Messages wire API."""
