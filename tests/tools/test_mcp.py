from __future__ import annotations

from typing import Any

import msgspec
import pytest

from addendum.errors import ContentError
from addendum.tools.mcp.values import (
    Listing,
    RemoteTool,
    ServerSpec,
    cut,
    limited_instructions,
    limited_notes,
    merge,
    one_line,
    remote_tool,
    screen_tool,
)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_a_good_tool_is_reduced_to_what_is_needed() -> None:
    raw = {
        "title": "Search!",
        "name": "search",
        "description": "Find \ud83d things.",
        "inputSchema": {"type": "object", "z": 1, "a": "\udc00"},
        "outputSchema": {"type": "no schema at all"},
        "annotations": {"readOnlyHint": True, "destructiveHint": "no", "title": "S", "x": 1},
        "_meta": {"huge": "x"},
    }
    good = screen_tool(raw)
    assert good == {
        "name": "search",
        "description": "Find \ufffd things.",
        "inputSchema": {"type": "object", "z": 1, "a": "\ufffd"},
        "annotations": {"title": "S", "readOnlyHint": True},
    }
    assert list(good["inputSchema"]) == ["type", "z", "a"]


def test_a_schema_without_a_type_gets_one() -> None:
    assert screen_tool({"name": "a", "inputSchema": {}})["inputSchema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("tool", "no object"),
        ({"inputSchema": {}}, "without a name"),
        ({"name": 7, "inputSchema": {}}, "without a name"),
        ({"name": "x" * 129, "inputSchema": {}}, "more than 128 characters"),
        ({"name": "a\nb", "inputSchema": {}}, "cannot be shown"),
        ({"name": "a\u202eb", "inputSchema": {}}, "cannot be shown"),
        ({"name": "a\ud800", "inputSchema": {}}, "cannot be shown"),
        ({"name": "a", "description": 7, "inputSchema": {}}, "the description is no text"),
        ({"name": "a"}, "no JSON schema of an object"),
        ({"name": "a", "inputSchema": []}, "no JSON schema of an object"),
        ({"name": "a", "inputSchema": {"type": "string"}}, "no JSON schema of an object"),
        ({"name": "a", "inputSchema": {"type": ["string"]}}, "no JSON schema of an object"),
        ({"name": "a", "inputSchema": {"max": float("nan")}}, "not finite"),
        ({"name": "a", "inputSchema": {"max": float("inf")}}, "not finite"),
        ({"name": "a", "inputSchema": nested(201)}, "deeper than 200"),
        ({"name": "a", "description": "x" * 300_000, "inputSchema": {}}, "more than 262,144"),
    ],
)
def test_a_bad_tool_is_refused_with_a_reason(raw: Any, reason: str) -> None:
    with pytest.raises(ContentError, match=reason) as caught:
        screen_tool(raw)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_limits_themselves_are_good() -> None:
    assert screen_tool({"name": "x" * 128, "inputSchema": nested(200)})["name"] == "x" * 128


def tool(name: str, **schema: Any) -> RemoteTool:
    return remote_tool(name, "d", {"type": "object", **schema}, None)


def test_the_order_of_keys_is_no_difference_and_the_first_spelling_stays() -> None:
    first, second = tool("a", p=1, q=2), tool("a", q=2, p=1)
    assert first.digest == second.digest
    assert first.parameters != second.parameters
    assert merge([first], [tool("b"), second]) == (first, tool("b"))
    assert Listing((second,)).same_as([first], None)
    assert not Listing((second,)).same_as([first], "new instructions")


@pytest.mark.parametrize(
    "other",
    [
        remote_tool("b", "d", {"type": "object"}, None),
        remote_tool("a", "e", {"type": "object"}, None),
        remote_tool("a", "d", {"type": "object", "x": 1}, None),
        remote_tool("a", "d", {"type": "object"}, {"readOnlyHint": True}),
    ],
)
def test_every_part_of_a_definition_counts(other: RemoteTool) -> None:
    assert other.digest != tool("a").digest


def test_a_tool_is_compact_json() -> None:
    made = remote_tool("a", "d", {"type": "object", "x": [1, 2]}, {"readOnlyHint": True})
    assert bytes(made.parameters) == b'{"type":"object","x":[1,2]}'
    assert made.annotations == msgspec.Raw(b'{"readOnlyHint":true}')


def test_a_long_result_is_cut_between_characters_with_a_note() -> None:
    assert cut("ä" * 10, 20) == "ä" * 10
    assert cut("ä" * 10, 5) == "ää\n[cut: the result had 20 bytes, these are the first 5]"


def test_notes_and_instructions_are_bounded() -> None:
    assert limited_notes(["a"] * 20) == ("a",) * 20
    assert limited_notes(["a"] * 30)[20:] == ("and 10 more",)
    assert limited_instructions("") is None
    assert limited_instructions("a\ud800") == "a\ufffd"
    assert (limited_instructions("x" * 70_000) or "").endswith("had 70,000 characters]")
    assert one_line("a\n\x1b[31mb\t c" + "d" * 500, 20) == "a \ufffd[31mb cddddddddd…"


class Server:
    pass


def test_a_key_is_what_the_connection_is() -> None:
    spec = ServerSpec(name="a", command=("x",), env=(("A", "1"), ("B", "2")))
    assert spec.key() == msgspec.structs.replace(spec, on=True, defer=True).key()
    assert spec.key() == msgspec.structs.replace(spec, env=spec.env[::-1]).key()
    server = Server()
    others = [
        ServerSpec(name="b", command=("x",), env=spec.env),
        ServerSpec(name="a", command=("x", "y"), env=spec.env),
        ServerSpec(name="a", command=("x",), env=(("A", "1"), ("B", "3"))),
        ServerSpec(name="a", command=("x",), env=spec.env, cwd="/"),
        ServerSpec(name="a", url="http://x"),
        ServerSpec(name="a", url="http://x", headers=(("A", "1"),)),
        ServerSpec(name="a", server=server),
        ServerSpec(name="a", server=Server()),
    ]
    assert len({spec.key(), *(other.key() for other in others)}) == len(others) + 1
    assert ServerSpec(name="a", server=server).key() == others[6].key()


def test_secrets_are_not_shown() -> None:
    spec = ServerSpec(
        name="a",
        url="https://user:pass-word@host/mcp?token=t0ken-value",
        env=(("T", "s3cret-value"), ("DEBUG", "1")),
        headers=(("Authorization", "Bearer s3cret-value"),),
    )
    shown = repr(spec) + repr([spec]) + str({"spec": spec})
    for secret in ("s3cret", "pass-word", "t0ken"):
        assert secret not in shown
    assert "https://host/mcp" in shown
    assert spec.redact("1: Bearer s3cret-value, s3cret-value") == "1: ***, ***"
