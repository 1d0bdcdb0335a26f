from __future__ import annotations

from typing import Any

import pytest
from tests.tools.pictures import PDF, b64, gif, png

from addendum.tools.mcp.results import MAX_FILES, read_content

PICTURE = {"type": "image", "data": b64(png()), "mimeType": "image/png"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_text_parts_are_joined_and_others_told_in_a_line() -> None:
    said, media = read_content(
        [
            text("one"),
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAA=", "mimeType": "audio/wav"},
            text("two"),
            {
                "type": "resource",
                "resource": {"uri": "file:///a\nb", "mimeType": "text/x", "text": "in it"},
            },
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}},
            {"type": "resource_link", "name": "doc", "uri": "http://d", "size": 1234},
            {"type": "hologram"},
        ]
    )
    assert said.split("\n") == [
        "one",
        "[image image/png, 3 bytes: not shown: only PNG, JPEG, GIF, WebP and PDF can be shown]",
        "[audio audio/wav, 2 bytes: not shown: audio cannot be given to a model here]",
        "two",
        "[resource file:///a b, text/x]",
        "in it",
        "[resource file:///c, 3 bytes: not shown: only PNG, JPEG, GIF, WebP and PDF can be shown]",
        "[resource link doc, http://d, 1,234 bytes]",
        "[hologram: not shown: unknown content]",
    ]
    assert media == ()


def test_files_stand_beside_the_text_that_numbers_them() -> None:
    said, media = read_content(
        [
            text("before"),
            PICTURE,
            text("after"),
            # The type that a server names is no proof.
            {"type": "image", "data": b64(gif()), "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a.pdf", "blob": b64(PDF)}},
        ]
    )
    assert said.split("\n") == [
        "before",
        f"[image 1: image/png, {len(png())} bytes]",
        "after",
        "[image 2: image/gif, 29 bytes]",
        f"[document 3: application/pdf, {len(PDF)} bytes, file:///a.pdf]",
    ]
    assert [each.media_type for each in media] == ["image/png", "image/gif", "application/pdf"]
    assert [each.data for each in media] == [b64(png()), b64(gif()), b64(PDF)]


def test_a_failed_call_shows_no_files() -> None:
    said, media = read_content([PICTURE], failed=True)
    assert said.endswith("not shown: the call failed]")
    assert not media


def test_a_result_has_so_many_files() -> None:
    said, media = read_content([PICTURE] * (MAX_FILES + 2))
    assert len(media) == MAX_FILES
    assert said.count("not shown: a result may have 10 files") == 2
    large = {"type": "image", "data": b64(png(noise=3_700_000)), "mimeType": "image/png"}
    said, media = read_content([large] * 4 + [PICTURE])
    assert len(media) == 4
    assert said.count("not shown: a result may have 14,000,000 bytes of files") == 1


@pytest.mark.parametrize(
    ("content", "structured", "wanted"),
    [
        ([], {"b": 1, "a": [True, None]}, '{"b":1,"a":[true,null]}'),
        ([text("")], [1], "\n[1]"),
        ([], {"a": float("nan")}, '{"error":"structured content left out: the parameters'),
        ([], None, ""),
        ([text("half \ud83d")], None, "half \ufffd"),
        # As the protocol asks of servers: the text is the same JSON.
        ([text('{"a": 1}')], {"a": 1}, '{"a": 1}'),
        ([text("7")], {"result": 7}, "7"),
        ([text("seven")], {"result": "seven"}, "seven"),
        ([text("1"), text("b")], {"result": [1, "b"]}, "1\nb"),
        # And where it is not, nothing is lost.
        ([text("2 rows")], {"rows": [1, 2]}, '2 rows\n[structured content]\n{"rows":[1,2]}'),
    ],
)
def test_structured_content_is_told_once(content: Any, structured: Any, wanted: str) -> None:
    said, _ = read_content(content, structured)
    assert said == wanted or (wanted.startswith('{"error"') and said.startswith(wanted))
