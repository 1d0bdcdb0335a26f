"""Claude's cache: every rule with figures worked out by hand.

The model is Opus 5 unless a test says otherwise: a prefix is cached from 512 tokens on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest
from tests.lab.lab_requests import (
    CLEAR_AT,
    HOUR,
    INLINE,
    MARK,
    Json,
    add,
    assistant,
    claude,
    define,
    figures,
    result,
    system,
    text,
    tool,
    use,
    user,
)

from addendum.lab.anthropic_thinking import Seal, sign
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


async def test_without_a_mark_nothing_is_cached(lab: Lab) -> None:
    body = {"messages": [user(text("user", 900))]}
    assert figures(await claude(lab, body)) == (0, 0, 900)
    assert figures(await claude(lab, body)) == (0, 0, 900)


async def test_a_marked_prefix_is_written_and_then_read(lab: Lab) -> None:
    body = {
        "tools": [tool("a", 100)],
        "system": [text("system", 500, mark=MARK)],
        "messages": [user(text("user", 40))],
    }
    assert figures(await claude(lab, body)) == (0, 600, 40)
    assert figures(await claude(lab, body)) == (600, 0, 40)


@pytest.mark.parametrize(("size", "written"), [(511, 0), (512, 512)])
async def test_a_prefix_one_token_below_the_minimum_is_not_cached(
    lab: Lab, size: int, written: int
) -> None:
    body = {"messages": [user(text("user", size, mark=MARK), text("user", 20))]}
    first = await claude(lab, body)
    assert figures(first) == (0, written, 532 - written - (512 - size))
    assert figures(await claude(lab, body))[0] == written


@pytest.mark.parametrize(
    ("model", "minimum"),
    [("claude-opus-4-8", 1024), ("claude-opus-4-7", 2048), ("claude-haiku-4-5", 4096)],
)
async def test_the_minimum_is_the_models(lab: Lab, model: str, minimum: int) -> None:
    for size, written in ((minimum - 1, 0), (minimum, minimum)):
        body = {"messages": [user(text("user", size, mark=MARK))]}
        assert figures(await claude(lab, body, model=model))[1] == written


@pytest.mark.parametrize(("added", "read"), [(19, 600), (20, 0)])
async def test_a_mark_looks_back_over_20_positions_with_its_own(
    lab: Lab, added: int, read: int
) -> None:
    await claude(lab, {"messages": [user(text("user", 600, mark=MARK))]})
    more = [text("user", 10) for _ in range(added - 1)]
    body = {"messages": [user(text("user", 600), *more, text("user", 10, mark=MARK))]}
    assert figures(await claude(lab, body)) == (read, 600 + 10 * added - read, 0)


async def test_a_second_mark_on_the_previous_end_saves_what_is_out_of_reach(lab: Lab) -> None:
    await claude(lab, {"messages": [user(text("user", 600, mark=MARK))]})
    more = [text("user", 10) for _ in range(39)]
    body = {"messages": [user(text("user", 600, mark=MARK), *more, text("user", 10, mark=MARK))]}
    assert figures(await claude(lab, body)) == (600, 400, 0)


async def test_runs_of_calls_and_of_results_are_one_position_each(lab: Lab) -> None:
    await claude(lab, {"messages": [user(text("user", 600, mark=MARK))]})
    calls = [use(f"c{n}") for n in range(30)]
    results = [result(f"c{n}") for n in range(30)]
    marked = {**results[-1], "cache_control": MARK}
    body = {
        "tools": [],
        "messages": [user(text("user", 600)), assistant(*calls), user(*results[:-1], marked)],
    }
    read, written, uncached = figures(await claude(lab, body))
    assert (read, uncached) == (600, 0)
    assert written > 0


@pytest.mark.parametrize(("added", "read"), [(19, 800), (20, 0)])
async def test_each_block_of_a_run_of_additions_is_a_position(
    lab: Lab, added: int, read: int
) -> None:
    first = {
        "tools": [tool("a", 50), tool("later", defer_loading=True)],
        "messages": [user(text("user", 550, mark=MARK))],
    }
    assert figures(await claude(lab, first, betas=INLINE))[1] == 800  # 200 hidden, 50, 550
    blocks = [define(tool(f"t{n}")) for n in range(added)]
    blocks[-1]["cache_control"] = MARK
    second = {**first, "messages": [user(text("user", 550)), system(*blocks)]}
    assert figures(await claude(lab, second, betas=INLINE))[0] == read


async def test_a_mark_that_moved_to_where_nothing_was_written_finds_nothing(lab: Lab) -> None:
    both = [text("user", 600), text("user", 600, "y")]
    await claude(lab, {"messages": [user(both[0], {**both[1], "cache_control": MARK})]})
    body = {"messages": [user({**both[0], "cache_control": MARK}, both[1])]}
    assert figures(await claude(lab, body)) == (0, 600, 600)


async def test_only_what_is_equal_to_the_last_byte_is_read(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {
            "system": [text("system", 600, mark=MARK)],
            "messages": [user(text("user", 100, letter, mark=MARK))],
        }

    assert figures(await claude(lab, body("x"))) == (0, 700, 0)
    assert figures(await claude(lab, body("y"))) == (600, 100, 0)


async def test_a_lifetime_is_renewed_by_a_hit_and_then_passes(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    await claude(lab, body)
    lab.clock.advance(299)
    assert figures(await claude(lab, body)) == (600, 0, 0)
    lab.clock.advance(299)
    assert figures(await claude(lab, body)) == (600, 0, 0)
    lab.clock.advance(300)
    assert figures(await claude(lab, body)) == (0, 600, 0)


async def test_every_mark_of_a_request_renews_what_is_stored_there(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {
            "system": [text("system", 600, mark=MARK)],
            "messages": [user(text("user", 100, letter, mark=MARK))],
        }

    await claude(lab, body("x"))
    lab.clock.advance(200)
    assert figures(await claude(lab, body("x"))) == (700, 0, 0)  # found at the last mark
    lab.clock.advance(200)
    assert figures(await claude(lab, body("y"))) == (600, 100, 0)


async def test_a_hit_between_marks_is_renewed(lab: Lab) -> None:
    def body(*more: Json) -> Json:
        return {"messages": [user(text("user", 600, mark=None if more else MARK), *more)]}

    await claude(lab, body())
    lab.clock.advance(200)
    assert figures(await claude(lab, body(text("user", 50, mark=MARK)))) == (600, 50, 0)
    lab.clock.advance(200)
    assert figures(await claude(lab, body(text("user", 50, "y", mark=MARK)))) == (600, 50, 0)


async def test_a_mark_in_front_of_what_was_read_writes_nothing(lab: Lab) -> None:
    def body(letter: str, mark: Json | None) -> Json:
        return {
            "system": [text("system", 600, mark=mark)],
            "messages": [user(text("user", 100, letter, mark=MARK))],
        }

    await claude(lab, body("x", None))
    assert figures(await claude(lab, body("x", MARK))) == (700, 0, 0)
    assert figures(await claude(lab, body("y", MARK))) == (0, 700, 0)


async def test_an_hour_is_an_hour(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=HOUR))]}
    await claude(lab, body)
    lab.clock.advance(3599)
    assert figures(await claude(lab, body)) == (600, 0, 0)
    lab.clock.advance(3600)
    assert figures(await claude(lab, body)) == (0, 600, 0)


async def test_a_lifetime_counts_from_the_start_of_the_request(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    lab.stall_next("anthropic", after_events=0)
    async with anyio.create_task_group() as group:
        group.start_soon(claude, lab, body)
        await lab.until_stalled()
        lab.clock.advance(200)
        lab.release()
    lab.clock.advance(100)
    assert figures(await claude(lab, body)) == (0, 600, 0)


async def test_parallel_first_requests_all_miss(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    found: list[httpx2.Response] = []

    async def ask() -> None:
        found.append(await claude(lab, body))

    lab.stall_next("anthropic", after_events=0, times=2)
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        await lab.until_stalled(2)
        lab.release()
    assert [figures(each) for each in found] == [(0, 600, 0), (0, 600, 0)]
    assert figures(await claude(lab, body)) == (600, 0, 0)


async def test_what_was_written_can_be_read_once_the_answer_has_begun(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    lab.stall_next("anthropic", after_events=1)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: claude(lab, body, stream=True))
        await lab.until_stalled()
        assert figures(await claude(lab, body)) == (600, 0, 0)
        lab.release()


async def test_two_lifetimes_are_written_apart(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {
            "tools": [tool("a", 520, cache_control=HOUR)],
            "system": [text("system", 80, letter, mark=HOUR)],
            "messages": [user(text("user", 30, mark=MARK), text("user", 8))],
        }

    first = (await claude(lab, body("x"))).json()["usage"]
    assert first["cache_creation"] == {
        "ephemeral_5m_input_tokens": 30,
        "ephemeral_1h_input_tokens": 600,
    }
    assert figures(await claude(lab, body("y"))) == (520, 110, 8)
    again = (await claude(lab, body("z"))).json()["usage"]
    assert again["cache_creation"] == {
        "ephemeral_5m_input_tokens": 30,
        "ephemeral_1h_input_tokens": 80,
    }
    lab.clock.advance(600)
    assert figures(await claude(lab, body("x"))) == (600, 30, 8)


async def test_the_first_deferred_tool_puts_hidden_text_in_front(lab: Lab) -> None:
    def body(*late: Json) -> Json:
        return {
            "tools": [tool("a", 100, cache_control=MARK), *late],
            "system": [text("system", 500, mark=MARK)],
            "messages": [user(text("user", 10))],
        }

    assert figures(await claude(lab, body())) == (0, 600, 10)
    late = tool("b", defer_loading=True)
    assert figures(await claude(lab, body(late))) == (0, 800, 10)
    assert figures(await claude(lab, body(late))) == (800, 0, 10)


async def test_the_first_definition_by_value_puts_hidden_text_in_front(lab: Lab) -> None:
    body = {
        "tools": [tool("a", 600, cache_control=MARK)],
        "messages": [user(text("user", 10))],
    }
    assert figures(await claude(lab, body, betas=INLINE)) == (0, 600, 10)
    body["messages"] = [user(text("user", 10)), system(define(tool("b")))]
    assert figures(await claude(lab, body, betas=INLINE))[:2] == (0, 800)


async def test_a_placeholder_from_the_first_request_on_avoids_it(lab: Lab) -> None:
    body: Json = {
        "tools": [tool("a", 100, cache_control=MARK), tool("placeholder", defer_loading=True)],
        "system": [text("system", 500, mark=MARK)],
        "messages": [user(text("user", 10, mark=MARK))],
    }
    assert figures(await claude(lab, body, betas=INLINE)) == (0, 810, 0)
    body["messages"] = [user(text("user", 10, mark=MARK)), system(define(tool("b")))]
    assert figures(await claude(lab, body, betas=INLINE))[0] == 810


async def test_deferred_entries_are_outside_the_prefix(lab: Lab) -> None:
    body: Json = {
        "tools": [tool("a", 400), tool("b", defer_loading=True)],
        "messages": [user(text("user", 10, mark=MARK))],
    }
    assert figures(await claude(lab, body, betas=INLINE)) == (0, 610, 0)
    body["tools"] = [tool("c", 70, defer_loading=True), *body["tools"]]
    assert figures(await claude(lab, body, betas=INLINE)) == (610, 0, 0)


async def test_an_addition_by_reference_is_read_at_its_block(lab: Lab) -> None:
    late = tool("b", 50, defer_loading=True)
    body: Json = {
        "tools": [tool("a", 400), late],
        "messages": [user(text("user", 10, mark=MARK)), system(add("b"))],
    }
    block = 'system{"tool":{"type":"tool_reference","name":"b"},"type":"tool_addition"}'
    definition = 4 * 50 - len("tools")  # the definition is read without the word for its place
    at_block = -(-(len(block) + definition) // 4)
    assert figures(await claude(lab, body, betas=INLINE)) == (0, 610, at_block)
    # Told a second time it is not read again.
    again = -(-len(block) // 4)
    body["messages"] = [*body["messages"], assistant("ok"), user("more"), system(add("b"))]
    rest = sum(
        -(-len(each) // 4)
        for each in ('assistant{"text":"ok","type":"text"}', 'user{"text":"more","type":"text"}')
    )
    assert figures(await claude(lab, body, betas=INLINE)) == (610, 0, at_block + rest + again)


async def test_a_reference_to_what_was_defined_by_value_reads_nothing_twice(lab: Lab) -> None:
    body: Json = {
        "tools": [tool("a", 400)],
        "messages": [user(text("user", 10)), system(define(tool("c"), cache_control=MARK))],
    }
    read = figures(await claude(lab, body, betas=INLINE))[1]
    body["messages"] = [*body["messages"], assistant("ok"), user("more"), system(add("c"))]
    rest = sum(
        -(-len(each) // 4)
        for each in (
            'assistant{"text":"ok","type":"text"}',
            'user{"text":"more","type":"text"}',
            'system{"tool":{"type":"tool_reference","name":"c"},"type":"tool_addition"}',
        )
    )
    assert figures(await claude(lab, body, betas=INLINE)) == (read, 0, rest)


async def test_a_changed_definition_of_a_surfaced_tool_breaks_at_its_block(lab: Lab) -> None:
    def body(size: int) -> Json:
        return {
            "tools": [tool("a", 400), tool("b", size, defer_loading=True)],
            "messages": [
                user(text("user", 10, mark=MARK)),
                system(add("b", cache_control=MARK)),
            ],
        }

    await claude(lab, body(50), betas=INLINE)
    assert figures(await claude(lab, body(50), betas=INLINE))[1] == 0
    assert figures(await claude(lab, body(51), betas=INLINE))[0] == 610


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({"tool_choice": {"type": "none"}}, 600),
        ({"tool_choice": {"type": "auto"}}, 650),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, 600),
        ({"thinking": {"type": "disabled"}}, 600),
        ({"output_config": {"effort": "low"}}, 600),
        ({"output_config": {"effort": "high"}}, 650),
        ({"model": "claude-fable-5"}, 0),
        ({"tools": [tool("a", 99), tool("b", 1)]}, 0),
        ({"metadata": {"user_id": "u"}, "stop_sequences": ["stop"]}, 650),
    ],
)
async def test_settings_lose_what_the_table_says(lab: Lab, change: Json, read: int) -> None:
    body = {
        "tools": [tool("a", 100)],
        "system": [text("system", 500, mark=MARK)],
        "messages": [user(text("user", 50, mark=MARK))],
    }
    assert figures(await claude(lab, body)) == (0, 650, 0)
    assert figures(await claude(lab, body, **change))[0] == read


async def test_betas_and_accounts_share_nothing(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    await claude(lab, body, betas=f"{INLINE},{CLEAR_AT}")
    assert figures(await claude(lab, body, betas=f"{CLEAR_AT}, {INLINE}"))[0] == 600
    assert figures(await claude(lab, body, betas=INLINE))[0] == 0
    assert figures(await claude(lab, body, betas=f"{CLEAR_AT}, {INLINE}", key="other"))[0] == 0


async def test_images_present_or_absent_lose_the_messages(lab: Lab) -> None:
    body: Json = {
        "system": [text("system", 600, mark=MARK)],
        "messages": [user(text("user", 50, mark=MARK))],
    }
    await claude(lab, body)
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    body["messages"] = [user(text("user", 50, mark=MARK), image)]
    assert figures(await claude(lab, body))[0] == 600


async def test_a_turn_scoped_message_is_read_only_until_the_next_user_message(lab: Lab) -> None:
    tail = system("now", clear_at="next_user_message")
    tail_tokens = -(-len('system{"text":"now","type":"text"}') // 4)
    first = {"messages": [user(text("user", 600, mark=MARK)), tail]}
    assert figures(await claude(lab, first, betas=CLEAR_AT)) == (0, 600, tail_tokens)
    more = [assistant(text("assistant", 20)), user(text("user", 30, mark=MARK))]
    second = {"messages": [user(text("user", 600)), tail, *more]}
    assert figures(await claude(lab, second, betas=CLEAR_AT)) == (600, 50, 0)
    # Cleared, it is not part of the key either: the same prefix without it.
    without = {"messages": [user(text("user", 600)), *more]}
    assert figures(await claude(lab, without, betas=CLEAR_AT)) == (650, 0, 0)


@pytest.mark.parametrize(("model", "kept"), [("claude-sonnet-4-5", 0), ("claude-sonnet-4-6", 40)])
async def test_old_thinking_is_stripped_where_the_model_does_that(
    lab: Lab, model: str, kept: int
) -> None:
    def thinking(tokens: int) -> Json:
        frame = len('assistant{"thinking":"","type":"thinking"}')
        thought = "t" * (4 * tokens - frame)
        seal = Seal(model, thought, False, "", "")
        return {"type": "thinking", "thinking": thought, "signature": sign(seal)}

    asked = user(text("user", 1100, mark=MARK))
    turn = [
        assistant(thinking(40), use("c1")),
        user(result("c1", cache_control=MARK)),
    ]
    body: Json = {"messages": [asked, *turn]}
    read_in_turn, written, _ = figures(await claude(lab, body, model=model))
    assert (read_in_turn, written) == (0, 1100 + 40 + tokens_of_round())
    # A user text arrives: the thinking goes where the model strips it, and with it the prefix.
    rest = [assistant("done"), user({**text("user", 20), "cache_control": MARK})]
    found = figures(await claude(lab, {"messages": [asked, *turn, *rest]}, model=model))
    assert found[0] == (1100 + kept + tokens_of_round() if kept else 1100)


def tokens_of_round() -> int:
    call = 'assistant{"id":"c1","input":{},"name":"a","type":"tool_use"}'
    answer = 'user{"content":"ok","tool_use_id":"c1","type":"tool_result"}'
    return -(-len(call) // 4) + -(-len(answer) // 4)


async def test_the_automatic_mark_stands_on_the_last_block_that_may_carry_it(lab: Lab) -> None:
    tail = system("now", clear_at="next_user_message")
    body = {"cache_control": MARK, "messages": [user(text("user", 600)), tail]}
    assert figures(await claude(lab, body, betas=CLEAR_AT))[1] == 600
    assert figures(await claude(lab, body, betas=CLEAR_AT))[0] == 600


async def test_a_flag_that_says_no_is_the_same_as_none(lab: Lab) -> None:
    body: Json = {"tools": [tool("a", 100)], "messages": [user(text("user", 600, mark=MARK))]}
    assert figures(await claude(lab, body)) == (0, 700, 0)
    body["tools"] = [tool("a", 100, defer_loading=False)]
    assert figures(await claude(lab, body)) == (700, 0, 0)


async def test_an_automatic_mark_beside_an_equal_one_changes_nothing(lab: Lab) -> None:
    body = {"cache_control": MARK, "messages": [user(text("user", 600, mark=MARK))]}
    assert figures(await claude(lab, body)) == (0, 600, 0)


async def test_neighbouring_user_messages_and_plain_strings_are_the_same_prefix(lab: Lab) -> None:
    long = text("user", 600)
    await claude(lab, {"messages": [user(long, text("user", 50, mark=MARK))]})
    apart = [{"role": "user", "content": long["text"]}, user(text("user", 50, mark=MARK))]
    assert figures(await claude(lab, {"messages": apart})) == (650, 0, 0)


async def test_key_order_counts_inside_arguments_only(lab: Lab) -> None:
    def body(call: Json) -> Json:
        marked = result("c1", cache_control=MARK)
        return {"messages": [user(text("user", 600)), assistant(call), user(marked)]}

    call = {"type": "tool_use", "id": "c1", "name": "a", "input": {"p": 1, "q": 2}}
    written = figures(await claude(lab, body(call)))[1]
    turned = {"name": "a", "input": {"p": 1, "q": 2}, "id": "c1", "type": "tool_use"}
    assert figures(await claude(lab, body(turned)))[0] == written
    inside = {**call, "input": {"q": 2, "p": 1}}
    assert figures(await claude(lab, body(inside)))[0] == 0


async def test_a_request_that_only_warms_the_cache(lab: Lab) -> None:
    body = {"system": [text("system", 600, mark=MARK)], "messages": [user("hi")]}
    warmed = await claude(lab, body, max_tokens=0)
    assert warmed.json()["content"] == []
    assert warmed.json()["stop_reason"] == "max_tokens"
    assert figures(await claude(lab, body))[0] == 600


async def test_a_refused_request_stores_nothing(lab: Lab) -> None:
    body = {"messages": [user(text("user", 600, mark=MARK))]}
    lab.fail_next("anthropic", status=529)
    assert (await claude(lab, body)).status_code == 529
    assert figures(await claude(lab, body)) == (0, 600, 0)
