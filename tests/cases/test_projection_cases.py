"""Cases 42 to 64 and 66 to 68: what each mode tells of one log.

`N` has no tool updates, `A` additions only, `H` tells all in the history. `Story.told` also checks
that a projector which followed the log and a new one agree with the projection.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw
from tests.cases.helpers import (
    ADDITION_ONLY,
    CONFIG,
    MODES,
    PLAIN,
    Letter,
    Story,
    open_log,
    schema,
    talking,
    tools,
)

from addendum.errors import ConfigurationError
from addendum.log.events import DeveloperMessage
from addendum.log.headers import log_header
from addendum.log.values import Header, ToolAddition, ToolSchema
from addendum.tools.history import HistoryFold, ToolHistory, project_tool_updates

LETTERS: tuple[Letter, ...] = ("N", "A", "H")


def told(story: Story) -> list[str]:
    return [story.told(letter) for letter in LETTERS]


def direct(
    story: Story, history: ToolHistory | None, *, but: int | None = None, active: str | None = None
) -> list[str]:
    """Project by hand: with another history, without a message, with other active tools."""
    messages = [node for node in story.log.surface.nodes if node.seq != but]
    given = story.active if active is None else tools(active)
    return [
        story.written(*project_tool_updates(messages, given, MODES[letter], history))
        for letter in LETTERS
    ]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param(["a"], ["a", "a", "a"], id="case_42_first"),
        pytest.param(["a", "a b"], ["a b", "a b* | m1 +b", "a b* | m1 +b"], id="case_43_added"),
        pytest.param(["a b", "a"], ["a", "a", "a b | m1 -b"], id="case_44_removed"),
        pytest.param(
            ["a b", "a", "a b"], ["a b", "a b", "a b | m1 -b, m2 +b"], id="case_45_restored"
        ),
        pytest.param(
            ["a", "a b", "a"], ["a", "a", "a b* | m1 +b, m2 -b"], id="case_46_added_and_removed"
        ),
        pytest.param(
            ["a", "a b", "a", "a b"],
            ["a b", "a b* | m1 +b", "a b* | m1 +b, m2 -b, m3 +b"],
            id="case_47_added_removed_and_restored",
        ),
        pytest.param(
            ["a", "a b", "a", "a b", "a", "a b"],
            ["a b", "a b* | m1 +b", "a b* | m1 +b, m2 -b, m3 +b, m4 -b, m5 +b"],
            id="case_48_three_times_on",
        ),
        pytest.param(["a b*"], ["a b", "a b*", "a b*"], id="case_49_flagged"),
        pytest.param(
            ["a b*", "a", "a b*"],
            ["a b", "a b* | m2 +b", "a b* | m2 +b"],
            id="case_50_flagged_and_restored",
        ),
        pytest.param(
            ["a", "a b*"], ["a b", "a b* | m1 +b", "a b* | m1 +b"], id="case_51_added_flagged"
        ),
        pytest.param(["a", "a b", "a b'"], ["a b'", "a b'", "a b'"], id="case_52_redefined"),
        pytest.param(["a", "!a b"], ["a b", "a b", "a b"], id="case_53_added_by_a_series_header"),
        pytest.param(
            ["a", "a b", "!a b", "a b c"],
            ["a b c", "a b c* | m2 +c", "a b c* | m2 +c"],
            id="case_54_updates_of_an_older_series",
        ),
        pytest.param(
            ["a b", "b c"],
            ["b c", "b c* | m1 +c", "a b c* | m1 +c -a"],
            id="case_59_added_and_removed_at_once",
        ),
        pytest.param(
            ["a b", "c a b"],
            ["a b c", "a b c* | m1 +c", "a b c* | m1 +c"],
            id="case_60_order_is_kept",
        ),
        pytest.param(["", "b"], ["b", "b", "b"], id="case_63_nothing_immediate"),
        pytest.param(["a", "b"], ["b", "b", "a b* | m1 +b -a"], id="case_64_all_exchanged"),
    ],
)
def test_told(requests: list[str], expected: list[str]) -> None:
    story = Story()
    for each in requests:
        story.request(each.lstrip("!"), series=each.startswith("!"))
    assert told(story) == expected
    story.restart()
    assert told(story) == expected


def test_case_55_history_missing() -> None:
    story = Story("a")
    story.request("a b*")
    assert direct(story, None) == ["a b", "a b*", "a b*"]
    # A log from before developer messages comes to the same.
    old = Story("a")
    old.request("a b*", message=False)
    assert told(old) == ["a b", "a b*", "a b*"]
    # Nothing but flagged tools would be refused, here too.
    assert direct(story, None, active="a* b*") == ["a b", "a b", "a b"]


def test_case_56_prefix_without_an_addition() -> None:
    story = Story("a", "a b")
    assert direct(story, story.history, but=story.messages[0].seq) == ["a b", "a b", "a b"]
    story.rewind()
    assert story.history.updates
    assert told(story) == ["a b", "a b", "a b"]


def test_case_57_prefix_without_a_removal() -> None:
    story = Story("a b", "a")
    assert direct(story, story.history, but=story.messages[0].seq) == ["a", "a", "a"]
    story.rewind()
    assert story.history.updates
    assert told(story) == ["a", "a", "a"]


def test_case_58_partly_filtered_message_is_a_copy() -> None:
    story = Story("a", "a b c", "a c")
    stored = story.messages[0]
    before = msgspec.json.encode(stored)
    assert told(story) == ["a c", "a c* | m1 +c", "a b* c* | m1 +b +c, m2 -b"]
    messages, _ = project_tool_updates(
        story.log.surface.nodes, story.active, "addition-only", story.history
    )
    copy = next(event for event in messages if event.seq == stored.seq)
    assert isinstance(copy.data, DeveloperMessage)
    assert copy.data.content == (ToolAddition("c"),)
    assert copy is not stored
    assert story.messages[0] is stored
    assert msgspec.json.encode(stored) == before
    # What follows it reads the whole message.
    assert told(story)[2] == "a b* c* | m1 +b +c, m2 -b"


def test_case_61_text_beside_a_block() -> None:
    story = Story("a")
    story.request("a b", beside="as you asked")
    kept = "a b* | m1 'as you asked' +b"
    assert told(story) == ["a b", kept, kept]
    story.request("a")
    assert told(story) == ["a", "a | m1 'as you asked'", f"{kept}, m2 -b"]


def test_case_62_nothing_to_filter() -> None:
    for requests in (["a"], ["a", "a b"], ["a", "a b", "a b c"]):
        story = Story(*requests)
        for mode in ("addition-only", "in-history"):
            nodes = story.log.surface.nodes
            messages, _ = project_tool_updates(nodes, story.active, mode, story.history)
            assert messages is nodes
    story = Story("a")
    nodes = story.log.surface.nodes
    assert project_tool_updates(nodes, story.active, None, story.history)[0] is nodes


@pytest.mark.anyio
async def test_case_66_switched_to_a_capable_route() -> None:
    answers: list[bytes] = []
    for first in (PLAIN, ADDITION_ONLY):
        async with talking(first) as talk:
            await talk.say("one")
            await talk.say("two", "a b")
            await talk.say("three", "a b c")
            talk.session.use(ADDITION_ONLY)
            await talk.say("four")
            await talk.say("five")
            answers.append(talk.raw[-1])
    assert answers[0] == answers[1]


def test_case_67_unknown_mode() -> None:
    story = Story("a")
    with pytest.raises(ConfigurationError, match="mode='both'"):
        project_tool_updates(story.log.surface.nodes, story.active, "both", story.history)  # type: ignore[arg-type]


def test_case_68_order_and_active_set_have_to_fit() -> None:
    story = Story("a", "a b", "a b c")
    first, second = story.messages
    nodes = list(story.log.surface.nodes)
    swap = {first.seq: second, second.seq: first}
    swapped = [swap.get(node.seq, node) for node in nodes]
    for mode in ("addition-only", "in-history"):
        messages, declared = project_tool_updates(swapped, story.active, mode, story.history)
        assert story.written(messages, declared) == "a b c"
    # An active set that is not the fold's.
    fallback = direct(story, story.history, active="a b")
    assert fallback == ["a b", "a b", "a b"]
    # The same names with another definition are not the fold's either.
    assert direct(story, story.history, active="a b' c")[1:] == ["a b' c", "a b' c"]


def test_key_order_is_no_change_and_first_bytes_stay() -> None:
    first, other = (
        ToolSchema("b", "Does b.", Raw(text))
        for text in (b'{"type":"object","title":"B"}', b'{"title":"B","type":"object"}')
    )
    log = open_log()
    fold = HistoryFold()
    assert not log_header(log, Header(CONFIG, (first,)), first=True, series=False)
    length = len(log)
    log_header(log, Header(CONFIG, (other,)), first=False, series=False)
    assert len(log) == length
    log_header(log, Header(CONFIG, (other, schema("c"))), first=False, series=False)
    history = fold.read(log.events)
    assert history.tools == (first,)
    for mode in MODES.values():
        _, declared = project_tool_updates(log.surface.nodes, fold.active, mode, history)
        assert bytes(declared[0].parameters) == bytes(first.parameters)


def test_every_mode_offers_what_is_active() -> None:
    """What can be called after the last block is the active set; a flagged first tool cannot."""
    story = Story("a b* c", "a b* d", "a c d", "a b* c d'", "a", "a b c")
    for letter in LETTERS:
        declared, _, updates = story.told(letter).partition(" | ")
        offered = {word for word in declared.split() if not word.endswith("*")}
        for block in updates.replace(",", " ").split():
            if block.startswith("+"):
                offered.add(block[1:])
            elif block.startswith("-"):
                offered.discard(block[1:])
        assert offered == {"a", "b", "c"}
