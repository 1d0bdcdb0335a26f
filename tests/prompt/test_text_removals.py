"""Changes told by value where nothing takes a tool away, and marks beside an implicit one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, structs

from addendum.log.events import RequestContext
from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block, Change, Marks, Result, Text
from addendum.prompt.marks import Positions, plan_marks
from addendum.prompt.updates import Telling
from addendum.prompt.wire_facts import WireFacts
from addendum.routes import context, resolve
from addendum.tools.ledger import LedgerUpdate

NATIVE = context(resolve("openai:gpt-6.1-sol", environ={}), "addition-only")
CLAUDE = context(resolve("anthropic:claude-opus-5-5", environ={}), "in-history")


def tool(name: str, version: int = 0, *, deferred: bool = False) -> ToolSchema:
    return ToolSchema(name, f"version {version}", Raw(b"{}"), True if deferred else None)


HEAD = (tool("look"), tool("hidden", deferred=True))


def told(*updates: LedgerUpdate, epoch: RequestContext = NATIVE) -> list[Block]:
    found = Telling(epoch).read(HEAD, updates).updates
    return [block for anchor in sorted(found) for block in found[anchor]]


def short(blocks: Sequence[Block]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        if isinstance(block, Change):
            assert block.added and block.definition is not None
            found.append(f"+{block.name} {block.definition.description}")
        else:
            assert isinstance(block, Text) and block.role == "system"
            found.append(block.text)
    return found


ADDED = "The tools defined just now are added to those defined before."
REST = "All others stay available."


def test_the_head_holds_immediate_tools_only() -> None:
    assert [each.name for each in Telling(NATIVE).read(HEAD, ()).tools] == ["look"]
    names = [each.name for each in Telling(CLAUDE).read(HEAD, ()).tools]
    assert names[0] == "look" and "hidden" in names


def test_a_removal_is_a_notice_that_names_what_is_off_and_every_later_one_says_it_again() -> None:
    blocks = told(
        LedgerUpdate(3, 1, added=(tool("a"), tool("b"))),
        LedgerUpdate(6, 5, removed=("look", "a")),
        LedgerUpdate(9, 8, added=(tool("c"),)),
    )
    assert short(blocks) == [
        "+a version 0",
        "+b version 0",
        f"{ADDED} {REST}",
        f"Not available now, do not call: look, a. {REST}",
        "+c version 0",
        f"{ADDED} Not available now, do not call: look, a. {REST}",
    ]


def test_what_returns_is_told_by_its_name_and_a_redefinition_is_defined() -> None:
    updates = (
        LedgerUpdate(3, 1, removed=("look",)),
        LedgerUpdate(6, 5, added=(tool("look"), tool("new"))),
        LedgerUpdate(9, 8, redefined=(tool("look", 1),)),
        LedgerUpdate(12, 11, removed=("look",)),
        LedgerUpdate(15, 14, added=(tool("look", 1),)),
    )
    back = "Available again: look."
    redefined = ["+look version 1", f"{ADDED} {REST}"]
    off = f"Not available now, do not call: look. {REST}"
    assert short(told(*updates))[1:] == [
        "+new version 0",
        f"{ADDED} {back} {REST}",
        *redefined,
        off,
        f"{back} {REST}",
    ]
    # An epoch of an earlier release goes on as it began.
    earlier = structs.replace(NATIVE, readd="block")
    assert short(told(*updates, epoch=earlier))[1:] == [
        "+look version 0",
        "+new version 0",
        f"{ADDED} {REST}",
        *redefined,
        off,
        *redefined,
    ]
    # Claude's removal block leaves the definition there: its name is enough.
    again = told(
        LedgerUpdate(3, 1, removed=("look",)),
        LedgerUpdate(6, 5, added=(tool("look"),)),
        epoch=CLAUDE,
    )
    assert [(each.name, each.added, each.definition) for each in again] == [  # type: ignore[union-attr]
        ("look", False, None),
        ("look", True, None),
    ]


def test_what_changes_while_it_is_off_is_told_when_it_returns() -> None:
    blocks = told(
        LedgerUpdate(3, 1, removed=("look",)),
        LedgerUpdate(6, 5, redefined=(tool("look", 1),)),
        LedgerUpdate(9, 8, added=(tool("look", 1),)),
    )
    assert short(blocks)[1:] == ["+look version 1", f"{ADDED} {REST}"]


def test_keys_differ_and_blocks_of_an_update_share_its_seq() -> None:
    blocks = told(LedgerUpdate(3, 1, added=(tool("a"), tool("b")), removed=("look",)))
    keys = [block.key for block in blocks]
    assert len(set(keys)) == 3 and {seq for seq, _ in keys} == {3}


# --- marks -------------------------------------------------------------------------------------

SYSTEM = (Text(-1, 0, "system", "static", "prompt"), Text(-1, 1, "system", "more", "prompt"))


def user(seq: int) -> Text:
    return Text(seq, 0, "user", "u", "human")


def answer(seq: int) -> Text:
    return Text(seq, 0, "assistant", "a", "answer")


def change(seq: int) -> Change:
    return Change(seq, 0, "t", True, tool("t"))


def notice(seq: int) -> Text:
    return Text(seq, 9, "system", "n", "announcement")


def plan(
    *blocks: Block,
    answered: int | None = None,
    human: int = 0,
    tail_at: int | None = None,
    limit: int = 3,
    fleeting: bool = False,
) -> Marks:
    positions = Positions()
    positions.take_human(human if answered is None else 0, 1, tail_at is not None)
    if answered is not None:
        positions.answered(answered, 2)
        positions.take_human(human, 2, tail_at is not None)
    return plan_marks(
        (),
        SYSTEM,
        [],
        blocks,
        positions,
        WireFacts(marks=limit, implicit=True),
        tail_at=tail_at,
        fleeting=fleeting,
    )


def test_the_static_text_is_marked_and_the_end_is_the_providers_own() -> None:
    assert plan(user(1)) == Marks(False, (0,), ())
    assert plan(user(1), limit=0) == Marks()


def test_the_last_request_ended_at_a_text_or_result() -> None:
    result = Result(3, 0, "c", "t", "r")
    blocks = (user(1), answer(2), result, answer(4), user(5))
    assert plan(*blocks, answered=3, human=4).blocks == (2,)
    assert plan(*blocks, answered=1, human=4).blocks == (0,)


def test_definitions_at_the_end_are_stored_by_a_mark_on_their_notice() -> None:
    assert plan(user(1), change(2), notice(2)).blocks == (2,)
    blocks = (user(1), change(2), notice(2), answer(3), user(4))
    assert plan(*blocks, answered=3, human=4).blocks == (2,)
    # Where reasoning leaves with its turn, what stands behind its message moves.
    assert plan(user(1), change(2), notice(2), fleeting=True).blocks == ()


def test_in_front_of_a_moved_tail_the_end_of_the_history_is_marked() -> None:
    blocks = (user(1), answer(2), Result(3, 0, "c", "t", "r"), answer(4), user(5))
    assert plan(*blocks, answered=3, human=4, tail_at=4).blocks == (2,)
    assert plan(user(1), tail_at=0).blocks == ()


def test_never_more_than_three() -> None:
    blocks = (user(1), answer(2), user(3), answer(4), user(5), change(6), notice(6))
    assert plan(*blocks, answered=3, human=0) == Marks(False, (0,), (2, 6))
    assert plan(*blocks, answered=3, human=0, limit=2) == Marks(False, (0,), (2,))
    assert plan(*blocks, answered=1, human=4, tail_at=4) == Marks(False, (0,), (2, 6))
