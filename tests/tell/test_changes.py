"""How a change of tools is told in Chat and Trajectory, in each language."""

from __future__ import annotations

import pytest

from addendum.log.events import DeveloperMessage, Event
from addendum.log.values import DeveloperBlock, DeveloperText, ToolAddition, ToolRemoval
from addendum.tell.changes import ToolChange, change
from addendum.tell.words import words
from addendum.viewer.chat import Item, items
from addendum.viewer.index import Index
from addendum.viewer.ledger import Ledger
from addendum.viewer.render import item_html, shown_rows

EN, ZH = words("en"), words("zh")


def added(name: str) -> ToolAddition:
    return ToolAddition(name)


def removed(name: str) -> ToolRemoval:
    return ToolRemoval(name)


def message(*blocks: DeveloperBlock) -> DeveloperMessage:
    seq = 0 if any(isinstance(block, ToolAddition) for block in blocks) else None
    return DeveloperMessage(1, 1, blocks, seq)


def told(*blocks: DeveloperBlock) -> tuple[ToolChange | None, ToolChange | None]:
    return change(message(*blocks), EN), change(message(*blocks), ZH)


def in_chat(data: DeveloperMessage, language: str = "en") -> list[Item]:
    events, index = [Event(0, 0, data, "append")], Index()
    index.read(events)
    return items(events, index, 0, words(language))


def html(data: DeveloperMessage, language: str) -> str:
    (item,) = in_chat(data, language)
    return item_html(item, "/s/x", words(language), True)


def test_case_87_one_addition_names_the_tool() -> None:
    assert told(added("b")) == (ToolChange("Tool added: b"), ToolChange("已添加工具：b"))
    assert "<details" not in html(message(added("b")), "en")


def test_case_88_one_removal_names_the_tool() -> None:
    assert told(removed("b")) == (ToolChange("Tool removed: b"), ToolChange("已移除工具：b"))
    assert "<details" not in html(message(removed("b")), "zh")


def test_case_89_two_additions_are_counted_and_open_to_their_names() -> None:
    english, chinese = told(added("b"), added("c"))
    assert english == ToolChange("Tools updated", "2 added", ("Added: b, c",))
    assert chinese == ToolChange("工具已更新", "新增 2 个", ("已添加：b, c",))
    shown = html(message(added("b"), added("c")), "en")
    assert shown.count("<details") == 1 and "<details open" not in shown


def test_case_90_additions_and_removals_open_to_two_lines() -> None:
    english, chinese = told(added("b"), removed("a"))
    assert english == ToolChange("Tools updated", "1 added, 1 removed", ("Added: b", "Removed: a"))
    assert chinese == ToolChange("工具已更新", "新增 1 个，移除 1 个", ("已添加：b", "已移除：a"))


def test_case_91_text_beside_a_tool_makes_an_ordinary_row() -> None:
    mixed = message(DeveloperText("read this"), added("b"))
    assert change(mixed, EN) is None
    (item,) = in_chat(mixed)
    assert item.kind == "context" and item.fields["body"].text == "read this\n+b"


def test_case_92_an_empty_message_has_no_row_in_chat() -> None:
    assert in_chat(message()) == []


def test_case_93_another_language_leaves_node_and_names_alone() -> None:
    data = message(added("git__状态"), added("工具"))
    english, chinese = in_chat(data, "en"), in_chat(data, "zh")
    assert [(item.key, item.kind, item.seq) for item in english] == [
        (item.key, item.kind, item.seq) for item in chinese
    ]
    texts = [html(data, language) for language in ("en", "zh")]
    assert texts[0] != texts[1]
    assert all("git__状态, 工具" in text for text in texts)


def test_text_alone_is_hidden_in_chat_and_shown_in_the_trajectory() -> None:
    data = message(DeveloperText("quiet"))
    assert in_chat(data) == []
    events, index = [Event(0, 0, data, "append")], Index()
    index.read(events)
    (row,) = Ledger(events, index, EN).page().rows
    assert (row.kind, row.text) == ("developer", "quiet")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_views_say_the_same_of_a_change(language: str) -> None:
    data = message(added("b"), removed("a"))
    events, index = [Event(0, 0, data, "append")], Index()
    index.read(events)
    page = Ledger(events, index, words(language)).page()
    (row,) = shown_rows(page.rows, "/s/x", words(language))
    chat = html(data, language)
    for text in ("title", "summary"):
        said = getattr(change(data, words(language)), text)
        assert said in row.html and said in chat
