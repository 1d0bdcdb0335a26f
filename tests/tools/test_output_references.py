"""References in arguments: what is put in, and what stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from addendum.errors import ContentError
from addendum.tools.output_references import fill, label, references

TEXTS = {"tool0turn0": "zero", "tool1turn0": "{{tool0turn0}}"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"a": "{{tool0turn0}}"}, {"a": "zero"}, id="whole"),
        pytest.param({"a": ["x {{tool0turn0}}!", 1]}, {"a": ["x zero!", 1]}, id="inside"),
        pytest.param({"a": "{{tool1turn0}}"}, {"a": "{{tool0turn0}}"}, id="not_looked_through"),
    ],
)
def test_references_are_put_in(given: Any, wanted: Any) -> None:
    assert fill(given, TEXTS, limit=100) == wanted


@pytest.mark.parametrize(
    "text", ["{{tool9turn9}}", "{tool0turn0}", "{{ tool0turn0 }}", "{{toolxturn0}}", ""]
)
def test_what_is_no_reference_stays_the_same_object(text: str) -> None:
    given = {"a": text, "{{tool0turn0}}": [text, None]}
    assert fill(given, TEXTS, limit=100) is given


def test_what_is_put_in_has_a_limit() -> None:
    assert fill(["{{tool0turn0}}"] * 2, TEXTS, limit=8) == ["zero", "zero"]
    with pytest.raises(ContentError, match="too long"):
        fill(["{{tool0turn0}}"] * 3, TEXTS, limit=8)


def test_labels_are_references() -> None:
    text = f"{{{{{label(2, 13)}}}}} {{{{tool0turn0}}}} {{{{tool0turn0}}}}"
    assert references(text) == ("tool2turn13", "tool0turn0")
