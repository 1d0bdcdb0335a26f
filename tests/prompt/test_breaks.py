"""Where a request stops extending the one before it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec import Raw, structs

from addendum.log.events import CacheBreak, Event, RequestContext, StepEnd
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Marks, Native, Prompt, Text
from addendum.prompt.breaks import Difference, difference, reasoning_floor

ROUTE = "anthropic:m"
CONFIG = Config("anthropic", "m", "low")
EPOCH = RequestContext(ROUTE, "anthropic_messages", "in-history", prompt_update=True)
BOUND = structs.replace(EPOCH, reasoning_bound=True)
KEPT = structs.replace(BOUND, tail="kept")


def tool(name: str, text: str = "Reads.", schema: bytes = b"{}", late: bool = False) -> ToolSchema:
    return ToolSchema(name, text, Raw(schema), True if late else None)


def person(seq: int, text: str) -> Text:
    return Text(seq, 0, "user", text, "human")


def prompt_text(part: int, text: str) -> Text:
    return Text(-1, part, "system", text, "prompt")


def own(part: int, text: str, kind: str = "text", **rest: Any) -> Native:
    return Native(5, part, Raw(text.encode()), kind, **rest)


WEB, RARE = tool("web"), tool("rare", late=True)
HI, NEXT, MORE = person(3, "hi"), person(7, "next"), person(9, "more")
THOUGHT, YES = own(0, '"so"', "thinking"), own(1, '"yes"')
NO, ALONE = own(1, '"no"'), own(-2, '"yes"', unpaired=True)
BASE = Prompt(
    context=EPOCH,
    tools=(WEB, RARE),
    system=(prompt_text(0, "You help."),),
    settled=[HI, THOUGHT, YES],
    count=3,
    open=(NEXT,),
    tail=None,
    tail_at=3,
    marks=Marks(True, (0,), (2, 3)),
    chain=1,
    cache_key="key",
)
CHAINS = itertools.count(2)


def prompt(change: dict[str, Any]) -> Prompt:
    """Return the base prompt but for some fields; `said` is all of its blocks, in a new list."""
    fields = dict(change)
    if "said" in fields:
        blocks: list[Block] = fields.pop("said")
        fields |= {"settled": blocks, "count": len(blocks), "open": (), "chain": next(CHAINS)}
    return structs.replace(BASE, **fields)


def messages(seq: int, reasoning: bool = False) -> Difference:
    return Difference("messages", seq, reasoning)


TOOLS, SYSTEM = Difference("tools"), Difference("system")

DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], Difference | None]] = {
    "the_same": ({}, {}, None),
    "more_at_the_end": ({}, {"open": (NEXT, MORE)}, None),
    "more_is_settled": ({}, {"settled": [*BASE.blocks, MORE], "count": 5, "open": ()}, None),
    "the_same_in_another_list": ({}, {"said": [*BASE.blocks, MORE]}, None),
    "what_settled_later_is_not_its_own": (
        {"settled": [HI, THOUGHT, YES, MORE]},
        {"said": [*BASE.blocks]},
        None,
    ),
    "marks_do_not_count": ({}, {"marks": Marks()}, None),
    "a_moved_tail_does_not_count": ({}, {"tail": MORE, "tail_at": 1}, None),
    # Tools.
    "a_tool_more": ({}, {"tools": (WEB, RARE, tool("git"))}, TOOLS),
    "a_tool_less": ({}, {"tools": (RARE,)}, TOOLS),
    "tools_in_another_order": ({"tools": (WEB, tool("a"))}, {"tools": (tool("a"), WEB)}, TOOLS),
    "another_description": ({}, {"tools": (tool("web", "Writes."), RARE)}, TOOLS),
    "a_schema_in_another_order": (
        {"tools": (tool("web", schema=b'{"a":1,"b":2}'),)},
        {"tools": (tool("web", schema=b'{"b":2,"a":1}'),)},
        None,
    ),
    "a_deferred_tool_more": ({}, {"tools": (WEB, RARE, tool("git", late=True))}, None),
    "a_tool_deferred": ({}, {"tools": (tool("web", late=True), RARE)}, TOOLS),
    "another_rendering": ({}, {"context": structs.replace(EPOCH, rendering=2)}, TOOLS),
    "tools_stand_in_front_of_the_prompt": ({}, {"tools": (), "system": ()}, TOOLS),
    # The prompt.
    "another_prompt": ({}, {"system": (prompt_text(0, "You rhyme."),)}, SYSTEM),
    "a_second_text": ({}, {"system": (*BASE.system, prompt_text(1, "Ships."))}, SYSTEM),
    "the_same_text_as_another_part": ({}, {"system": (prompt_text(1, "You help."),)}, None),
    "the_prompt_stands_in_front_of_messages": ({}, {"system": (), "open": ()}, SYSTEM),
    # Messages.
    "another_message": ({}, {"open": (MORE,)}, messages(7)),
    "a_message_less": ({}, {"open": ()}, messages(7)),
    "another_one_in_front": ({}, {"said": [MORE, THOUGHT, YES, NEXT]}, messages(3)),
    "the_first_that_differs": ({}, {"said": [HI, THOUGHT, NO, MORE]}, messages(5)),
    # Reasoning that stands behind it, where it is bound to what is in front.
    "bound_behind_tools": ({}, {"context": BOUND, "tools": ()}, Difference("tools", None, True)),
    "bound_behind_a_prompt": (
        {},
        {"context": BOUND, "system": ()},
        Difference("system", None, True),
    ),
    "bound_behind_a_message": (
        {},
        {"context": KEPT, "said": [MORE, THOUGHT, YES, NEXT]},
        messages(3, True),
    ),
    "bound_in_front_of_it": ({}, {"context": KEPT, "said": [HI, THOUGHT, NO]}, messages(5)),
    "bound_and_inside_an_item": (
        {},
        {"context": KEPT, "said": [MORE, own(0, "{}", reasons=True)]},
        messages(3, True),
    ),
    "bound_and_none_behind_a_prompt": ({}, {"context": BOUND, "system": (), "said": [HI]}, SYSTEM),
    "bound_and_none_there": ({}, {"context": BOUND, "tools": (), "said": [HI]}, TOOLS),
    "not_bound": ({}, {"said": [MORE, THOUGHT]}, messages(3)),
    # It goes with a tail that moves, and then it does not count.
    "it_goes_with_its_turn": ({}, {"context": BOUND, "said": [HI, YES, NEXT]}, None),
    "and_leaves_an_item_alone": ({}, {"context": BOUND, "said": [HI, ALONE, NEXT]}, None),
    "and_leaves_another_item": (
        {"said": [HI, own(0, "[1,2]", reasons=True), NEXT]},
        {"context": BOUND, "said": [HI, own(0, "[2]", reasons=True), NEXT]},
        None,
    ),
    "and_leaves_an_item_alone_without_its_own": (
        {"said": [HI, own(0, "[1,2]", reasons=True), NEXT]},
        {"context": BOUND, "said": [HI, own(-1, "[2]", reasons=True, unpaired=True), NEXT]},
        None,
    ),
    "what_stands_beside_it_counts": (
        {},
        {"context": BOUND, "said": [HI, NO, NEXT, THOUGHT]},
        messages(5, True),
    ),
    "what_went_in_front_is_not_behind": (
        {},
        {"context": BOUND, "said": [HI, THOUGHT, NO, NEXT]},
        messages(5),
    ),
    "under_a_tail_that_is_kept_it_counts": ({}, {"context": KEPT, "said": [HI, YES]}, messages(5)),
    "where_it_is_not_bound_it_counts": ({}, {"said": [HI, YES, NEXT]}, messages(5)),
}

KEYED = {"keyed": True}
BARE = {"context": structs.replace(EPOCH, caching=False), "marks": Marks()}

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, bool], str]] = {
    "provider": ({"provider": "bedrock"}, {}, {}, {}, "provider"),
    "model": ({"model": "n"}, {}, {}, {}, "model"),
    "effort": ({"effort": None}, {}, {}, {}, "effort"),
    "temperature": ({"temperature": 0.5}, {}, {}, {}, ""),
    "output_limit": ({"max_tokens": 7}, {}, {}, {}, ""),
    "stop_words": ({"stop": ("END",)}, {}, {}, {}, ""),
    "several": (
        {"model": "n", "effort": "high"},
        {},
        {"images": True},
        {},
        "model, effort, images",
    ),
    "betas": ({}, {}, {"context": structs.replace(EPOCH, betas=("b",))}, {}, "betas"),
    "the_first_image": ({}, {}, {"images": True}, {}, "images"),
    "the_last_image": ({}, {"images": True}, {}, {}, "images"),
    "cache_key": ({}, {}, {"cache_key": "other"}, KEYED, "cache key"),
    "the_same_cache_key": ({}, {}, {}, KEYED, ""),
    "a_key_that_is_not_sent": ({}, {}, {"cache_key": "other"}, {}, ""),
    "a_key_without_caching": ({}, BARE, {**BARE, "cache_key": "other"}, KEYED, ""),
    "caching_off": ({}, {}, BARE, {}, "caching"),
    "caching_on_where_marks_are_new": ({}, BARE, {}, {}, ""),
    "caching_on_with_a_key": ({}, BARE, {}, KEYED, "caching"),
    "caching_off_and_its_key": ({}, {}, {**BARE, "cache_key": "other"}, KEYED, "caching"),
}


@pytest.mark.parametrize(
    ("before", "after", "found"), [pytest.param(*row, id=name) for name, row in DIFFERENCES.items()]
)
def test_difference(
    before: dict[str, Any], after: dict[str, Any], found: Difference | None
) -> None:
    assert difference(prompt(before), prompt(after), CONFIG, CONFIG) == found


@pytest.mark.parametrize(
    ("config", "before", "after", "options", "detail"),
    [pytest.param(*row, id=name) for name, row in SETTINGS.items()],
)
def test_settings(
    config: dict[str, Any],
    before: dict[str, Any],
    after: dict[str, Any],
    options: dict[str, bool],
    detail: str,
) -> None:
    changed = structs.replace(CONFIG, **config)
    found = Difference("settings", detail=detail) if detail else None
    assert difference(prompt(before), prompt(after), CONFIG, changed, **options) == found


@pytest.mark.parametrize("epoch", [EPOCH, KEPT], ids=["loose", "bound"])
@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "reasoning"])
def test_settings_stand_in_front_and_tell_what_is_behind(epoch: RequestContext, kind: str) -> None:
    after = prompt({"context": epoch, "said": [MORE, own(0, "{}", kind)]})
    found = difference(
        prompt({"context": epoch}), after, CONFIG, structs.replace(CONFIG, model="n")
    )
    assert found == Difference("settings", 3, epoch is KEPT, "model")


@pytest.mark.parametrize(
    ("route", "drops", "floor"),
    [
        pytest.param(ROUTE, (True, True), 5, id="the_last_that_drops"),
        pytest.param(ROUTE, (True, False), 4, id="one_that_drops_none"),
        pytest.param(ROUTE, (False, False), -1, id="none_that_drops"),
        pytest.param("other:m", (True, True), -1, id="of_another_route"),
    ],
)
def test_reasoning_floor(route: str, drops: tuple[bool, ...], floor: int) -> None:
    events = [
        Event(seq, 7, CacheBreak("compaction", ROUTE, "messages", drops_reasoning=dropped))
        for seq, dropped in enumerate(drops, 4)
    ]
    events.append(Event(6, 7, StepEnd(1, 1)))
    assert reasoning_floor(events, route) == floor
