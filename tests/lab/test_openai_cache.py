"""OpenAI's two caches: steps before GPT-5.6, exact boundaries from then on; figures by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from tests.lab.lab_requests import Json, chat

from addendum.lab.exchange import Switches
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio

EXACT = "gpt-6.1-sol"
BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


def message(role: str, tokens: int, letter: str = "x", mark: bool = False, **more: Any) -> Json:
    """A message that counts `tokens` tokens: its head, and one text part."""
    head = -(-(len(role) + len(_json(more))) // 4)
    frame = len(role) + len('{"text":"","type":"text"}')
    part: Json = {"type": "text", "text": letter * (4 * (tokens - head) - frame)}
    return {"role": role, **more, "content": [{**part, **BREAK} if mark else part]}


def _json(value: Json) -> str:
    return "{" + ",".join(f'"{k}":"{v}"' for k, v in value.items()) + "}"


def function(tokens: int) -> Json:
    frame = len(
        'tools{"function":{"name":"a","description":"","parameters":{"type":"object"}},'
        '"type":"function"}'
    )
    description = "d" * (4 * tokens - frame)
    parameters = {"type": "object"}
    return {
        "type": "function",
        "function": {"name": "a", "description": description, "parameters": parameters},
    }


def figures(response: httpx2.Response) -> tuple[int, int]:
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def exact(response: httpx2.Response) -> tuple[int, int, int]:
    """Cached, written, and the rest."""
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    details = usage["prompt_tokens_details"]
    read, written = details["cached_tokens"], details["cache_write_tokens"]
    return read, written, usage["prompt_tokens"] - read - written


# --- before GPT-5.6 ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "cached"), [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (1300, 1280)]
)
async def test_cached_tokens_are_rounded_down_to_steps_of_128(
    lab: Lab, shared: int, cached: int
) -> None:
    for letter in "ab":
        # The second message differs from its first token on: its role's word is in it.
        role = "user" if letter == "a" else "assistant"
        body = {"messages": [message("system", shared), message(role, 100, letter)]}
        response = await chat(lab, body)
    assert figures(response) == (cached, shared + 100)


async def test_tools_stand_in_front(lab: Lab) -> None:
    def body(size: int) -> Json:
        return {"tools": [function(size)], "messages": [message("system", 1500)]}

    assert figures(await chat(lab, body(600))) == (0, 2100)
    assert figures(await chat(lab, body(600))) == (2048, 2100)
    assert figures(await chat(lab, body(601)))[0] == 0


async def test_tokens_are_compared_inside_a_message(lab: Lab) -> None:
    first = {"role": "user", "content": "x" * 8000}
    second = {"role": "user", "content": "x" * 6000 + "y" * 2000}
    await chat(lab, {"messages": [first]})
    front = 4 * 2 + len('user{"text":"')  # the head's two tokens, then the frame
    assert figures(await chat(lab, {"messages": [second]}))[0] == (front + 6000) // 4 // 128 * 128


@pytest.mark.parametrize(
    ("change", "cached"),
    [
        ({}, 2048),
        ({"prompt_cache_key": "k"}, 0),
        ({"model": "gpt-4o"}, 0),
        ({"parallel_tool_calls": False}, 0),
        ({"response_format": {"type": "json_object"}}, 0),
        ({"tool_choice": "none"}, 2048),
        ({"temperature": 0}, 2048),
    ],
)
async def test_what_has_to_be_equal_besides_the_tokens(lab: Lab, change: Json, cached: int) -> None:
    body = {"tools": [function(600)], "messages": [message("system", 1500)]}
    await chat(lab, body)
    assert figures(await chat(lab, body, **change))[0] == cached


async def test_accounts_share_nothing(lab: Lab) -> None:
    body = {"messages": [message("system", 1500)]}
    await chat(lab, body)
    assert figures(await chat(lab, body, key="other"))[0] == 0


async def test_a_prefix_lives_five_minutes_since_its_last_use(lab: Lab) -> None:
    body = {"messages": [message("system", 1280)]}
    await chat(lab, body)
    for _ in range(2):
        lab.clock.advance(299)
        assert figures(await chat(lab, body))[0] == 1280
    lab.clock.advance(300)
    assert figures(await chat(lab, body))[0] == 0


async def test_parallel_first_requests_all_miss(lab: Lab) -> None:
    body = {"messages": [message("system", 1280)]}
    found: list[int] = []

    async def ask() -> None:
        found.append(figures(await chat(lab, body))[0])

    lab.stall_next("openai-chat", after_events=0, times=2)
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        await lab.until_stalled(2)
        lab.release()
    assert found == [0, 0]
    assert figures(await chat(lab, body))[0] == 1280


@pytest.mark.parametrize(("size", "cached"), [(2047, 0), (4095, 2048), (4096, 4096)])
async def test_gpt_5_5_has_longer_steps(lab: Lab, size: int, cached: int) -> None:
    body = {"messages": [message("system", size)], "model": "gpt-5.5"}
    await chat(lab, body)
    lab.clock.advance(1799)
    assert figures(await chat(lab, body))[0] == cached


async def test_a_compatible_server_reports_cached_tokens_by_switch(lab: Lab) -> None:
    lab.switches = Switches(compatible_cached_tokens=True)
    body = {"messages": [message("system", 100)]}
    await chat(lab, body, provider="compatible")
    assert figures(await chat(lab, body, provider="compatible")) == (96, 100)


# --- from GPT-5.6 on --------------------------------------------------------------------------


async def test_the_latest_eligible_end_is_written_and_found_exactly(lab: Lab) -> None:
    first: Json = {"model": EXACT, "messages": [message("developer", 1000), message("user", 77)]}
    assert exact(await chat(lab, first)) == (0, 1077, 0)
    assert exact(await chat(lab, first)) == (1077, 0, 0)
    more = [message("assistant", 30), message("user", 40)]
    second = {**first, "messages": [*first["messages"], *more]}
    assert exact(await chat(lab, second)) == (1077, 70, 0)


@pytest.mark.parametrize(("size", "written"), [(1023, 0), (1024, 1024)])
async def test_a_prefix_one_token_below_the_minimum_is_not_cached(
    lab: Lab, size: int, written: int
) -> None:
    body = {"model": EXACT, "messages": [message("user", size)]}
    assert exact(await chat(lab, body)) == (0, written, size - written)
    assert exact(await chat(lab, body)) == (written, 0, size - written)


async def test_a_shared_beginning_without_a_boundary_is_not_found(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {
            "model": EXACT,
            "messages": [
                message("user", 2000),
                message("assistant", 50, letter),
                message("user", 10),
            ],
        }

    assert exact(await chat(lab, body("x"))) == (0, 2060, 0)
    # 2,000 tokens are shared and end at an eligible message, but only 2,060 were written.
    assert exact(await chat(lab, body("y"))) == (0, 2060, 0)


@pytest.mark.parametrize(("added", "read"), [(20, 1100), (21, 0)])
async def test_twenty_earlier_ends_are_looked_up(lab: Lab, added: int, read: int) -> None:
    first = [message("user", 1100)]
    assert exact(await chat(lab, {"model": EXACT, "messages": first})) == (0, 1100, 0)
    more: list[Json] = []
    for _ in range(added):
        more += [message("assistant", 12), message("user", 11)]
    body = {"model": EXACT, "messages": [*first, *more]}
    assert exact(await chat(lab, body)) == (read, 1100 + 23 * added - read, 0)


async def test_the_end_of_the_initial_developer_messages_is_always_looked_up(lab: Lab) -> None:
    head = [message("developer", 1500)]
    assert exact(await chat(lab, {"model": EXACT, "messages": head})) == (0, 1500, 0)
    more: list[Json] = []
    for _ in range(30):
        more += [message("user", 11), message("assistant", 12)]
    body = {"model": EXACT, "messages": [*head, *more, message("user", 11)]}
    assert exact(await chat(lab, body))[0] == 1500


async def test_a_developer_message_in_mid_conversation_is_no_boundary(lab: Lab) -> None:
    messages = [message("user", 1100), message("assistant", 20), message("user", 30)]
    late = [*messages, message("developer", 50)]
    assert exact(await chat(lab, {"model": EXACT, "messages": late})) == (0, 1150, 50)


async def test_of_a_run_of_tool_messages_the_last_is_a_boundary(lab: Lab) -> None:
    def call(call_id: str) -> Json:
        return {"id": call_id, "type": "function", "function": {"name": "a", "arguments": "{}"}}

    messages = [
        message("user", 1100),
        {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2")]},
        message("tool", 50, tool_call_id="c1"),
        message("tool", 60, tool_call_id="c2"),
    ]
    body: Json = {"model": EXACT, "messages": messages}
    read, written, rest = exact(await chat(lab, body))
    assert (read, rest) == (0, 0)
    # Another second result: the first one's end was never a boundary.
    body["messages"] = [*messages[:3], message("tool", 60, "y", tool_call_id="c2")]
    assert exact(await chat(lab, body)) == (0, written, 0)


async def test_explicit_breakpoints_are_written_beside_the_implicit_one(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {
            "model": EXACT,
            "messages": [message("developer", 1200, mark=True), message("user", 100, letter)],
        }

    assert exact(await chat(lab, body("x"))) == (0, 1300, 0)
    assert exact(await chat(lab, body("y"))) == (1200, 100, 0)


async def test_at_most_four_prefixes_are_written(lab: Lab) -> None:
    """Three explicit ones beside the implicit one, the latest."""
    head = [message("developer", 1100, mark=True)]
    users = [message("user", 20, mark=True) for _ in range(3)]
    body = {"model": EXACT, "messages": [*head, *users, message("user", 30)]}
    assert exact(await chat(lab, body)) == (0, 1190, 0)
    other = {"model": EXACT, "messages": [*head, message("user", 20, "y")]}
    assert (
        exact(await chat(lab, other))[0] == 0
    )  # the head's breakpoint was the fourth from the end
    second = {"model": EXACT, "messages": [*head, users[0], message("user", 20, "y")]}
    assert exact(await chat(lab, second))[0] == 1120


async def test_explicit_breakpoints_are_looked_up_from_both_ends(lab: Lab) -> None:
    """The first two and the latest fifty: of 55, the fifth is out of reach."""

    def body(count: int) -> Json:
        users = [message("user", 300, mark=True) for _ in range(count)]
        return {
            "model": EXACT,
            "messages": users,
            "prompt_cache_options": {"mode": "explicit"},
        }

    assert exact(await chat(lab, body(5))) == (0, 1500, 0)  # written at the fourth and fifth
    assert exact(await chat(lab, body(54)))[0] == 1500
    lab.clock.advance(1800)
    assert exact(await chat(lab, body(5))) == (0, 1500, 0)
    assert exact(await chat(lab, body(55)))[0] == 0


async def test_the_first_two_explicit_breakpoints_stay_in_reach(lab: Lab) -> None:
    head = message("developer", 1500, mark=True)
    explicit = {"model": EXACT, "prompt_cache_options": {"mode": "explicit"}}
    assert exact(await chat(lab, {**explicit, "messages": [head]})) == (0, 1500, 0)
    users = [message("user", 20, mark=True) for _ in range(60)]
    assert exact(await chat(lab, {**explicit, "messages": [head, *users]}))[0] == 1500


async def test_every_explicit_breakpoint_renews_what_is_stored_there(lab: Lab) -> None:
    def body(letter: str) -> Json:
        head = message("developer", 1200, mark=True)
        return {"model": EXACT, "messages": [head, message("user", 100, letter)]}

    await chat(lab, body("x"))
    lab.clock.advance(1000)
    assert exact(await chat(lab, body("x"))) == (1300, 0, 0)
    lab.clock.advance(1000)
    assert exact(await chat(lab, body("y"))) == (1200, 100, 0)


async def test_a_run_of_tool_messages_is_one_end(lab: Lab) -> None:
    first = [message("user", 1100)]
    await chat(lab, {"model": EXACT, "messages": first})
    rounds: list[Json] = []
    for n in range(20):
        ids = (f"c{n}a", f"c{n}b")
        calls = [
            {"id": each, "type": "function", "function": {"name": "a", "arguments": "{}"}}
            for each in ids
        ]
        rounds.append({"role": "assistant", "content": None, "tool_calls": calls})
        rounds += [message("tool", 30, tool_call_id=each) for each in ids]
    assert exact(await chat(lab, {"model": EXACT, "messages": [*first, *rounds]}))[0] == 1100


async def test_explicit_mode_without_a_breakpoint_caches_nothing(lab: Lab) -> None:
    options = {"prompt_cache_options": {"mode": "explicit"}}
    body = {"model": EXACT, "messages": [message("user", 1500)], **options}
    assert exact(await chat(lab, body)) == (0, 0, 1500)
    assert exact(await chat(lab, body)) == (0, 0, 1500)


async def test_explicit_mode_does_not_find_implicit_entries(lab: Lab) -> None:
    implicit = {"model": EXACT, "messages": [message("user", 1500)]}
    assert exact(await chat(lab, implicit)) == (0, 1500, 0)
    explicit = {
        "model": EXACT,
        "messages": [message("user", 1500, mark=True)],
        "prompt_cache_options": {"mode": "explicit"},
    }
    assert exact(await chat(lab, explicit)) == (0, 1500, 0)
    assert exact(await chat(lab, explicit)) == (1500, 0, 0)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({}, 1500),
        ({"prompt_cache_key": "k"}, 0),
        ({"reasoning_effort": "low"}, 0),
        ({"verbosity": "low"}, 0),
        ({"model": "gpt-6.2-sol"}, 0),
        ({"parallel_tool_calls": False}, 0),
        ({"response_format": {"type": "json_object"}}, 0),
        ({"tool_choice": "none"}, 1500),
        ({"tools": [function(101)]}, 0),
    ],
)
async def test_what_an_exact_prefix_depends_on(lab: Lab, change: Json, read: int) -> None:
    body = {"model": EXACT, "tools": [function(100)], "messages": [message("user", 1400)]}
    await chat(lab, body)
    assert exact(await chat(lab, {**body, **change}))[0] == read


async def test_an_exact_prefix_lives_half_an_hour_since_its_last_use(lab: Lab) -> None:
    body = {"model": EXACT, "messages": [message("user", 1500)]}
    await chat(lab, body)
    for _ in range(2):
        lab.clock.advance(1799)
        assert exact(await chat(lab, body))[0] == 1500
    lab.clock.advance(1800)
    assert exact(await chat(lab, body)) == (0, 1500, 0)


async def test_extending_the_last_message_loses_its_boundary(lab: Lab) -> None:
    one = message("user", 1500)
    await chat(lab, {"model": EXACT, "messages": [one]})
    longer = {"role": "user", "content": [*one["content"], {"type": "text", "text": "more"}]}
    assert exact(await chat(lab, {"model": EXACT, "messages": [longer]}))[0] == 0
