"""What people read, in their language.

Texts are data: one file a language under `locale/`, all with the same keys. Names of tools,
servers and sessions are never translated.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources

from msgspec import Struct

LANGUAGES = {"en": "English", "zh": "中文"}
"""The languages there are, each by its own name; the first one is the default."""


class Words(Struct, frozen=True):
    """The texts of one language.

    Attributes:
        language: Its code, as in `lang` of a page.
        texts: Texts by key. One with a `|` has a form for one thing and a form for several.
    """

    language: str
    texts: Mapping[str, str]

    def __call__(self, key: str, /, **values: object) -> str:
        """Return a text with values put in; `count` also decides between its two forms.

        Raises:
            KeyError: There is no such text.
        """
        text = self.texts[key]
        if "|" in text:
            one, several = text.split("|")
            text = one if values.get("count") == 1 else several
        shown = {k: f"{v:,}" if isinstance(v, int) else v for k, v in values.items()}
        return text.format_map(shown) if shown else text


@functools.cache
def words(language: str) -> Words:
    """Return the texts of a language, English for one that there is not."""
    code = language if language in LANGUAGES else next(iter(LANGUAGES))
    place = resources.files("addendum.tell") / "locale" / f"{code}.toml"
    return Words(code, tomllib.loads(place.read_text("utf-8")))


def chosen(asked: str | None, kept: str | None, accepted: str) -> Words:
    """Return the texts that a reader wants.

    Args:
        asked: The language that the address asks for.
        kept: The language that the reader chose before.
        accepted: The browser's `Accept-Language`.
    """
    for each in (asked, kept):
        if each in LANGUAGES:
            return words(each)
    return words(_preferred(accepted[:1000]))


def _preferred(accepted: str) -> str:
    """Return the language that a browser likes best among ours."""
    found: list[tuple[float, int, str]] = []
    for place, part in enumerate(accepted.split(",")):
        tag, _, rest = part.strip().partition(";")
        quality = rest.strip().removeprefix("q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            continue
        code = tag.partition("-")[0].lower()
        if code in LANGUAGES and weight > 0:
            found.append((-weight, place, code))
    return min(found)[2] if found else next(iter(LANGUAGES))
