"""Where a name is defined once for ever: returns and removals in text, one place a definition."""

from __future__ import annotations

from msgspec import Raw

from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block, Change, Text
from addendum.prompt.updates import by_unique_name
from addendum.tools.ledger import LedgerUpdate


def tool(name: str, version: int = 0) -> ToolSchema:
    return ToolSchema(name, f"{name} {version}", Raw(b'{"type":"object"}'))


HEAD = (tool("own"), ToolSchema("hidden", "h", Raw(b'{"type":"object"}'), True))


def short(blocks: tuple[Block, ...]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        if isinstance(block, Change):
            assert block.definition is not None and block.added
            found.append(block.definition.description)
        elif isinstance(block, Text):
            assert block.role == "system"
            found.append(block.text)
    return found


ADDED = "The tools defined just now are added to those defined before."
STAY = "All others stay available."


def test_a_tool_comes_goes_and_returns_with_one_definition() -> None:
    updates = (
        LedgerUpdate(1, 1, added=(tool("late"),)),
        LedgerUpdate(2, 2, removed=("late",)),
        LedgerUpdate(3, 3, added=(tool("late"),)),
        LedgerUpdate(4, 4, removed=("own",)),
    )
    told = by_unique_name(HEAD, updates)
    assert [each.name for each in told.tools] == ["own"]
    assert [short(told.updates[at]) for at in (1, 2, 3, 4)] == [
        ["late 0", f"{ADDED} {STAY}"],
        [f"Not available now, do not call: late. {STAY}"],
        [f"Available again: late. {STAY}"],
        [f"Not available now, do not call: own. {STAY}"],
    ]


def test_a_new_definition_stands_in_the_place_of_the_old_one() -> None:
    first = LedgerUpdate(1, 1, added=(tool("late"), tool("more")))
    before = by_unique_name(HEAD, (first,))
    after = by_unique_name(HEAD, (first, LedgerUpdate(5, 5, redefined=(tool("late", 1),))))
    assert 5 not in after.updates
    assert short(after.updates[1])[:2] == ["late 1", "more 0"]
    keys = [[block.key for block in told.updates[1]] for told in (before, after)]
    assert keys[0][0] != keys[1][0] and keys[0][1:] == keys[1][1:]
    head = by_unique_name(HEAD, (LedgerUpdate(5, 5, redefined=(tool("own", 1),)),))
    assert [each.description for each in head.tools] == ["own 1"] and not head.updates


def test_a_tool_may_return_with_another_definition() -> None:
    updates = (
        LedgerUpdate(1, 1, added=(tool("late"),)),
        LedgerUpdate(2, 2, removed=("late",)),
        LedgerUpdate(3, 3, added=(tool("late", 1),)),
    )
    told = by_unique_name(HEAD, updates)
    assert short(told.updates[1])[0] == "late 1"
    assert short(told.updates[3]) == [f"Available again: late. {STAY}"]


def test_a_flagged_tool_is_defined_when_it_is_first_told() -> None:
    plain = tool("hidden")
    assert by_unique_name(HEAD, (LedgerUpdate(1, 1, redefined=(plain,)),)).updates == {}
    told = by_unique_name(HEAD, (LedgerUpdate(1, 1, added=(plain,)),))
    assert short(told.updates[1])[0] == "hidden 0"


def test_updates_that_went_leave_names_free_again() -> None:
    """After a compaction the ledger tells what is left to tell."""
    told = by_unique_name(HEAD, (LedgerUpdate(9, 9, added=(tool("late", 1),)),))
    assert short(told.updates[9])[0] == "late 1"
