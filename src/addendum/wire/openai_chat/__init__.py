"""The OpenAI Chat Completions wire API."""
