from __future__ import annotations

from tests.cli.commands import call, complaint, told


def test_all_routes_are_listed_with_their_certainty() -> None:
    lines = call("routes").stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].split() == ["route", "tool", "changes", "cache", "certainty"]
    opus = next(line for line in lines if line.startswith("anthropic:claude-opus-5-5 "))
    assert opus.split() == [*("anthropic:claude-opus-5-5", "in-history", "marks", "documented")]
    # Names are whole: what is shown can be given back.
    shown = [line.split()[0] for line in lines[1 : lines.index("")]]
    assert shown == [route["route"] for route in told("routes")["routes"]]


def test_a_route_is_told_with_its_source() -> None:
    shown = call("routes", "deepseek:deepseek-flash").stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    for said in ("addition-only", "omit", "breaks the prefix", "api-docs.deepseek.com", "reported"):
        assert said in shown


def test_routes_as_json_have_the_fields_that_were_promised() -> None:
    fields = {
        *("route", "wire", "models", "tool_update", "definitions", "removals", "readd"),
        *("redefine", "cache", "source", "checked", "certainty"),
    }
    everything = told("routes")["routes"]
    assert len(everything) > 10
    assert all(fields <= route.keys() for route in everything)
    (one,) = told("routes", "anthropic:claude-opus-5-5+by-reference")["routes"]
    assert (one["definitions"], one["redefine"]) == ("by-reference", False)
    provider = told("routes", "openai-chat")["routes"]
    assert {route["wire"] for route in provider} == {"openai_chat"}


def test_a_route_that_is_not_there_is_one_line() -> None:
    assert "no provider 'nope'" in complaint("routes", "nope")
    assert "does not take +x" in complaint("routes", "anthropic:claude-opus-5-5+x")
