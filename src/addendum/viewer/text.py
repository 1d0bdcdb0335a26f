"""Foreign text made fit for a page: nothing in it acts, controls show, credentials do not.

What a model, a tool or a server says is data. Markdown becomes a closed list of tags and
attributes; raw HTML in it is text; nothing is ever loaded from elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from addendum.lines import shortened
from addendum.masking import masked, masked_json

MAX_MARKDOWN = 30_000
"""Characters that are rendered as markdown; a longer text is shown as it is. Text that is made to
be slow takes about a second at this length."""

MAX_IMAGE = 500_000
"""Characters of an image that stands in the text itself."""

LONG = 2_000
"""Characters from which on a masked text is remembered."""

_TAGS = frozenset(
    "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td"
    " a img".split()
)
_ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    "code": {"class"},
}
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_LANGUAGE = re.compile(r"language-[A-Za-z0-9_+-]{1,30}")
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
_TURNING = [0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SEEN = _CONTROLS | dict.fromkeys(_TURNING, 0xFFFD)


_WHOLE: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def whole() -> Generator[None]:
    """Have nothing masked in what is made here: it was before, or somebody wants it so."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


def discreet(text: str) -> str:
    """Return text as a page may show it, without credentials; mask first, and cut then."""
    if _WHOLE.get():
        return text
    return _masked(text) if len(text) > LONG else masked(text)


@functools.lru_cache(maxsize=256)
def _masked(text: str) -> str:
    # Pages show the same events again and again; a text without credentials is no second copy.
    return masked(text)


def discreet_json(data: bytes) -> bytes:
    """Return JSON text as a page may show it, without credentials."""
    return data if _WHOLE.get() else masked_json(data)


def visible(text: str) -> str:
    """Return text in which controls show, nothing turns the writing, and credentials are masked."""
    return discreet(text).translate(_SEEN)


def line(text: str, limit: int) -> str:
    """Return foreign text as one line of at most `limit` characters."""
    return shortened(discreet(text)[: 2 * limit + 2].translate(_SEEN), limit)


def markdown(text: str) -> Markup:
    """Return markdown as HTML that is safe to put into a page.

    Images stay only where they are part of the text (`data:`, up to `MAX_IMAGE`); any other image
    becomes a link to it. Links open elsewhere and tell nobody where they came from.
    """
    if len(text) > MAX_MARKDOWN:
        return Markup("<pre>{}</pre>").format(visible(text))
    return _markdown(discreet(text), _WHOLE.get())


@functools.lru_cache(maxsize=512)
def _markdown(text: str, whole: bool) -> Markup:
    rendered = _parser().render(text.translate(_CONTROLS))
    # Marks may have stood between the letters of a key.
    rendered = rendered if whole else masked(rendered)
    return Markup(
        nh3.clean(
            rendered,
            tags=set(_TAGS),
            attributes=_ATTRIBUTES,
            attribute_filter=_attribute,
            url_schemes={"http", "https", "mailto", "data"},
            link_rel="noopener noreferrer nofollow",
            set_tag_attribute_values={"a": {"target": "_blank"}, "img": {"loading": "lazy"}},
        )
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "href":
        return value if value.lower().startswith(("http://", "https://", "mailto:")) else None
    if name == "src":
        return value if len(value) <= MAX_IMAGE and _IMAGE.fullmatch(value) else None
    if name == "class":
        return value if _LANGUAGE.fullmatch(value) else None
    return value


@functools.cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    made.validateLink = _may_link  # type: ignore[method-assign]
    made.add_render_rule("image", _image)
    return made


def _may_link(url: str) -> bool:
    lower = url.lower()
    return lower.startswith(("http://", "https://", "mailto:")) or bool(_IMAGE.fullmatch(url))


def _image(renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    source = str(token.attrGet("src") or "")
    alt = renderer.renderInlineAsText(token.children or [], options, env)
    if len(source) <= MAX_IMAGE and _IMAGE.fullmatch(source):
        return Markup('<img src="{}" alt="{}">').format(source, alt)
    return Markup('<a href="{}">🖼 {}</a>').format(source, alt or source[:80])


def plain(text: str) -> Markup:
    """Return text as HTML that shows it as it is."""
    return escape(visible(text))


def exact(text: str) -> Markup:
    """Return text as HTML that shows all of it, credentials too: for whoever decides about it."""
    return escape(text.translate(_SEEN))
