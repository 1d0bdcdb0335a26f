from __future__ import annotations

from typing import Any

import pytest
from tests.tools.pictures import PDF, b64, gif, png

from addendum.lab.files import check_data_url, check_file
from addendum.lab.refusal import Refusal


@pytest.mark.parametrize(
    ("media_type", "data", "why"),
    [
        ("image/bmp", b64(png()), "Input should be"),
        ("image/png", b64(gif()), "does not match the media type"),
        ("image/png", "%%%", "invalid base64"),
        ("image/png", None, "invalid base64"),
        ("image/png", b64(png(noise=3_750_000)), "exceeds the maximum"),
        (None, b64(png()), "Input should be"),
    ],
    ids=["type", "other bytes", "no base64", "nothing", "large", "no type"],
)
def test_a_file_that_cannot_be_read_is_refused(media_type: Any, data: Any, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        check_file("p", media_type, data)


def test_a_good_file_is_taken_and_an_address_let_be() -> None:
    check_file("p", "application/pdf", b64(PDF))
    check_data_url("p", f"data:image/png;base64,{b64(png())}")
    check_data_url("p", "https://example.org/a.png")
    for url in ("data:image/png,abc", f"data:image/gif;base64,{b64(png())}", 7):
        with pytest.raises(Refusal):
            check_data_url("p", url)
