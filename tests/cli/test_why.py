from __future__ import annotations

from pathlib import Path
from typing import get_args

import anyio
import pytest
from tests.cli.commands import call, complaint, told
from tests.cli.histories import CHAT, CLAUDE, play, rewritten, silent, unread, unreported, url

from addendum.cache.causes import AREAS, CAUSES, REASONS, SETTINGS, words
from addendum.log.session_log import SessionLog
from addendum.log.values import BreakReason
from addendum.stores import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why")
    play(folder, "told", CLAUDE)
    play(folder, "rebound", CHAT, "--tool-changes", "rebind")
    play(folder, "blind", "compatible:some-model")
    rewritten(folder, "rebound-", "silent", silent)
    rewritten(folder, "told-", "lost", unread(3))
    rewritten(folder, "told-", "mute", unreported)
    return folder


def test_d5_a_declared_break_is_told_with_its_reason_and_its_place(folder: Path) -> None:
    found = told("why", "told-", "--store", url(folder))
    assert found["holds"]
    assert [each["n"] for each in found["requests"]] == [1, 2, 3, 4, 5, 6, 7]
    (miss,) = found["misses"]
    assert (miss["n"], miss["verdict"], miss["reason"]) == (7, "declared", "compaction")
    assert miss["first"]["path"] == "messages[0].content[0].text"
    assert miss["first"]["before"] == "One."
    assert "They counted." in miss["first"]["after"]
    assert (miss["anthropic"], miss["openai"]) == ("messages_changed", "context_compacted")
    row = found["requests"][6]
    assert miss["lost"] == row["expected"] - row["cache_read"] > 0
    assert 0 < miss["cost"] < 0.01


def test_d5_a_rebound_tool_list_is_declared_and_says_what_it_cost(folder: Path) -> None:
    found = told("why", "rebound-", "--store", url(folder))
    by_number = {each["n"]: each for each in found["misses"]}
    assert by_number[3]["reason"] == "rebinding"
    assert by_number[3]["first"]["path"] == "tools[1]"
    assert by_number[3]["first"]["before"] is None
    assert "files__read" in by_number[3]["first"]["after"]
    assert by_number[3]["openai"] == by_number[3]["anthropic"] == "tools_changed"
    # All that was expected is lost; gpt-4.1 costs 2 dollars a million, 0.50 read.
    assert by_number[3]["cost"] == pytest.approx(by_number[3]["lost"] * 1.5 / 1_000_000)


def test_an_undeclared_miss_is_named_and_fails(folder: Path) -> None:
    found = told("why", "silent", "--store", url(folder), code=1)
    assert not found["holds"]
    miss = next(each for each in found["misses"] if each["n"] == 3)
    assert miss["verdict"] == "undeclared"
    assert miss["text"] == CAUSES["tools"].text
    assert miss["at"] == "tools[1]"
    shown = call("why", "silent", "--store", url(folder), code=1).stdout
    assert "UNDECLARED: the tool list differs and no reason was declared" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    # One request alone decides by itself.
    alone = told("why", "silent", "--request", "2", "--store", url(folder))
    assert alone["holds"] and alone["misses"] == []
    call("why", "silent", "--request", "3", "--store", url(folder), code=1)


def test_what_the_provider_lost_is_told_and_is_no_fault(folder: Path) -> None:
    found = told("why", "lost", "--store", url(folder))
    miss = next(each for each in found["misses"] if each["n"] == 3)
    assert (miss["verdict"], miss["reason"]) == ("provider", "provider")
    assert miss["first"] is None and miss["settings"] == []
    assert (miss["anthropic"], miss["openai"]) == ("unavailable", "unavailable")
    assert miss["lost"] == found["requests"][2]["expected"]


def test_the_text_fits_a_terminal_and_keeps_foreign_text_apart(folder: Path) -> None:
    for session in ("told-", "rebound-", "lost"):
        shown = call("why", session, "--store", url(folder)).stdout
        assert max(len(line) for line in shown.splitlines()) <= 80, shown
        assert "\x1b" not in shown
    lines = call("why", "rebound-", "--store", url(folder)).stdout.splitlines()
    assert lines[0].endswith("7 requests, 3 read less than expected, 0 undeclared")
    assert "    first change: tools[1]" in lines
    assert "    providers call it tools_changed (Anthropic), tools_changed (OpenAI)" in lines
    alone = call("why", "told-", "--request", "2", "--store", url(folder)).stdout
    assert alone.startswith("request 2 read ") and alone.endswith(" were expected\n")


def test_what_cannot_be_judged_is_one_line(folder: Path) -> None:
    store = url(folder)
    assert "reports no cached tokens" in complaint("why", "mute", "--store", store)
    assert "compatible:some-model" in complaint("why", "blind-", "--store", store)
    assert "has requests 1 to 7, not 9" in complaint(
        "why", "told-", "--request", "9", "--store", store
    )
    assert "no session begins with" in complaint("why", "none", "--store", store)


def test_a_session_without_requests_has_nothing_to_tell(tmp_path: Path) -> None:
    async def make() -> None:
        store = await open_store(url(tmp_path))
        try:
            log = SessionLog("empty")
            lease = await store.acquire("empty")
            await log.flush(store, lease)
            await store.release(lease)
        finally:
            await store.aclose()

    anyio.run(make)
    for command in (("why", "empty"), ("export", "empty")):
        assert "has sent no request yet" in complaint(*command, "--store", url(tmp_path))
    assert "no requests yet" in complaint("diff", "empty", "1", "2", "--store", url(tmp_path))


# -- the table ----------------------------------------------------------------------------------

ANTHROPIC = set(
    "model_changed system_changed tools_changed messages_changed previous_message_not_found "
    "unavailable".split()
)
OPENAI = set(
    "model_changed prompt_cache_key_changed tools_changed text_format_changed "
    "reasoning_effort_changed verbosity_changed context_compacted input_changed "
    "service_tier_changed unavailable".split()
)


def test_every_reason_has_words_and_advice() -> None:
    assert set(get_args(BreakReason)) <= set(CAUSES)
    assert set(REASONS) <= set(CAUSES)
    for cause in CAUSES.values():
        assert cause.text and cause.advice
        assert not cause.text.endswith(".") and not cause.advice.endswith(".")


def test_the_providers_words_are_theirs() -> None:
    for each in (*AREAS.values(), *SETTINGS.values(), *REASONS.values()):
        assert each.anthropic is None or each.anthropic in ANTHROPIC
        assert each.openai is None or each.openai in OPENAI


@pytest.mark.parametrize(
    ("reason", "at", "settings", "said"),
    [
        ("redefinition", "tools", [], ("tools_changed", "tools_changed")),
        ("prompt rewritten", "system", [], ("system_changed", "input_changed")),
        ("rewind", "messages", [], ("messages_changed", "input_changed")),
        ("messages", "messages[3].content[0]", [], ("messages_changed", "input_changed")),
        ("settings", "settings", ["tool_choice", "speed"], ("unavailable", None)),
        ("settings", "settings", ["x", "effort"], ("unavailable", "reasoning_effort_changed")),
        ("settings", "settings", ["model"], ("model_changed", "model_changed")),
        ("settings", "settings", ["tool_choice"], ("unavailable", None)),
        ("answer", "end", [], (None, None)),
    ],
)
def test_words_come_from_reason_place_and_setting(
    reason: str, at: str, settings: list[str], said: tuple[str | None, str | None]
) -> None:
    found = words(reason, at, settings)
    assert (found.anthropic, found.openai) == said
