"""The OpenAI Responses wire API, stateless."""
