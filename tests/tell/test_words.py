"""The texts of the page: complete in each language, and the one that a reader wants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from addendum import tell, viewer
from addendum.cache.causes import CAUSES
from addendum.tell.words import LANGUAGES, chosen, words

SOURCES = [
    path
    for room in (tell, viewer)
    for path in Path(room.__file__).parent.rglob("*.*")
    if path.suffix in (".py", ".html")
]
PLACES = re.compile(r"{(\w+)}")
EN = words("en")


@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
def test_every_language_has_every_text_with_the_same_places(language: str) -> None:
    other = words(language).texts
    assert other.keys() == EN.texts.keys()
    for key, text in EN.texts.items():
        assert set(PLACES.findall(text)) == set(PLACES.findall(other[key])), key
        assert other[key].strip()


def test_pages_ask_for_texts_that_there_are() -> None:
    asked: set[str] = set()
    for path in SOURCES:
        asked |= set(re.findall(r"words\(\s*['\"]([\w.]+)['\"]", path.read_text("utf-8")))
    assert len(asked) > 100
    assert asked - EN.texts.keys() - {"zh", "en"} == {each for each in asked if each[-1] == "."}


def test_causes_read_as_the_command_line_tells_them() -> None:
    for key, cause in CAUSES.items():
        name = key.replace(" ", "_")
        assert EN(f"why.{name}") == cause.text
        assert EN(f"do.{name}") == cause.advice


def test_one_and_several_have_a_form_each() -> None:
    assert EN("list.events", count=1) == "1 event"
    assert EN("list.events", count=12_000) == "12,000 events"
    assert words("zh")("list.events", count=2) == "2 个事件"


@pytest.mark.parametrize(
    ("asked", "kept", "accepted", "language"),
    [
        (None, None, "", "en"),
        (None, None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, None, "fr, en;q=0.4, zh;q=0.7", "zh"),
        (None, None, "zh;q=0", "en"),
        (None, None, "zh;q=x, en", "en"),
        (None, "zh", "en", "zh"),
        ("en", "zh", "zh", "en"),
        ("xx", "<script>", "zh", "zh"),
    ],
    ids=["nothing", "browser", "weights", "refused", "nonsense", "kept", "asked", "foreign"],
)
def test_a_reader_gets_the_language_they_want(
    asked: str | None, kept: str | None, accepted: str, language: str
) -> None:
    assert chosen(asked, kept, accepted).language == language


def test_every_text_is_asked_for() -> None:
    """By its whole key, or by the beginning of one that is put together."""
    text = "".join(path.read_text("utf-8") for path in SOURCES)
    beginnings = set(re.findall(r"words\(f?['\"](\w+\.)['\"{]", text)) | {"why.", "do.", "break."}
    beginnings |= set(re.findall(r"f\"(\w+\.)\{", text))
    for key in EN.texts:
        whole = f"'{key}'" in text or f'"{key}"' in text
        assert whole or key[: key.index(".") + 1] in beginnings, key
