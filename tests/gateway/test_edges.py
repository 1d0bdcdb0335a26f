"""What clients do to a conversation: each edge, alone and through the gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.gateway.playing import lab_of
from tests.gateway.talking import Refused, Talk, lost

from addendum.gateway.drive import Gateway
from addendum.lab.server import Lab

ROUTES = ["openai-chat:gpt-4.1", "anthropic:claude-sonnet-5", "anthropic:claude-opus-5-5"]

Edge: TypeAlias = Callable[[Callable[..., Talk]], list[Talk]]
Begin: TypeAlias = Callable[..., Talk]

BASE = ["tides", "weather"]
MORE = [f"ship_{n}" for n in range(6)]
LONG = "Say something about the harbour. " * 40


def toggled(begin: Begin) -> list[Talk]:
    talk = begin(BASE)
    talk.say(LONG)
    talk.tools += MORE
    talk.say("/call ship_1 {}")
    talk.say(LONG)
    talk.tools = list(BASE)
    talk.say("and now?")
    talk.tools += MORE
    talk.say("/call ship_2 {}")
    return [talk]


def branches(begin: Begin) -> list[Talk]:
    first = begin(BASE)
    first.say(LONG)
    second = first.fork()
    first.tools += MORE
    second.tools += ["buoys"]
    for _ in range(3):
        first.say("/call ship_1 {}")
        second.say("/call buoys {}")
    return [first, second]


def regenerated(begin: Begin) -> list[Talk]:
    first = begin(BASE)
    first.say(LONG)
    again = first.fork()
    first.tools += MORE
    first.say("what is there?")
    again.tools += ["buoys"]
    again.say("what is there?")
    first.say("/call ship_1 {}")
    again.say("/call buoys {}")
    return [first, again]


def subagents(begin: Begin) -> list[Talk]:
    talks = [begin([*BASE, *MORE])]
    talks[0].say(LONG)
    for number in range(3):
        child = begin([*BASE, *MORE, f"task_{number}", *(f"own_{n}" for n in range(5))])
        child.say("hello")
        child.say(f"/call task_{number} {{}}")
        talks.append(child)
    return talks


def trimmed(begin: Begin) -> list[Talk]:
    talk = begin(BASE)
    talk.say("/call tides {}")
    talk.say(LONG)
    talk.tools += MORE
    talk.say(LONG)
    done = next(each for each in talk.messages if _is_result(each))
    done["content"] = "cut" if talk.chat else [{**done["content"][0], "content": "cut"}]
    talk.tools += ["buoys"]
    talk.say("/call buoys {}")
    talk.say("/call ship_1 {}")
    return [talk]


def _is_result(message: dict[str, object]) -> bool:
    content = message["content"]
    block = content[0] if isinstance(content, list) else {}
    return message["role"] == "tool" or block.get("type") == "tool_result"


def compacted(begin: Begin) -> list[Talk]:
    talk = begin(BASE)
    talk.say(LONG)
    talk.tools += MORE
    talk.say("/call ship_1 {}")
    talk.messages = [{"role": "user", "content": "In short: ships were counted. " * 10}]
    talk.go_on()
    talk.tools += ["buoys"]
    talk.say("/call buoys {}")
    return [talk]


def reordered(begin: Begin) -> list[Talk]:
    talk = begin([*BASE, *MORE])
    for _ in range(4):
        talk.say(LONG)
        talk.tools.reverse()
    return [talk]


def flapping(begin: Begin) -> list[Talk]:
    talk = begin([*BASE, *MORE])
    talk.say(LONG)
    for number in range(6):
        talk.tools = list(BASE) if number % 2 else [*BASE, *MORE]
        talk.say("and?")
    return [talk]


def redefined(begin: Begin) -> list[Talk]:
    talk = begin([*BASE, *MORE])
    talk.say(LONG)
    talk.versions["ship_1"] = "Second version. "
    talk.say("/call ship_1 {}")
    talk.say("and?")
    talk.versions["ship_1"] = "Third version. "
    talk.say("/call ship_1 {}")
    return [talk]


def inside_a_run(begin: Begin) -> list[Talk]:
    talk = begin(BASE)
    talk.say(LONG)
    talk.messages.append({"role": "user", "content": "/call tides {}"})
    answer = talk.post()
    if talk.chat:
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]["id"]
        talk.messages += [message, {"role": "tool", "tool_call_id": call, "content": "noon"}]
    else:
        block = next(each for each in answer["content"] if each["type"] == "tool_use")
        done = [{"type": "tool_result", "tool_use_id": block["id"], "content": "noon"}]
        talk.messages += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": done},
        ]
    talk.tools += MORE
    talk.go_on()
    talk.say("/call ship_1 {}")
    return [talk]


def plain_first(begin: Begin) -> list[Talk]:
    talk = begin([])
    talk.say(LONG)
    talk.say("hm")
    talk.tools = list(BASE)
    talk.say("/call tides {}")
    talk.tools += MORE
    talk.say("/call ship_1 {}")
    return [talk]


EDGES: dict[str, tuple[Edge, set[str]]] = {
    # What a client does, and the reasons that may be declared for it.
    "toggled": (toggled, set()),
    "branches": (branches, set()),
    "regenerated": (regenerated, set()),
    "subagents": (subagents, {"new head: cheaper"}),
    "trimmed": (trimmed, {"history edited by the client"}),
    "compacted": (compacted, {"new head: cheaper"}),
    "reordered": (reordered, set()),
    "flapping": (flapping, set()),
    "redefined": (redefined, set()),
    "inside_a_run": (inside_a_run, set()),
    "plain_first": (plain_first, {"head changed"}),
}


def played(edge: Edge, lab: Lab, route: str, gateway: Callable[[], Gateway] | None) -> list[Talk]:
    def begin(tools: list[str], **more: str) -> Talk:
        return Talk(lab, route, gateway, tools, **more)

    return edge(begin)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", EDGES)
def test_no_edge_costs_more_than_without_us(name: str, route: str) -> None:
    edge, reasons = EDGES[name]
    with lab_of() as lab:
        alone = played(edge, lab, route, None)
        cost_alone = lost(lab.captures)
    gateway = Gateway()
    with lab_of() as lab:
        through = played(edge, lab, route, lambda: gateway)
        cost = lost(lab.captures)
        assert [each.refusal for each in lab.captures if each.refusal] == []
    assert [talk.calls for talk in through] == [talk.calls for talk in alone]
    declared = {reason for talk in through for reason in talk.reasons()}
    assert declared <= reasons
    # To be ready for changes costs the dispatcher once a head.
    heads = len({node.head for talk in through for node in talk.nodes})
    assert cost <= 1.02 * cost_alone + 330 * heads, (cost, cost_alone)


@pytest.mark.parametrize("route", ROUTES)
def test_toggles_and_branches_are_read_from_the_cache(route: str) -> None:
    for edge in (toggled, branches, flapping):
        with lab_of() as lab:
            played(edge, lab, route, None)
            cost_alone = lost(lab.captures)
        gateway = Gateway()
        with lab_of() as lab:
            played(edge, lab, route, lambda gateway=gateway: gateway)
            assert lost(lab.captures) < 0.85 * cost_alone


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", [name for name in EDGES if name != "subagents"])
def test_replicas_with_one_store_send_the_same_bytes(
    name: str, route: str, tmp_path: Path, opened: Callable[[str], Gateway]
) -> None:
    edge, _ = EDGES[name]
    url = f"sqlite:///{tmp_path}/one.db"
    replicas = [opened(url), opened(url)]
    turn = iter(range(1000))
    with lab_of() as lab:
        several = played(edge, lab, route, lambda: replicas[next(turn) % 2])
    # And again after a restart: what is known is planned as it was.
    with lab_of() as lab:
        again = played(edge, lab, route, lambda: opened(url))
    alone = Gateway()
    with lab_of() as lab:
        one = played(edge, lab, route, lambda: alone)
    assert [talk.bodies for talk in several] == [talk.bodies for talk in again]
    assert [talk.bodies for talk in several] == [talk.bodies for talk in one]


@pytest.mark.parametrize("route", ROUTES)
def test_a_lost_state_is_one_declared_break(route: str) -> None:
    gateways = [Gateway(), Gateway()]
    used = 0
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateways[used], BASE)
        talk.say(LONG)
        talk.tools += MORE
        talk.say("/call ship_1 {}")
        used = 1
        for _ in range(3):
            talk.say("/call ship_2 {}")
        assert all(each.status == 200 for each in lab.captures)
    assert talk.reasons() == ["history unknown"]


@pytest.mark.parametrize("route", ROUTES)
def test_a_client_that_rewrites_its_history_is_let_alone(route: str) -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, BASE)
        for number in range(7):
            talk.say(f"turn {number} {LONG}")
            talk.messages = talk.messages[-2:]
    assert talk.passed[-1] == "rewrites its history each turn"
    assert talk.passed[0] == ""


@pytest.mark.parametrize("route", ROUTES)
def test_a_clock_in_the_instructions_costs_what_it_cost_before(route: str) -> None:
    def clocked(begin: Begin) -> list[Talk]:
        talk = begin([*BASE, *MORE])
        for number in range(5):
            talk.system = f"It is {number} o'clock. " + "You look after a harbour. " * 120
            talk.say("and?")
        return [talk]

    with lab_of() as lab:
        played(clocked, lab, route, None)
        cost_alone = lost(lab.captures)
    gateway = Gateway()
    with lab_of() as lab:
        (talk,) = played(clocked, lab, route, lambda: gateway)
        cost = lost(lab.captures)
    assert set(talk.reasons()) <= {"system rewritten by the client", "passed on unchanged"}
    assert cost <= 1.02 * cost_alone + 330 * 5


@pytest.mark.parametrize("route", ROUTES)
def test_another_message_after_a_failed_request(route: str) -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, BASE)
        talk.say(LONG)
        talk.tools += MORE
        lab.fail_next(route.partition(":")[0], status=500)
        with pytest.raises(Refused):
            talk.say("first try")
        talk.messages[-1] = {"role": "user", "content": "/call ship_1 {}"}
        talk.go_on()
        assert talk.calls == ["ship_1"]
        assert [each.refusal for each in lab.captures if each.refusal and each.status < 500] == []


FORCED = {
    "openai-chat": {"tool_choice": {"type": "function", "function": {"name": "ship_1"}}},
    "anthropic": {"tool_choice": {"type": "tool", "name": "ship_1"}},
}


@pytest.mark.parametrize("route", ROUTES[:2])
def test_a_choice_that_was_only_told_is_asked_for_in_the_clients_own_form(route: str) -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, BASE)
        for _ in range(6):
            talk.say(LONG)
        talk.tools += MORE
        talk.more = FORCED[route.partition(":")[0]]
        talk.messages.append({"role": "user", "content": "go"})
        talk.post()
        assert (talk.passed[-1], talk.bodies[-1]) == ("forced tool", talk.body())


def test_a_dispatcher_of_the_clients_own_is_left_alone() -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, ROUTES[0], lambda: gateway, [*BASE, "call_tool"])
        talk.say(LONG)
        assert talk.passed == ["call_tool taken"]
        talk.more = {"previous_response_id": "resp_1"}
        with pytest.raises(Refused):
            talk.say("more")
        assert talk.passed[-1] == "history at the provider"


def test_nothing_that_was_said_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "nodes.db"
    gateway = Gateway(f"sqlite:///{file}")
    with lab_of() as lab:
        talk = Talk(lab, ROUTES[0], lambda: gateway, BASE, system="The harbour is secret. " * 120)
        talk.say("my word is swordfish")
        talk.tools += MORE
        talk.say('/call ship_1 {"field_1":"trout"}')
    gateway.close()
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    for word in (b"swordfish", b"trout", b"secret", b"Bearer", b"harbour is"):
        assert word not in stored
    assert b"ship_1" in stored


def test_two_keys_share_nothing() -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, ROUTES[0], lambda: gateway, BASE)
        talk.say(LONG)
        url, body = talk.url, talk.body()
        known = {"authorization": "Bearer k", "x-api-key": "k"}
        mine = gateway.begin(url, known, body)
        other = gateway.begin(url, {"authorization": "Bearer another"}, body)
        assert mine is not None and other is not None and mine.node and other.node
        assert mine.node.conversation != other.node.conversation
        assert not [each for each in mine.node.breaks]
        assert [each.reason for each in other.node.breaks] == ["history unknown"]
