from __future__ import annotations

from addendum.log.values import Media
from addendum.prompt.media import MOST_BYTES, MOST_DOCUMENTS, MOST_FILES, Shown

PNG = Media("image/png", "AAAA")
GIF = Media("image/gif", "AAAA")
PDF = Media("application/pdf", "AAA=")
BIG = Media("image/png", "A" * 4_000_000)


def test_what_a_model_does_not_take_is_told_by_its_number() -> None:
    shown = Shown(("image/png",))
    assert shown.take((GIF, PNG, PDF)) == (
        (PNG,),
        "\n[not shown: 1, 3; this model is shown no such files here]",
    )
    assert Shown(()).take((PNG,))[0] == ()


def test_the_first_files_are_shown_and_those_beyond_are_not() -> None:
    shown = Shown(("image/png", "application/pdf"))
    assert shown.take((PDF,) * (MOST_DOCUMENTS + 1)) == (
        (PDF,) * MOST_DOCUMENTS,
        "\n[not shown: 6; the conversation holds as many files as a request may carry]",
    )
    ahead = shown.copy()
    rest = MOST_FILES - MOST_DOCUMENTS
    assert ahead.take((PNG,) * (rest + 1))[0] == (PNG,) * rest
    # What is said ahead leaves the settled count alone.
    assert shown.take((PNG,) * rest) == ((PNG,) * rest, "")
    assert shown.take((PNG,))[0] == ()


def test_all_files_together_have_a_limit() -> None:
    shown = Shown(("image/png",))
    media, note = shown.take((BIG,) * 6 + (PNG,))
    assert sum(each.size for each in media) <= MOST_BYTES
    assert media == (BIG,) * 4 + (PNG,)
    assert "[not shown: 5, 6; the conversation" in note


def test_a_size_is_that_of_the_bytes() -> None:
    assert [each.size for each in (PNG, PDF, Media("image/png", "AA=="))] == [3, 2, 1]
