"""Foreign text on a page: nothing in it acts, whatever it says."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.viewer.text import (
    LONG,
    MAX_MARKDOWN,
    discreet,
    discreet_json,
    line,
    markdown,
    visible,
    whole,
)

TAGS = set(
    "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td"
    " a img".split()
)
ATTRIBUTES = {"href", "title", "rel", "target", "src", "alt", "loading", "start", "class"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Reader(HTMLParser):
    """Collects what a browser would make of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def harmless(html: str) -> list[tuple[str, dict[str, str | None]]]:
    found = Reader(html).found
    for tag, attributes in found:
        assert tag in TAGS, html
        assert attributes.keys() <= ATTRIBUTES, html
        link = attributes.get("href")
        assert link is None or link.lower().startswith(("http://", "https://", "mailto:")), html
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/"), html
    return found


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><animate onbegin=alert(1)></svg>",
    "<style>*{background:url(https://evil.example/x)}</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example/><button>go</button></form>",
    "![x](https://evil.example/track.png)",
    "![x](javascript:alert(1))",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox)",
    "[x](//evil.example/)",
    "<https://evil.example/onerror=alert(1)>",
    '[x](https://a.example/ "onclick=alert(1)")',
    '```"><script>alert(1)</script>\nx\n```',
    "```x onmouseover=alert(1)\ncode\n```",
    "| a |\n|--|\n| <script>alert(1)</script> |",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "\x1b[31mred\x1b]8;;https://evil.example\x07link",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[f"hostile_{at}" for at in range(len(HOSTILE))])
def test_hostile_markdown_is_text(text: str) -> None:
    harmless(markdown(text))


@given(st.text(max_size=300))
def test_any_text_is_harmless(text: str) -> None:
    harmless(markdown(text))


@given(
    st.lists(
        st.sampled_from([*HOSTILE, "**", "`", "\n\n", "[", "](", ">", "- ", "|", '"']), max_size=8
    )
)
def test_any_mixture_is_harmless(parts: list[str]) -> None:
    harmless(markdown("".join(parts)))


def test_markdown_that_is_meant_well_is_shown() -> None:
    html = markdown(
        "# Head\n\n**b** `c` [l](https://a.example)\n\n```python\nx = 1\n```\n\n1. one\n"
    )
    for part in ("<h1>Head</h1>", "<strong>b</strong>", 'class="language-python"', "<ol>"):
        assert part in html
    assert 'rel="noopener noreferrer nofollow"' in html and 'target="_blank"' in html


def test_an_image_in_the_text_is_shown_and_one_elsewhere_is_a_link() -> None:
    assert f'<img src="{PIXEL}" alt="dot"' in markdown(f"![dot]({PIXEL})")
    html = markdown("![dot](https://a.example/x.png)")
    assert "<img" not in html and 'href="https://a.example/x.png"' in html


def test_a_text_that_is_too_long_is_shown_as_it_is() -> None:
    html = markdown("**x**" * MAX_MARKDOWN)
    assert html.startswith("<pre>**x**")


def test_controls_and_turned_writing_are_seen() -> None:
    assert visible("a\x1b[31m\x00b\tc\n") == "a␛[31m␀b\tc\n"
    assert visible("safe\u202egnp.exe\u2066") == "safe\ufffdgnp.exe\ufffd"
    assert line("  a \n\n b\u202e  ", 10) == "a b\ufffd"
    assert line("x" * 50, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize("part", ["[", "![", "**a", "*a_ ", "`a", "|a", "> ", "- ", "<"])
def test_text_that_is_made_to_be_slow_is_not(part: str) -> None:
    text = (part * MAX_MARKDOWN)[:MAX_MARKDOWN]
    began = time.process_time()
    harmless(markdown(text))
    assert time.process_time() - began < 10


KEY = "sk-ant-api03-" + "Q9" * 20
WRITERS = {
    "discreet": discreet,
    "discreet_json": lambda text: discreet_json(f'"{text}"'.encode()).decode(),
    "line": lambda text: line(text, 10 * LONG),
    "markdown": markdown,
    "visible": visible,
}


@pytest.mark.parametrize(
    "pad", ["", "a " * LONG, "a " * MAX_MARKDOWN], ids=["short", "long", "raw"]
)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_once_shown_whole_is_masked_the_next_time(writer: str, pad: str) -> None:
    """What is remembered of an export with its keys is not handed out to a page."""
    text = f"{writer} {pad} {KEY}"
    for _ in range(2):
        with whole():
            assert KEY in WRITERS[writer](text) or (pad and writer == "line")
        assert KEY not in WRITERS[writer](text)
