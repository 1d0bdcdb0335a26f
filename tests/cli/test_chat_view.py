"""How a chat looks: lines that fit, text that is safe, figures that never pretend."""

from __future__ import annotations

import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.agent.results import Notice, ReasoningPiece, TextPiece, ToolFinished, ToolStarted
from addendum.cache.cost import Cost
from addendum.cli import chat_view
from addendum.cli.chat_view import Flow, TurnView, figures, fitted, say, say_figures
from addendum.log.values import Usage

WORDS = "The quick brown fox jumps over the lazy dog. "


def cells(text: str) -> int:
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf")
        else 2 if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )  # fmt: skip


def flowed(text: str, wide: int | None, sizes: tuple[int, ...] = ()) -> str:
    flow, shown, at = Flow(wide), "", 0
    for size in sizes:
        shown += flow.feed(text[at : at + size])
        at += size
    return shown + flow.feed(text[at:]) + flow.end()


@pytest.fixture
def forty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_view, "columns", lambda: 40)


# -- text that flows ------------------------------------------------------------------------


def test_text_breaks_between_words() -> None:
    shown = flowed(WORDS * 3, 40)
    rows = shown.splitlines()
    assert rows[0] == "The quick brown fox jumps over the lazy"
    assert " ".join(rows).split() == (WORDS * 3).split()
    assert all(len(row) <= 40 for row in rows)
    assert shown.endswith("\n")


def test_lines_and_indents_of_the_model_stay() -> None:
    text = "def f():\n    return 1\n\nDone.\n"
    assert flowed(text, 40) == text
    assert flowed(text, None) == text


def test_a_word_longer_than_a_line_is_cut() -> None:
    assert flowed("x" * 95, 40) == f"{'x' * 40}\n{'x' * 40}\n{'x' * 15}\n"
    assert flowed("see " + "x" * 45, 40) == f"see\n{'x' * 40}\n{'x' * 5}\n"


def test_text_without_spaces_breaks_between_its_signs() -> None:
    rows = flowed("工具列表变了" * 10, 41).splitlines()
    assert [cells(row) for row in rows] == [40, 40, 40]


def test_without_a_terminal_no_line_is_broken_and_nothing_is_held_back() -> None:
    flow = Flow(None)
    assert flow.feed(WORDS * 5 + "end") == WORDS * 5 + "end"
    assert flow.end() == "\n"
    assert flow.end() == ""


@pytest.mark.parametrize("bad", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\x00"])
def test_codes_of_a_model_never_reach_the_terminal(bad: str) -> None:
    for wide in (None, 40):
        shown = flowed(f"before{bad}after", wide)
        assert bad[0] not in shown
        assert "before" in shown and "after" in shown
    assert bad[0] not in fitted(f"before{bad}after")


def test_an_emoji_made_of_several_stays_one() -> None:
    assert flowed("\U0001f469\u200d\U0001f4bb ok", 40) == "\U0001f469\u200d\U0001f4bb ok\n"


@given(st.text(), st.integers(2, 60), st.lists(st.integers(0, 20), max_size=8))
def test_however_text_comes_it_looks_the_same_and_fits(
    text: str, wide: int, sizes: list[int]
) -> None:
    whole = flowed(text, wide)
    assert flowed(text, wide, tuple(sizes)) == whole
    rows = whole.split("\n")
    assert all(cells(row) <= wide for row in rows)
    assert all(c.isprintable() or c in "\u200c\u200d" for row in rows for c in row)


# -- a turn ---------------------------------------------------------------------------------


def test_a_turn_is_text_with_one_line_for_everything_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = TurnView()
    for event in (
        ReasoningPiece("let me "),
        ReasoningPiece("see"),
        TextPiece("I look"),
        ToolStarted("c1", "time__now", '{"zone":\n"UTC"}'),
        ToolFinished("c1", "time__now", "12:00\n\x1b[31mUTC", False),
        ToolFinished("c2", "time__now", "no", True),
        Notice("trying again in 1.0 s: busy"),
        TextPiece("It is "),
        TextPiece("noon."),
    ):
        view.show(event)
    view.close()
    assert capsys.readouterr().out.splitlines() == [
        "thinking: let me see",
        "I look",
        '→ time__now {"zone": "UTC"}',
        "← time__now: 12:00 \ufffd[31mUTC",
        "← time__now failed: no",
        "! trying again in 1.0 s: busy",
        "It is noon.",
    ]


def test_a_long_result_is_one_line_of_the_terminal(
    forty: None, capsys: pytest.CaptureFixture[str]
) -> None:
    view = TurnView()
    view.show(ToolFinished("c1", "time__now", "工具 " * 1000, False))
    (row,) = capsys.readouterr().out.splitlines()
    assert cells(row) <= 40 and row.endswith("…")


def test_everything_that_is_said_fits_forty_columns(
    forty: None, capsys: pytest.CaptureFixture[str]
) -> None:
    say(WORDS * 4)
    say("  indented and " + "x" * 60)
    say_figures(figures(Usage(12_345, 12_000, 300, 120), Cost(Decimal("0.0021"), Decimal("0.031"))))
    rows = capsys.readouterr().out.splitlines()
    assert max(map(cells, rows)) <= 40
    assert rows[-2:] == [
        "in 12,345 · read 12,000 (97 %) · new 345",
        "out 120 · $0.0021 · saved $0.031",
    ]


# -- figures --------------------------------------------------------------------------------


def test_figures_are_one_line() -> None:
    known = figures(Usage(12_345, 12_000, 300, 120), Cost(Decimal("0.0021"), Decimal("0.031")))
    assert known == "in 12,345 · read 12,000 (97 %) · new 345 · out 120 · $0.0021 · saved $0.031"


def test_what_nobody_reported_is_unknown_and_never_0() -> None:
    assert figures(Usage(), None) == (
        "in unknown · read unknown · new unknown · out unknown · cost unknown · saved unknown"
    )
    assert "read unknown · new unknown" in figures(Usage(100, None, None, 5), None)
    assert "in 0 · read 0 · new 0" in figures(Usage(0, 0, 0, 0), None)


def test_a_hundred_percent_is_all_of_it() -> None:
    assert "(99 %)" in figures(Usage(10_000, 9999, 0, 1), None)
    assert "(100 %)" in figures(Usage(10_000, 10_000, 0, 1), None)
