"""Which files of results a route is shown, and what stands for the others.

A result's text names each of its files by number. A file that the epoch's model does not take, or
that is one too many for a request, is told of in a line behind that text, and never sent. What was
shown once is shown for ever: the count runs from the front of the history.
"""

from __future__ import annotations

from collections.abc import Sequence

from addendum.log.values import Media

MOST_FILES = 20
"""Files in one request: Bedrock's limit for images; beyond it Claude asks for smaller images
(platform.claude.com, "Vision"; AWS, "Converse")."""

MOST_DOCUMENTS = 5
"""Documents among them: Bedrock's limit (AWS, "Converse")."""

MOST_BYTES = 14_000_000
"""Bytes of all files in one request: in base64 they stay below Gemini's 20 MB a request, the
narrowest limit (ai.google.dev, "File input methods")."""


class Shown:
    """Counts what a history has shown so far.

    Args:
        types: Media types that the route takes.
    """

    def __init__(self, types: Sequence[str]) -> None:
        self._types = types
        self._files = self._documents = self._bytes = 0

    def copy(self) -> Shown:
        """Return one that counts on from here."""
        other = Shown(self._types)
        other._files, other._documents = self._files, self._documents
        other._bytes = self._bytes
        return other

    def take(self, media: Sequence[Media]) -> tuple[tuple[Media, ...], str]:
        """Return the files of one result that are shown, and what is said of the others."""
        shown: list[Media] = []
        strange: list[int] = []
        beyond: list[int] = []
        for number, each in enumerate(media, 1):
            if each.media_type not in self._types:
                strange.append(number)
                continue
            document = not each.media_type.startswith("image/")
            if (
                self._files == MOST_FILES
                or (document and self._documents == MOST_DOCUMENTS)
                or self._bytes + each.size > MOST_BYTES
            ):
                beyond.append(number)
            else:
                self._files += 1
                self._documents += document
                self._bytes += each.size
                shown.append(each)
        note = _line(strange, "this model is shown no such files here")
        note += _line(beyond, "the conversation holds as many files as a request may carry")
        return tuple(shown), note


def _line(numbers: Sequence[int], why: str) -> str:
    if not numbers:
        return ""
    listed = ", ".join(str(number) for number in numbers)
    return f"\n[not shown: {listed}; {why}]"
