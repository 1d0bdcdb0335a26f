"""Azure's OpenAI on loopback: OpenAI's surfaces with a key in a header of its own.

Additional tools were never seen to work here, so they are refused.

Source: learn.microsoft.com, Azure OpenAI v1 API; langchain-openai 1.7.4, which leaves them out.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from addendum.lab.exchange import Call, Provider, Reply
from addendum.lab.facts import CacheFacts
from addendum.lab.refusal import Refusal


class Azure:
    """One of the surfaces.

    Args:
        inner: OpenAI's own.
    """

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        key = call.headers.get("api-key", "")
        if not key:
            text = "Access denied due to invalid subscription key or wrong API endpoint."
            raise Refusal(text, status=401, code="401")
        switches = msgspec.structs.replace(call.switches, openai_additional_tools=False)
        headers = {**call.headers, "authorization": f"Bearer {key}"}
        return self._inner.answer(replace(call, headers=headers, switches=switches))

    def caches(self, model: str) -> CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        return self._inner.caches(model)

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return self._inner.refuse(refusal)
