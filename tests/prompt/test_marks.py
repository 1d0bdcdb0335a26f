"""Where marks stand: each rule of the plan by itself, and what the next request then reads.

A history is a word: each letter is a block, `|` ends an answered request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import stage
from tests.property.judging import count, rules

from addendum.agent.replay import replay
from addendum.agent.session import Session
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.log.session_log import SessionLog
from addendum.log.values import Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Result, Text, Use
from addendum.prompt.marks import Positions, markable, plan_marks
from addendum.prompt.wire_facts import WireFacts
from addendum.wire.anthropic_messages.build import FACTS

pytestmark = pytest.mark.anyio

NOVA = "bedrock:amazon.nova-2-lite-v1:0"

TOOL = ToolSchema("web", "Reads.", Raw(b"{}"))
DEFERRED = ToolSchema("rare", "Reads.", Raw(b"{}"), True)
STATIC = Text(-1, 0, "system", "You help.", "prompt")
CONVERSATION = Text(-1, 1, "system", "This is about ships.", "prompt")
IMAGE = Media("image/png", "AA==")

LETTERS: dict[str, Block] = {
    "h": Text(0, 0, "user", "A person.", "human"),
    "H": Text(0, 0, "user", "A person; a tail stands in front.", "human"),
    "S": Text(0, 0, "user", "What came before.", "summary"),
    "d": Text(0, 0, "system", "A developer.", "announcement"),
    "x": Text(0, 0, "system", "For one turn.", "announcement", scoped=True),
    "f": Text(0, 0, "user", "A file.", "human", media=(IMAGE,)),
    "_": Text(0, 0, "user", " \n", "human"),
    "a": Native(0, 0, Raw(b'{"type":"text","text":"Yes."}'), "text"),
    "e": Native(0, 0, Raw(b'{"type":"text","text":""}'), "text"),
    "t": Native(0, 0, Raw(b'{"type":"thinking"}'), "thinking"),
    "C": Native(0, 0, Raw(b'{"type":"tool_use"}'), "tool_use"),
    "c": Use(0, 0, "c1", "web", "{}"),
    "r": Result(0, 0, "c1", "web", "Found."),
    "R": Result(0, 0, "c1", "web", ""),
    "+": Change(0, 0, "web", True),
}


def placed(history: str, *, behind: bool = False, fleeting: bool = False) -> Positions:
    """Follow a history: `|` ends an answered request, `:` one from before the summary."""
    positions, at = Positions(first_tail_behind=behind), 0
    for letter in history:
        positions = positions.copy()
        if letter in "|:":
            positions.answered(at, at if letter == "|" else 0)
            continue
        if letter in "hH":
            positions.take_human(at, at, letter == "H", fleeting=fleeting)
        elif letter == "S":
            positions.take_summary(0)
        at += 1
    return positions


def planned(
    history: str,
    *,
    tools: Sequence[ToolSchema] = (TOOL, DEFERRED),
    system: Sequence[Text] = (STATIC, CONVERSATION),
    limit: int = 4,
    behind: bool = False,
    fleeting: bool = False,
    **facts: Any,
) -> str:
    """Return the marks of a history as words, the same wherever its settled part ends."""
    positions = placed(history, behind=behind, fleeting=fleeting)
    letters = history.replace("|", "").replace(":", "")
    blocks = [LETTERS[letter] for letter in letters]
    human = positions.human
    tail_at = None
    if human is not None and (letters[human] == "H" or fleeting):
        tail_at = positions.tail_at(human)
    plans = {
        plan_marks(
            tools,
            system,
            blocks[:cut],
            blocks[cut:],
            positions,
            WireFacts(marks=limit, **facts),
            tail_at=tail_at,
            fleeting=fleeting,
        )
        for cut in range(len(blocks) + 1)
    }
    (marks,) = plans
    texts = [("static", "conversation")[at] for at in marks.system]
    return " ".join(["tools"] * marks.tools + texts + [str(at) for at in marks.blocks])


PLANS: dict[str, tuple[str, dict[str, Any], str]] = {
    # What is marked, in order of worth.
    "the_first_request": ("h", {}, "tools static conversation 0"),
    "the_second_has_a_lagging_mark": ("h|ah", {}, "tools static 0 2"),
    "only_the_last_answer_counts": ("h|ah|ah", {}, "tools static 2 4"),
    "asked_again_it_lags_at_the_end": ("h|", {}, "tools static conversation 0"),
    "of_three_the_end_goes": ("h|ah", {"limit": 3}, "tools static 0"),
    "of_two_the_lagging_one_goes": ("h|ah", {"limit": 2}, "tools static"),
    "of_one_the_tools_stay": ("h|ah", {"limit": 1}, "tools"),
    "a_wire_without_marks": ("h|ah", {"limit": 0}, ""),
    "without_tools_there_is_room": ("h|ah", {"tools": ()}, "static conversation 0 2"),
    "deferred_tools_are_not_there": ("h|ah", {"tools": (DEFERRED,)}, "static conversation 0 2"),
    "without_a_prompt": ("h|ah", {"system": ()}, "tools 0 2"),
    "with_one_prompt_text": ("h", {"system": (STATIC,)}, "tools static 0"),
    "nothing_said_yet": ("", {}, "tools static conversation"),
    "a_wire_without_marks_and_an_implicit_one": ("h|ah", {"limit": 0, "implicit": True}, ""),
    # Blocks that take no mark.
    "no_mark_on_what_takes_none": ("hte_xf", {}, "tools static conversation 0"),
    "nothing_takes_one": ("te_xf", {}, "tools static conversation"),
    "the_lagging_mark_steps_back_too": ("hx|ah", {}, "tools static 0 3"),
    # A tail that moves.
    "the_history_in_place_of_the_conversation": ("h|aH", {}, "tools static 1 2"),
    "in_front_of_the_first_message_is_no_history": ("H", {}, "tools static conversation 0"),
    "without_tools_the_conversation_again": ("h|aH", {"tools": ()}, "static conversation 1 2"),
    "in_the_first_turn_the_end_has_to_find": (f"H|{'d' * 16}", {}, "tools static 0 16"),
    "where_history_and_lagging_mark_are_one": (f"ha|H{'d' * 15}", {"limit": 3}, "static 1 17"),
    "the_first_tail_stands_behind": ("Hd", {"behind": True}, "tools static 0 1"),
    "the_second_stands_in_front_again": ("H|aH", {"behind": True}, "tools static 1 2"),
    "of_three_the_end_goes_with_a_tail": ("h|aH", {"limit": 3}, "tools static 1"),
    "of_one_the_tools_stay_with_a_tail": ("h|aH", {"limit": 1}, "tools"),
    "in_a_turn_history_and_end": ("h|aH|cr", {}, "tools static 1 4"),
    "fifteen_behind_need_no_lagging_mark": (f"h|a{'d' * 14}H", {}, "tools static 15 16"),
    "sixteen_behind_take_the_tools_mark": (f"h|a{'d' * 15}H", {}, "static 0 16 17"),
    "wide_and_of_two_the_lagging_one_stays": (f"h|a{'d' * 15}H", {"limit": 2}, "static 0"),
    "wide_and_of_one_the_prompt_stays": (f"h|a{'d' * 15}H", {"limit": 1}, "static"),
    "wide_without_a_prompt": (f"h|a{'d' * 15}H", {"system": ()}, "tools 0 16 17"),
    "and_of_three": (f"h|a{'d' * 15}H", {"system": (), "limit": 3}, "tools 0 16"),
    "and_of_two": (f"h|a{'d' * 15}H", {"system": (), "limit": 2}, "tools 0"),
    "a_shorter_lookback": ("h|addH", {"lookback": 7}, "static 0 3 4"),
    "as_much_as_a_shorter_lookback_reaches": ("h|adH", {"lookback": 7}, "tools static 2 3"),
    "a_lookback_of_nearly_nothing": ("h|aH", {"lookback": 3}, "static 0 1 2"),
    "within_its_turn_the_end_has_to_find": (f"haH|{'d' * 16}", {}, "static 1 2 18"),
    "within_its_turn_the_end_finds": (f"haH|{'d' * 15}", {}, "tools static 1 17"),
    "a_run_of_calls_is_one_position": (f"h|{'c' * 20}{'r' * 20}H", {}, "tools static 40 41"),
    "calls_in_two_forms_are_one_run": (f"h|{'cC' * 20}H", {}, "tools static 40 41"),
    "runs_that_take_turns_do_not_join": (f"h|{'cr' * 8}H", {}, "static 0 16 17"),
    "a_run_ends_at_another_block": (f"h|{'ca' * 8}H", {}, "static 0 16 17"),
    "a_run_of_additions_is_many": (f"h|{'+' * 16}H", {}, "static 0 16 17"),
    "a_wire_that_counts_each_block": (f"h|{'c' * 16}H", {"runs": False}, "static 0 16 17"),
    "what_a_tail_stood_behind_is_lost": ("haH|dddaH", {"lookback": 6}, "static 1 6 7"),
    "the_first_tail_leaves_nothing": ("H|dddaH", {"lookback": 6}, "static conversation 4 5"),
    "and_needs_no_mark_that_is_near": ("H|daH", {}, "tools static 2 3"),
    # Wires that take marks on some blocks only.
    "texts_only_and_no_tools": ("h", {"text_marks": True}, "static conversation 0"),
    "texts_only_and_none_beside_calls": ("h|acrh", {"text_marks": True}, "static conversation 0"),
    "texts_only_and_an_answer_of_text": ("h|acra", {"text_marks": True}, "static conversation 0 4"),
    "texts_only_and_a_developer_text": ("h|acrd", {"text_marks": True}, "static conversation 0 4"),
    "texts_only_and_a_result_in_front": ("rh", {"text_marks": True}, "static conversation"),
    "texts_only_and_none_but_a_tail": ("crH", {"text_marks": True}, "static conversation"),
    "no_mark_on_results": ("h|ctrr", {"result_marks": False}, "tools static 0 1"),
    "what_goes_in_only": ("h|ard_a", {"input_marks": True}, "tools static 0 2"),
    "a_result_without_text_goes_in": ("h|acRa", {"input_marks": True}, "tools static 0 3"),
    "what_went_in_and_is_no_input": ("a|h", {"input_marks": True}, "tools static conversation 1"),
    "what_goes_in_without_results": (
        "h|arad",
        {"input_marks": True, "result_marks": False},
        "tools static conversation 0",
    ),
    "what_goes_in_and_the_lagging_mark_stays": ("h|ahaH", {"input_marks": True}, "static 0 2 4"),
    # Beside a mark that the provider makes itself.
    "it_marks_its_end_itself": ("h", {"implicit": True}, "static"),
    "the_end_of_the_request_before": ("h|ah", {"implicit": True}, "static 0"),
    "and_nothing_behind_it": ("h|h", {"implicit": True}, "static 0"),
    "none_that_could_be_marked": ("a|h", {"implicit": True}, "static"),
    "none_yet": ("", {"implicit": True}, "static"),
    "before_a_tail_as_well": ("h|ahaH", {"implicit": True}, "static 0 2"),
    "a_developer_text_at_the_end": ("h|ahd", {"implicit": True}, "static 0 3"),
    "one_that_is_not_at_the_end": ("h|adh", {"implicit": True}, "static 0"),
    "a_result_at_the_end": ("h|acr", {"implicit": True}, "static 0"),
    "in_front_of_the_tail_first": ("h|ahaHd", {"implicit": True, "limit": 2}, "static 2"),
    "no_room_beside_the_prompt": ("h|ah", {"implicit": True, "limit": 1}, "static"),
    "room_without_a_prompt": ("h|ah", {"implicit": True, "limit": 1, "system": ()}, "0"),
    "no_developer_text_where_reasoning_goes": (
        "h|adHd",
        {"implicit": True, "fleeting": True},
        "static 0",
    ),
    # What is lost with its turn, or with a summary.
    "only_the_human_message_is_read_again": (
        "h|tcr|tah",
        {"fleeting": True, "lookback": 6},
        "static 0 5 6",
    ),
    "what_stayed_was_stored_elsewhere": ("Sh:ah", {}, "tools static conversation 3"),
    "an_answer_since_the_summary": ("Sh:ah|ah", {}, "tools static 3 5"),
}

STORED: dict[str, tuple[str, dict[str, bool], int | None]] = {
    "nothing_was_answered": ("h", {}, None),
    "nobody_has_spoken": ("a|cr|h", {}, 2),
    "the_last_block_of_the_request": ("h|acr|a", {}, 3),
    "still_so_in_the_next_turn": ("h|acr|ah", {}, 3),
    "a_tail_stands_while_its_turn_lasts": ("haH|cr|", {}, 4),
    "and_takes_what_was_behind_it_along": ("haH|cr|ah", {}, 1),
    "the_first_tail_takes_all": ("H|cr|ah", {}, None),
    "the_first_tail_behind_leaves_its_message": ("H|cr|ah", {"behind": True}, 0),
    "a_later_tail_stands_in_front": ("haH|cr|ah", {"behind": True}, 1),
    "reasoning_stands_while_its_turn_lasts": ("h|tcr|t", {"fleeting": True}, 3),
    "and_takes_what_was_behind_it_too": ("h|tcr|tah", {"fleeting": True}, 0),
    "a_tail_takes_more_than_reasoning": ("haH|tcr|ah", {"fleeting": True}, 1),
    "a_turn_without_a_tail_leaves_all": ("H|ah|cr|ah", {}, 4),
    "not_in_front_of_a_summary": ("Sh:a", {}, None),
    "behind_a_summary": ("Sh:ah|a", {}, 3),
}


@pytest.mark.parametrize(
    ("history", "options", "marks"), [pytest.param(*row, id=name) for name, row in PLANS.items()]
)
def test_plan(history: str, options: dict[str, Any], marks: str) -> None:
    assert planned(history, **options) == marks


@pytest.mark.parametrize(
    ("history", "options", "end"), [pytest.param(*row, id=name) for name, row in STORED.items()]
)
def test_stored_end(history: str, options: dict[str, bool], end: int | None) -> None:
    assert placed(history, **options).stored_end() == end


@pytest.mark.parametrize("letter", LETTERS)
def test_markable(letter: str) -> None:
    assert markable(LETTERS[letter]) is (letter not in "_xfet")


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        *[(kind, b"{}") for kind in ("redacted_thinking", "reasoning", "server_tool_use")],
        *[(f"{word}_tool_result", b"{}") for word in ("code_execution", "web_search")],
        ("tool_use", b'{"caller":{"type":"code_execution_20260120"}}'),
    ],
)
def test_no_mark_on_what_the_provider_made(kind: str, raw: bytes) -> None:
    assert not markable(Native(0, 0, Raw(raw), kind), FACTS.takes_mark)


def read(session: Session) -> int:
    return session.sent[-1].usage.cache_read or 0


@pytest.mark.parametrize("tail", [None, "Be brief."])
async def test_what_stands_in_front_of_a_summary_is_read_again(tail: str | None) -> None:
    """Answers that stay have another beginning in front, so nothing is stored at their ends."""
    async with stage() as here:
        reads: list[int] = []
        for keep in (0, 2):
            # Two conversations that share nothing but the head.
            ships = f"This one is about {keep} ships. " * 300
            agent = here.agent(NOVA, conversation_instructions=ships, turn_instructions=tail)
            async with here.open(agent, f"keep {keep}") as session:
                for text in ("one", "two", "three"):
                    await session.run(text)
                await session.compact("In short.", keep_turns=keep)
                await session.run("four")
                reads.append(read(session))
                await session.run("five")
                assert (session.sent[-1].usage.prompt or 0) - read(session) < 100
            log = SessionLog.load("s", await here.store.read(f"keep {keep}"))
            records = [each.record for each in replay(log)]
            assert check(records, rules(NOVA)) == ()
            assert judge(records, rules(NOVA), count).totals.undeclared_misses == 0
        # Both prompts, whatever stays behind them.
        assert reads[0] == reads[1] > 2_500
        assert here.refused() == []
