"""Rows of encoded pieces, and declarations that a process encodes once."""

from __future__ import annotations

import pytest
from msgspec import Raw

from addendum.log.values import ToolSchema
from addendum.wire import pieces
from addendum.wire.pieces import CHUNK, Declarations, Pieces


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_any_piece_can_be_edited(count: int) -> None:
    row = Pieces()
    plain = [b"<%d>" % number for number in range(count)]
    for piece in plain:
        row.append(piece)
    assert len(row) == count
    assert b"".join(row.parts({})) == b"".join(plain)
    for edited in ([0, count - 1], list(range(0, count, 50)), list(range(count))):
        edits = {index: lambda piece: b"[" + piece + b"]" for index in edited if 0 <= index < count}
        wanted = [b"[" + p + b"]" if i in edits else p for i, p in enumerate(plain)]
        assert b"".join(row.parts(edits)) == b"".join(wanted)
    assert b"".join(row.parts({})) == b"".join(plain)


def test_joined_pieces_are_few() -> None:
    row = Pieces()
    for _ in range(50 * CHUNK + 3):
        row.append(b"x")
    assert len(row.parts({7: lambda piece: piece})) == 53


def declared(name: str, description: str = "", flag: bool | None = None) -> ToolSchema:
    return ToolSchema(name, description, Raw(b"{}"), flag)


def test_a_declaration_is_encoded_once_in_a_process() -> None:
    declarations = Declarations(lambda tool: tool.name.encode())
    assert declarations([declared("a"), declared("b")]) == ([b"a", b"b"], 2)
    assert declarations([declared("b"), declared("a"), declared("c")]) == ([b"b", b"a", b"c"], 1)


def test_another_definition_is_another_declaration() -> None:
    declarations = Declarations(lambda tool: repr(tool).encode())
    tools = [declared("a"), declared("a", "does a"), declared("a", flag=True)]
    entries, fresh = declarations(tools)
    assert fresh == len(set(entries)) == 3
    assert declarations(tools) == (entries, 0)


def test_declarations_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SHARED", 25)
    declarations = Declarations(lambda tool: b"0123456789")
    assert declarations([declared("a"), declared("b")])[1] == 2
    assert declarations([declared("a"), declared("b")])[1] == 0
    assert declarations([declared("c")])[1] == 1
    assert declarations([declared("c"), declared("a")])[1] == 1
