from __future__ import annotations

from tests.cli.commands import call, complaint, told


def test_all_routes_are_listed_with_their_certainty() -> None:
    lines = call("routes").stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].split() == ["route", "tool", "changes", "cache", "certainty"]
    opus = next(line for line in lines if line.startswith("anthropic:claude-opus-5-5 "))
    assert opus.split() == [*("anthropic:claude-opus-5-5", "in-history", "marks", "documented")]
    # Names are whole: what is shown can be given back. No row is there twice.
    rows = lines[1 : lines.index("")]
    assert len(set(rows)) == len(rows)
    assert {row.split()[0] for row in rows} == {each["route"] for each in told("routes")["routes"]}


def test_a_provider_is_listed_with_all_models_and_forms() -> None:
    shown = call("routes", "anthropic").stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "\n  claude-fable-5-1, claude-mythos-5-1, as +by-reference " in shown
    assert "+dispatch too\nanthropic:claude-opus-5 " in shown
    assert "\n  names like claude-.+\n" in shown
    assert "\n  any other name\n" in call("routes", "bedrock").stdout


def test_a_route_is_told_with_its_source() -> None:
    shown = call("routes", "deepseek:deepseek-flash").stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    for said in ("addition-only", "omit", "breaks the prefix", "api-docs.deepseek.com", "reported"):
        assert said in shown
    assert "+addition-only" not in shown and "+dispatch" in shown
    opus = call("routes", "anthropic:claude-opus-5-5").stdout
    assert "cache mark_roles" in opus and "('" not in opus and "5m, 1h" in opus


def test_routes_as_json_have_the_fields_that_were_promised() -> None:
    fields = {
        *("route", "wire", "models", "tool_update", "definitions", "removals", "readd"),
        *("redefine", "cache", "source", "checked", "certainty"),
    }
    everything = told("routes")["routes"]
    assert everything and all(fields <= route.keys() for route in everything)
    (one,) = told("routes", "anthropic:claude-opus-5-5+by-reference")["routes"]
    assert (one["definitions"], one["redefine"]) == ("by-reference", False)
    provider = told("routes", "openai-chat")["routes"]
    assert {route["wire"] for route in provider} == {"openai_chat"}


def test_a_route_that_is_not_there_is_one_line() -> None:
    assert "no provider 'nope'" in complaint("routes", "nope")
    assert "does not take +x" in complaint("routes", "anthropic:claude-opus-5-5+x")
