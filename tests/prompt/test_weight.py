"""Which bytes of a request define tools that it no longer offers so."""

from __future__ import annotations

import pytest
from msgspec import Raw

from addendum.log.events import RequestContext
from addendum.log.values import ToolSchema
from addendum.prompt.announcements import tool_update
from addendum.prompt.blocks import Block, Change, Marks, Prompt, Text
from addendum.prompt.weight import dead_bytes
from addendum.tools.dispatcher import CALL_TOOL, TOOL_DISPATCHER_NAME
from addendum.tools.search import TOOL_SEARCH


def tool(name: str, size: int = 100, *, late: bool = False) -> ToolSchema:
    """Return a tool whose definition has that many bytes."""
    schema = b'{"type":"object"}'
    text = "ü" + "x" * (size - len(name) - len(schema) - 2)
    return ToolSchema(name, text, Raw(schema), True if late else None)


def added(name: str, definition: ToolSchema | None = None) -> Change:
    return Change(1, 0, name, True, definition)


def removed(name: str) -> Change:
    return Change(1, 0, name, False)


def told(text: str) -> Text:
    return Text(1, 0, "user", text, "announcement")


def announced(*new: ToolSchema, changed: tuple[ToolSchema, ...] = ()) -> Text:
    return told(tool_update(new, changed, removed=["gone"], dispatcher=TOOL_DISPATCHER_NAME))


WEB, GIT, RARE = tool("web"), tool("git", 70), tool("rare", 300, late=True)
WEB2, GIT2 = tool("web", 120), tool("git", 90)

ROWS: dict[str, tuple[tuple[ToolSchema, ...], tuple[Block, ...], str, int]] = {
    # Declarations, blocks, the active names: dead bytes.
    "all_is_offered": ((WEB, GIT), (), "web git", 0),
    "a_declared_tool_left": ((WEB, GIT), (), "web", 70),
    "all_of_them_left": ((WEB, GIT), (), "", 170),
    "our_own_tools_always_count": ((CALL_TOOL, TOOL_SEARCH, WEB), (), "web", 0),
    "a_deferred_tool_that_nobody_was_told": ((WEB, RARE), (), "web", 0),
    # By reference.
    "one_that_was_added": ((WEB, RARE), (added("rare"),), "web rare", 0),
    "one_that_was_added_and_left": ((WEB, RARE), (added("rare"), removed("rare")), "web", 300),
    "one_that_came_twice_is_told_once": ((RARE,), (added("rare"), added("rare")), "rare", 0),
    "and_is_dead_once": ((RARE,), (added("rare"), removed("rare"), added("rare")), "", 300),
    "a_declared_tool_that_came_back": ((WEB,), (removed("web"), added("web")), "web", 0),
    "what_was_never_declared_has_no_bytes": ((), (added("web"),), "", 0),
    "a_removal_defines_nothing": ((RARE,), (removed("rare"),), "", 0),
    # By value.
    "one_that_came_by_value": ((), (added("git", GIT),), "git", 0),
    "one_that_came_by_value_and_left": ((), (added("git", GIT), removed("git")), "", 70),
    "a_definition_in_place_of_another": ((WEB,), (added("web", WEB2),), "web", 100),
    "two_in_place_of_one": ((WEB,), (added("web", WEB2), added("web", WEB)), "web", 220),
    "the_last_one_left_too": ((WEB,), (added("web", WEB2), removed("web")), "", 220),
    "the_same_again_is_a_second_copy": ((WEB,), (added("web", WEB),), "web", 100),
    # In announcements.
    "one_that_was_announced": ((), (announced(GIT),), "git", 0),
    "one_that_was_announced_and_left": ((), (announced(GIT),), "", 70),
    "one_that_was_announced_anew": ((), (announced(GIT), announced(changed=(GIT2,))), "git", 70),
    "two_in_one_announcement": ((), (announced(WEB, GIT),), "", 170),
    "a_notice_defines_nothing": ((), (told("Not available now, do not call: web."),), "", 0),
    "who_only_writes_like_one": ((), (Text(1, 0, "user", announced(GIT).text, "human"),), "", 0),
}


@pytest.mark.parametrize(
    ("tools", "blocks", "active", "dead"),
    [pytest.param(*row, id=name) for name, row in ROWS.items()],
)
def test_dead_bytes(
    tools: tuple[ToolSchema, ...], blocks: tuple[Block, ...], active: str, dead: int
) -> None:
    context = RequestContext("anthropic:m", "anthropic_messages", "in-history")
    for settled in range(len(blocks) + 1):
        prompt = Prompt(
            context=context,
            tools=tools,
            system=(),
            settled=[*blocks[:settled], added("later", tool("later"))],
            count=settled,
            open=blocks[settled:],
            tail=None,
            tail_at=0,
            marks=Marks(),
            chain=1,
            cache_key="",
        )
        assert dead_bytes(prompt, [tool(name, 50) for name in active.split()]) == dead
