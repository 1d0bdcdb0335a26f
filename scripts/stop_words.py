"""List the stop words of the vendors' newest SDK types, and what our table says of each.

    python -m scripts.stop_words

A word that stands in no row of `addendum.wire.endings` is printed as one that would go there; exit
1 if there is one. The SDKs are development dependencies: a newer release is read by installing it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, get_args

from addendum.wire.endings import STOPS


def literals(annotation: Any) -> Iterator[str]:
    """Yield the strings of a type annotation's literals, however deep they stand."""
    for each in get_args(annotation):
        if isinstance(each, str):
            yield each
        else:
            yield from literals(each)


def anthropic_words() -> Iterator[str]:
    """Yield the stop words of Claude's Messages API."""
    from anthropic.types import StopReason
    from anthropic.types.beta import BetaStopReason

    yield from literals(StopReason)
    yield from literals(BetaStopReason)


def openai_words() -> Iterator[str]:
    """Yield the stop words of Chat Completions and Responses."""
    from openai.types.chat import chat_completion, chat_completion_chunk
    from openai.types.responses import response, response_status

    yield from literals(chat_completion.Choice.model_fields["finish_reason"].annotation)
    yield from literals(chat_completion_chunk.Choice.model_fields["finish_reason"].annotation)
    yield from literals(response.IncompleteDetails.model_fields["reason"].annotation)
    yield from literals(response_status.ResponseStatus)


def google_words() -> Iterator[str]:
    """Yield the stop words of Gemini."""
    from google.genai import types

    yield from (word.value for word in types.FinishReason)


def bedrock_words() -> Iterator[str]:
    """Yield the stop words of Bedrock Converse."""
    import botocore.loaders

    model: Any = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    yield from model["shapes"]["StopReason"]["enum"]


VENDORS = {
    "anthropic": anthropic_words,
    "openai": openai_words,
    "google-genai": google_words,
    "botocore": bedrock_words,
}


def vendor_words() -> list[tuple[str, str]]:
    """Return each vendor's stop words, each once, in the order of its types."""
    return [(name, word) for name, words in VENDORS.items() for word in dict.fromkeys(words())]


def missing() -> list[tuple[str, str]]:
    """Return the vendors' words of which the table says nothing."""
    return [(name, word) for name, word in vendor_words() if word.casefold() not in STOPS]


def main() -> int:
    """Print the table and what it lacks."""
    for name, word in vendor_words():
        stop = STOPS.get(word.casefold())
        print(f"{name:14} {word:32} {'MISSING' if stop is None else stop.ending}")
    lacking = missing()
    if lacking:
        words = " ".join(word.casefold() for _, word in lacking)
        print(f"\nadd to a row in src/addendum/wire/endings.py: {words}")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
