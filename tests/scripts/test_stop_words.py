"""`scripts/stop_words.py`: a stop word that a vendor's types hold and our table does not."""

from __future__ import annotations

from typing import Literal

import pytest

from scripts import stop_words


@pytest.mark.parametrize("vendor", stop_words.VENDORS)
def test_no_word_of_a_vendor_is_missing(vendor: str) -> None:
    words = list(stop_words.VENDORS[vendor]())
    assert len(words) >= 7
    assert [word for name, word in stop_words.missing() if name == vendor] == []


def test_a_word_that_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = {"acme": lambda: iter(("stop", "Ran_Out_Of_Ink"))}
    monkeypatch.setattr(stop_words, "VENDORS", new)
    assert stop_words.main() == 1
    assert "src/addendum/wire/endings.py: ran_out_of_ink" in capsys.readouterr().out


def test_literals_are_found_however_deep_they_stand() -> None:
    kind = Literal["a", "b"] | None
    assert list(stop_words.literals(list[kind])) == ["a", "b"]  # type: ignore[valid-type]
