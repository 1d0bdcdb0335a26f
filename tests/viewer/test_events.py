"""Events that stand beside a conversation, told in words in both views."""

from __future__ import annotations

import pytest
from tests.viewer.staged import OPUS, long_log

from addendum.log.approvals import ToolRedefined
from addendum.log.events import CacheKept, CompactionFailed, RequestContext, RequestSent
from addendum.log.session_log import SessionLog
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import Usage
from addendum.tell.words import words
from addendum.viewer.index import Index
from addendum.viewer.ledger import Ledger
from addendum.viewer.render import shown_rows, turn_html

CHILD = "a child/<b>"


def told() -> tuple[SessionLog, Index, int]:
    """A log with each of these events in its last turn; the seq of the first."""
    log = long_log(1)
    first = len(log)
    log.append(SubagentStarted(1, 1, "c1", CHILD, ("write_*",)))
    log.append(SubagentEnded(1, 1, "c1", CHILD, 3, Usage(1200, 0, 0, 5)))
    log.append(ToolRedefined("look<i>", "old", "new", "ask"))
    log.append(CompactionFailed("the summary said <nothing>"))
    context = next(e.seq for e in log.events if isinstance(e.data, RequestContext))
    log.append(RequestSent(1, 2, 3, OPUS, context, purpose="keep-alive"))
    log.append(CacheKept(OPUS, Usage(1080, 1080, 0, 1)))
    index = Index()
    index.read(log.events)
    return log, index, first


def test_each_has_a_row_in_words() -> None:
    log, index, first = told()
    rows = list(Ledger(log.events, index, words("en")).rows(first, len(log)))
    assert [row.kind for row in rows] == [
        *("subagent", "subagent", "redefined", "summary", "keeps", "kept"),
    ]
    assert [row.text for row in rows[:4]] == [
        "A subagent began, without write_*",
        "The subagent is done after 3 requests · 1,200 tokens",
        "look<i> old → new · the new definition holds once a call is approved",
        "Not compacted, nothing was replaced: the summary said <nothing>",
    ]
    # The request that keeps the cache has its figures, and what was declared is ahead still.
    assert rows[4].bar is not None and rows[4].bar.share == 100
    assert rows[5].text == f"{OPUS} · 1,080 tokens"
    html = "".join(each.html for each in shown_rows(rows, "/s/long", words("en")))
    assert html.count('href="/s/a%20child%2F%3Cb%3E"') == 2
    assert "<i>" not in html and "<nothing>" not in html and "<b>" not in html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_chat_tells_of_subagents_and_of_definitions(language: str) -> None:
    log, index, _ = told()
    html = str(turn_html(log.events, index, 1, words(language), "/s/long"))
    assert 'href="/s/a%20child%2F%3Cb%3E"' in html
    assert words(language)("redefined.ask") in html and "look&lt;i&gt;" in html
    assert "the summary said &lt;nothing&gt;" in html
    # In a file there is nowhere to go.
    alone = str(turn_html(log.events, index, 1, words(language), "", can=False))
    assert "href" not in alone and "a child/&lt;b&gt;" in alone


def test_a_search_finds_them() -> None:
    log, index, _ = told()
    made = Ledger(log.events, index, words("en"))
    assert len(made.search("a child")) == 2
    assert [row.kind for row in made.search("said <nothing>")] == ["summary"]
    assert [row.kind for row in made.search("look<i>")] == ["redefined"]
