"""DeepSeek: what its Anthropic surface refuses, and a cache of whole units, by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest
from tests.lab.lab_requests import (
    INLINE,
    MARK,
    Json,
    add,
    assistant,
    deepseek,
    define,
    figures,
    remove,
    result,
    system,
    text,
    tool,
    use,
    user,
)

from addendum.lab.exchange import Switches
from addendum.lab.script import Entry, Script, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio

SCRIPT = Script((ScriptStep("q1", (Entry("a1", thinking="hm"),)), ScriptStep("q2", (Entry("a2"),))))


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


LATE = [tool("a"), tool("b", defer_loading=True)]
HI = [user("hi")]


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({"messages": [*HI, system(remove("a"))], "tools": LATE}, "'tool_removal'"),
        ({"messages": [*HI, system(define(tool("c")))], "tools": LATE}, "'tool_definition'"),
        ({"messages": [*HI, system("x", clear_at="next_user_message")]}, "clear_at: Extra"),
        ({"messages": [user(add("b"))], "tools": LATE}, "only be in `system` messages"),
        ({"messages": [user({"type": "image", "source": {}})]}, "'image'"),
        ({"messages": HI, "tools": [tool("a", type="custom")]}, "tools.0.type: Extra inputs"),
        ({"messages": HI, "tools": [tool("a", strict=True)]}, "tools.0.strict: Extra inputs"),
        (
            {"messages": HI, "tools": LATE, "tool_choice": {"type": "tool", "name": "a"}},
            "tool_choice: Input tag 'tool'",
        ),
        ({"messages": [*HI, system(add("z"))], "tools": LATE}, "tool reference 'z'"),
        ({"messages": [*HI, system("x"), user("y")]}, "must precede"),
        ({"messages": HI, "top_k": 1}, "top_k: Extra inputs"),
        ({"messages": HI, "model": "deepseek-chat"}, "deepseek-flash"),
        ({"messages": [user("hi"), assistant(use("c1")), user("x")]}, "tool_result"),
        (
            {"messages": [user("hi"), assistant({"type": "redacted_thinking", "data": "x"})]},
            "'redacted_thinking'",
        ),
    ],
)
async def test_refuses(lab: Lab, body: Json, fragment: str) -> None:
    response = await deepseek(lab, body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert fragment in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [*HI, system(add("b")), assistant("x"), user("y")], "tools": LATE},
        {"messages": [*HI, system("text"), assistant("x"), user("y")]},
        {"messages": [user(*[{"type": "text", "text": "x", "cache_control": MARK}] * 9)]},
        {"messages": HI, "thinking": {"type": "enabled"}},
        {
            "messages": [
                user("q"),
                assistant({"type": "thinking", "thinking": "x", "signature": "any"}, use("c1")),
                user(result("c1")),
            ]
        },
    ],
)
async def test_takes(lab: Lab, body: Json) -> None:
    response = await deepseek(lab, body)
    assert response.status_code == 200, response.text


async def test_the_beta_header_is_ignored_and_a_key_is_required(lab: Lab) -> None:
    url = lab.base_url("deepseek") + "/v1/messages"
    body = {"model": "deepseek-flash", "max_tokens": 9, "messages": HI}
    async with httpx2.AsyncClient() as client:
        refused = await client.post(url, json=body, headers={"anthropic-beta": INLINE})
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        headers = {"authorization": "Bearer k", "anthropic-beta": "no-such-beta"}
        assert (await client.post(url, json=body, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({"messages": [*HI, system(add("b"))], "tools": [tool("a"), tool("b")]}, "tool_addition"),
        ({"messages": [*HI, system("x")]}, "unknown variant `system`"),
        ({"messages": HI, "tools": LATE}, "tools.1.defer_loading: Extra inputs"),
    ],
)
async def test_the_other_model_takes_no_tool_changes(lab: Lab, body: Json, fragment: str) -> None:
    response = await deepseek(lab, body, model="deepseek-v4-pro")
    assert response.status_code == 400
    assert fragment in response.json()["error"]["message"]
    assert (await deepseek(lab, {"messages": HI}, model="deepseek-v4-pro")).status_code == 200


async def test_an_endpoint_that_refuses_all_tool_changes(lab: Lab) -> None:
    lab.switches = Switches(deepseek_tool_changes=False)
    response = await deepseek(lab, {"messages": [*HI, system(add("b"))], "tools": LATE})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        "messages.1.content.0: tool_addition blocks can only be in `system` messages"
    )


async def test_a_request_is_a_unit_at_the_end_of_its_input(lab: Lab) -> None:
    body: Json = {"system": [text("system", 300)], "messages": [user(text("user", 100))]}
    assert figures(await deepseek(lab, body)) == (0, 0, 400)
    assert figures(await deepseek(lab, body)) == (400, 0, 0)
    body["messages"].append(user(text("user", 50)))
    assert figures(await deepseek(lab, body)) == (400, 0, 50)


async def test_the_output_is_part_of_a_unit(lab: Lab) -> None:
    lab.script = SCRIPT
    body: Json = {"system": [text("system", 300)], "messages": [user("q1")]}
    first = await deepseek(lab, body)
    input_tokens = 300 + -(-len('user{"text":"q1","type":"text"}') // 4)
    assert figures(first) == (0, 0, input_tokens)
    output = first.json()["usage"]["output_tokens"]
    assert output == -(-len('assistant{"thinking":"hm","type":"thinking"}') // 4) + -(
        -len('assistant{"text":"a1","type":"text"}') // 4
    )
    body["messages"] += [assistant(*first.json()["content"]), user("q2")]
    assert figures(await deepseek(lab, body))[0] == input_tokens + output
    # Without the thinking the output is another one: only the input's unit is left.
    lab.clock.set(4000.0)
    await deepseek(lab, {**body, "messages": [user("q1")]})
    stripped = [user("q1"), assistant("a1"), user("q2")]
    assert figures(await deepseek(lab, {**body, "messages": stripped}))[0] == input_tokens


async def test_thinking_can_be_switched_off(lab: Lab) -> None:
    lab.script = SCRIPT
    response = await deepseek(lab, {"messages": [user("q1")]}, thinking={"type": "disabled"})
    assert [block["type"] for block in response.json()["content"]] == ["text"]


async def test_a_shared_beginning_is_no_hit_until_it_was_seen_twice(lab: Lab) -> None:
    """A+B, then A+C misses, but A is now a unit: A+D reads it."""

    def body(letter: str) -> Json:
        return {
            "system": [text("system", 500)],
            "messages": [user(text("user", 100, letter))],
        }

    frame = len('user{"text":"') // 4  # whole tokens before the letters differ
    assert figures(await deepseek(lab, body("b"))) == (0, 0, 600)
    assert figures(await deepseek(lab, body("c"))) == (0, 0, 600)
    assert figures(await deepseek(lab, body("d"))) == (500 + frame, 0, 100 - frame)


async def test_a_unit_that_has_not_ended_is_not_read(lab: Lab) -> None:
    """The request is a beginning of an earlier one: no unit ends there."""
    long: Json = {"messages": [user(text("user", 300), text("user", 300, "y"))]}
    assert figures(await deepseek(lab, long)) == (0, 0, 600)
    short: Json = {"messages": [user(text("user", 300))]}
    assert figures(await deepseek(lab, short)) == (0, 0, 300)


async def test_long_inputs_have_units_at_fixed_intervals(lab: Lab) -> None:
    def body(letter: str) -> Json:
        return {"messages": [user(text("user", 9000), text("user", 100, letter))]}

    await deepseek(lab, body("b"))
    assert figures(await deepseek(lab, body("c"))) == (8192, 0, 908)


async def test_an_edit_falls_back_to_the_unit_before_it(lab: Lab) -> None:
    first: Json = {"messages": [user(text("user", 300))]}
    answered = (await deepseek(lab, first)).json()
    unit = 300 + answered["usage"]["output_tokens"]
    history = [*first["messages"], assistant(*answered["content"])]
    await deepseek(lab, {"messages": [*history, user(text("user", 200)), user("more")]})
    shared = len('user{"text":"') // 4
    edited: Json = {"messages": [*history, user(text("user", 200, "e"))]}
    assert figures(await deepseek(lab, edited)) == (unit, 0, 200)
    again: Json = {"messages": [*history, user(text("user", 200, "f"))]}
    assert figures(await deepseek(lab, again)) == (unit + shared, 0, 200 - shared)


@pytest.mark.parametrize(("size", "read"), [(63, 0), (64, 64)])
async def test_a_unit_has_a_minimum(lab: Lab, size: int, read: int) -> None:
    body: Json = {"messages": [user(text("user", size))]}
    await deepseek(lab, body)
    assert figures(await deepseek(lab, body))[0] == read


async def test_a_lifetime_is_renewed_by_a_hit_and_then_passes(lab: Lab) -> None:
    body: Json = {"messages": [user(text("user", 300))]}
    await deepseek(lab, body)
    for _ in range(2):
        lab.clock.advance(3599)
        assert figures(await deepseek(lab, body))[0] == 300
    lab.clock.advance(3600)
    assert figures(await deepseek(lab, body))[0] == 0


async def test_a_hit_renews_the_unit_that_was_read(lab: Lab) -> None:
    def body(*more: Json) -> Json:
        return {"messages": [user(text("user", 300), *more)]}

    await deepseek(lab, body())
    lab.clock.set(3000)
    await deepseek(lab, body(text("user", 100, "b")))
    lab.clock.set(5000)
    assert figures(await deepseek(lab, body(text("user", 100, "c"))))[0] == 300
    lab.clock.set(8000)
    other = {"messages": [user(text("user", 300)), assistant("x"), user("y")]}
    assert figures(await deepseek(lab, other))[0] == 300


async def test_the_output_is_stored_when_the_whole_answer_was_sent(lab: Lab) -> None:
    body: Json = {"messages": [user(text("user", 300))]}
    output = (await deepseek(lab, body)).json()["content"]
    more = {"messages": [*body["messages"], assistant(*output), user("more")]}
    lab.clock.advance(3600)
    lab.cut_next("deepseek", after_events=4)
    with pytest.raises(httpx2.RemoteProtocolError):
        await deepseek(lab, body, stream=True)
    assert figures(await deepseek(lab, more))[0] == 300
    lab.clock.advance(3600)
    await deepseek(lab, body, stream=True)
    tokens = lab.captures[-1].usage["output_tokens"]
    assert figures(await deepseek(lab, more))[0] == 300 + tokens


async def test_models_share_nothing(lab: Lab) -> None:
    body: Json = {"messages": [user(text("user", 300))]}
    await deepseek(lab, body)
    assert figures(await deepseek(lab, body, model="deepseek-v4-pro"))[0] == 0


async def test_parallel_first_requests_both_miss(lab: Lab) -> None:
    body: Json = {"messages": [user(text("user", 300))]}
    found: list[int] = []

    async def ask() -> None:
        found.append(figures(await deepseek(lab, body))[0])

    lab.stall_next("deepseek", after_events=0, times=2)
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        await lab.until_stalled(2)
        lab.release()
    assert found == [0, 0]


def growing(*late: Json, added: bool) -> Json:
    messages = [user(text("user", 300))]
    if added:
        messages.append(system(add("b")))
    return {"tools": [tool("a", 100), *late], "messages": messages}


async def test_deferred_entries_are_outside_and_an_addition_is_read_at_its_block(
    lab: Lab,
) -> None:
    late = tool("b", 80, defer_loading=True)
    assert figures(await deepseek(lab, growing(added=False))) == (0, 0, 400)
    block = 'system{"tool":{"type":"tool_reference","name":"b"},"type":"tool_addition"}'
    at_block = -(-(len(block) + 4 * 80 - len("tools")) // 4)
    assert figures(await deepseek(lab, growing(late, added=True))) == (400, 0, at_block)


async def test_the_other_reading_has_deferred_entries_in_the_prefix(lab: Lab) -> None:
    lab.switches = Switches(deepseek_deferred_outside=False)
    late = tool("b", 80, defer_loading=True)
    assert figures(await deepseek(lab, growing(added=False))) == (0, 0, 400)
    block = 'system{"tool":{"type":"tool_reference","name":"b"},"type":"tool_addition"}'
    flag = len('"defer_loading":true,')
    entry = -(-(4 * 80 + flag) // 4)
    assert figures(await deepseek(lab, growing(late, added=True))) == (
        0,
        0,
        400 + entry + -(-len(block) // 4),
    )
