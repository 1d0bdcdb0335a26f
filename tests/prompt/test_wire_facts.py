"""The kind of a wire's own item."""

from __future__ import annotations

import pytest
from msgspec import Raw, ValidationError

from addendum.prompt.wire_facts import item_type


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        pytest.param(b'{"type":"thinking","thinking":"so"}', "thinking", id="its_type"),
        pytest.param(b'{"item":{"type":"text"},"type":"tool_use"}', "tool_use", id="its_own_type"),
        pytest.param(b'{"toolUse":{"type":"text"}}', "", id="no_type"),
    ],
)
def test_item_type(raw: bytes, kind: str) -> None:
    assert item_type(Raw(raw)) == kind


@pytest.mark.parametrize("raw", ['"thinking"', "[]", "7", '{"type":7}', '{"type":null}'])
def test_what_is_no_item_has_no_kind(raw: str) -> None:
    with pytest.raises(ValidationError):
        item_type(Raw(raw.encode()))
