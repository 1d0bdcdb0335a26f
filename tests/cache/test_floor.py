"""What nobody avoids to send uncached; figures by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.cache.captures import DEEPSEEK, GPT56, STEPS, Json, chat, count, record, text

from addendum.cache.figures import Row
from addendum.cache.floor import Floor, drops, floor, rounded_away
from addendum.cache.record import RequestRecord
from addendum.cache.rules import CacheRules

CHAT: Json = {"wire": "openai_chat"}
PLAIN = CacheRules("steps")
A, B, C = text("a", 1000), text("b", 500), text("c", 200)


def asked(n: int, *parts: Json, **more: str) -> RequestRecord:
    body = chat([{"role": "user", "content": list(parts)}])
    tokens = sum(len(msgspec.json.encode(part)) // 4 for part in parts)
    return msgspec.structs.replace(record(n, body, tokens, 0, **CHAT), **more)


@pytest.mark.parametrize(
    ("prompts", "fresh"),
    [
        ([(A,)], 1000),
        ([(A,), (A, B)], 1500),  # what is new, once
        ([(A, B), (A,), (A, B)], 1500),  # gone and back
        ([(A, B), (C, A, B)], 1700),  # moved is not new, however it breaks a prefix
        ([(A, B), (B, A)], 1500),
        ([(A,), (B,), (C,)], 1700),
        ([(A,), (A, A)], 1000),  # said twice
    ],
)
def test_the_floor_is_what_is_new_wherever_it_stands(
    prompts: list[tuple[Json, ...]], fresh: int
) -> None:
    records = [asked(n, *parts) for n, parts in enumerate(prompts, 1)]
    assert floor(records, PLAIN, count) == Floor(fresh, 0)


def test_another_conversation_has_a_floor_of_its_own_and_a_fork_its_parents() -> None:
    one, other = asked(1, A, B, session="s"), asked(2, A, B, C, session="t")
    assert floor([one, other], PLAIN, count).fresh == 3200
    forked = msgspec.structs.replace(other, parent="s")
    assert floor([one, forked], PLAIN, count).fresh == 1700


def test_a_request_without_an_answer_leaves_nothing_and_costs_nothing() -> None:
    failed = msgspec.structs.replace(asked(1, A), status="failed")
    assert floor([failed, asked(2, A)], PLAIN, count).fresh == 1000


@pytest.mark.parametrize(
    ("rules", "tokens", "lost"),
    [
        (STEPS, 1023, 1023),  # under the minimum nothing is read
        (STEPS, 1024, 0),
        (STEPS, 1300, 20),  # 10 steps of 128
        (GPT56, 1023, 1023),
        (GPT56, 1300, 0),
        (DEEPSEEK, 1300, 0),
        (msgspec.structs.replace(DEEPSEEK, interval=64), 1300, 20),
        (msgspec.structs.replace(DEEPSEEK, fresh=1), 1300, 1),
        (msgspec.structs.replace(STEPS, fresh=1), 1280, 128),
        (CacheRules("marks", minimum=4096), 4000, 4000),
        (CacheRules("none"), 5000, 5000),
    ],
)
def test_what_a_provider_rounds_away_is_counted_apart(
    rules: CacheRules, tokens: int, lost: int
) -> None:
    assert rounded_away(tokens, rules) == lost


def test_the_step_counts_once_a_request() -> None:
    records = [asked(1, A), asked(2, A, B), asked(3, A, B, C)]
    # Of 1,000 tokens 1,000 are under the minimum; of 1,500 the last 92 lie behind a step of 128.
    assert floor(records, STEPS, count) == Floor(1700, 1000 + 92)


@pytest.mark.parametrize(
    ("reads", "count"),
    [
        ([], 0),
        ([0, 10, 20], 0),
        ([0, 20, 10], 1),
        ([0, 20, 10, 15, 12], 2),
        ([5, None, 4], 1),
        ([None, 3], 0),
    ],
)
def test_a_person_counts_what_reads_less_than_before(reads: list[int | None], count: int) -> None:
    row = Row(1, 1, 100, 0, 0, 0, 0, None, False, "s", None)
    rows = [msgspec.structs.replace(row, cache_read=read) for read in reads]
    assert drops(rows) == count
    assert (
        drops([msgspec.structs.replace(each, session=str(n)) for n, each in enumerate(rows)]) == 0
    )


def test_an_answer_is_not_new_where_a_provider_keeps_its_end() -> None:
    body = chat(
        [{"role": "user", "content": [A]}, {"role": "assistant", "content": [B]}],
    )
    records = [asked(1, A), record(2, body, 1500, 1500, **CHAT)]
    assert floor(records, DEEPSEEK, count).fresh == 1000
    assert floor(records, PLAIN, count).fresh == 1500
