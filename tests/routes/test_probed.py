from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from addendum import encoding
from addendum.errors import ConfigurationError
from addendum.routes import choose_projection, context, resolve
from addendum.routes.probed import Facts, Probed, default_folder, keep, overlaid, read, results_file

CLAUDE = resolve("anthropic:claude-opus-5-5", environ={})
NONE = Probed(CLAUDE.name, CLAUDE.endpoint.base_url, "2026-11-29", "1.0", Facts(None))


def test_results_are_kept_by_route_and_address(tmp_path: Path) -> None:
    path = keep(CLAUDE, NONE, tmp_path)
    assert path == results_file(CLAUDE, tmp_path) and path.parent == tmp_path
    assert read(CLAUDE, tmp_path) == NONE
    elsewhere = resolve("anthropic:claude-opus-5-5", base_url="http://127.0.0.1:9", environ={})
    assert read(elsewhere, tmp_path) is None
    assert read(resolve("anthropic:claude-opus-5", environ={}), tmp_path) is None
    # Later results take the place of earlier ones.
    later = structs.replace(NONE, date="2026-11-30")
    keep(CLAUDE, later, tmp_path)
    assert read(CLAUDE, tmp_path) == later
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_folder_is_the_users_own_or_the_one_that_is_named() -> None:
    assert default_folder({"ADDENDUM_PROBES": "/x"}) == Path("/x")
    assert default_folder({"XDG_DATA_HOME": "/d"}) == Path("/d/addendum/probes")
    own = Path("~/.local/share/addendum/probes").expanduser()
    assert default_folder({"XDG_DATA_HOME": "relative"}) == own


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    path = results_file(CLAUDE, tmp_path)
    other = structs.replace(NONE, route="anthropic:other")
    keep(CLAUDE, other, tmp_path)
    good = encoding.encode(NONE)
    deep = good.replace(b'"forms":[]', b'"forms":[{"a":' + b"[" * 5000 + b"]" * 5000 + b"}]")
    assert deep != good
    bad = b"{", b"[]", b'{"route":1}', b"\xff", b" " * 2_000_000, deep
    for text in (path.read_bytes(), *bad):
        path.write_bytes(text)
        with pytest.raises(ConfigurationError, match="delete it"):
            read(CLAUDE, tmp_path)


def test_results_that_the_wire_cannot_tell_are_no_results(tmp_path: Path) -> None:
    chat = resolve("openai-chat:gpt-4.1", environ={})
    good = Facts("addition-only", "by-value")
    for facts in (Facts("in-history", "by-value"), Facts("addition-only"), good):
        found = structs.replace(NONE, route=chat.name, endpoint=chat.endpoint.base_url, facts=facts)
        keep(chat, found, tmp_path)
        if facts is good:
            assert read(chat, tmp_path) == found
        else:
            with pytest.raises(ConfigurationError, match="delete it"):
                read(chat, tmp_path)


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="--out"):
        keep(CLAUDE, NONE, file)


def test_what_was_probed_is_laid_over_the_route() -> None:
    route = overlaid(CLAUDE, NONE)
    assert route.capabilities.tool_update is None
    assert choose_projection(route, has_servers=True) == "dispatch"
    assert (route.certainty, route.checked) == ("probed", "2026-11-29")
    assert "probed at https://api.anthropic.com" in route.source
    # What tells of prompts and tails, and how the cache works, is as it was.
    assert (route.cache, route.capabilities.tail) == (CLAUDE.cache, CLAUDE.capabilities.tail)
    assert context(route, "dispatch").betas == context(CLAUDE, "dispatch").betas


def test_a_stronger_form_than_the_data_knows_can_be_used() -> None:
    plain = resolve("anthropic:claude-opus-5-5", base_url="https://gateway.example", environ={})
    assert plain.capabilities.tool_update is None
    has = CLAUDE.capabilities
    told = Facts(
        *(has.tool_update, has.definitions, has.removals, has.readd, has.redefine),
        has.placeholder,
        has.betas[:1],
    )
    route = overlaid(plain, structs.replace(NONE, facts=told))
    assert choose_projection(route) == "in-history"
    made = context(route, "in-history")
    assert (made.definitions, made.removals, made.betas) == (
        "by-value",
        "block",
        ("inline-tools-2026-09-15",),
    )


def test_a_weaker_form_that_was_asked_for_and_undecided_results_change_nothing() -> None:
    named = resolve("anthropic:claude-opus-5-5+by-reference", environ={})
    assert overlaid(named, NONE) is named
    assert overlaid(CLAUDE, structs.replace(NONE, facts=None)) is CLAUDE
    assert overlaid(CLAUDE, None) is CLAUDE
