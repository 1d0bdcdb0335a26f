"""Random clients: whatever they do to a conversation, the same history leaves as the same bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json
from tests.gateway.playing import lab_of
from tests.gateway.talking import Refused, Talk, lost

from addendum.gateway.drive import Gateway
from addendum.lab.server import Lab

ROUTES = ["openai-chat:gpt-4.1", "anthropic:claude-opus-5-5", "anthropic:claude-sonnet-5"]
POOL = [f"tool_{n}" for n in range(9)]
LINE = "Tell me something about ships and tides. "


def life(lab: Lab, route: str, gateway: Callable[[], Gateway] | None, seed: int) -> list[Talk]:
    """Play one random client: it switches tools, edits, branches, tries again and gives up."""
    chance = random.Random(seed)
    talks = [Talk(lab, route, gateway, POOL[:2])]
    for turn in range(14):
        talk = chance.choice(talks)
        what = chance.choice(("say", "say", "call", "switch", "switch", "order", "rare"))
        if what == "switch":
            name = chance.choice(POOL)
            talk.tools.remove(name) if name in talk.tools else talk.tools.append(name)
        elif what == "order":
            chance.shuffle(talk.tools)
        elif what == "rare":
            _rare(chance, lab, route, talk, talks)
            continue
        if what == "call" and talk.tools:
            talk.say(f"/call {chance.choice(talk.tools)} {{}}")
        else:
            talk.say(f"{turn} {LINE * chance.randint(1, 12)}")
    return talks


def _rare(chance: random.Random, lab: Lab, route: str, talk: Talk, talks: list[Talk]) -> None:
    match chance.choice(("branch", "edit", "fail", "redefine", "same again")):
        case "branch" if len(talks) < 3:
            talks.append(talk.fork())
        case "edit" if talk.messages:
            first = next(each for each in talk.messages if each["role"] == "user")
            first["content"] = f"edited {chance.random()}"
            talk.say("go on")
        case "fail":
            lab.fail_next(route.partition(":")[0], status=500)
            with pytest.raises(Refused):
                talk.say("this fails")
            talk.messages[-1]["content"] = "another try"
            talk.go_on()
        case "redefine":
            talk.versions[chance.choice(POOL)] = f"Version {chance.randint(1, 9)}. "
            talk.say("and now?")
        case _ if talk.messages:
            # The last question once more, as a client does that lost the answer.
            while talk.messages and talk.messages[-1]["role"] != "user":
                talk.messages.pop()
            if talk.messages and isinstance(talk.messages[-1]["content"], str):
                talk.go_on()
        case _:
            talk.say("hello")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(40 if "ADDENDUM_EVERY" in os.environ else 3))
def test_the_same_history_is_the_same_bytes_and_nothing_else_is_seen(
    seed: int, route: str, tmp_path: Path, opened: Callable[[str], Gateway]
) -> None:
    with lab_of() as lab:
        alone = life(lab, route, None, seed)
        cost_alone = lost(lab.captures)
    url = f"sqlite:///{tmp_path}/one.db"
    replicas = [opened(url), opened(url)]
    chance = random.Random(seed)
    with lab_of() as lab:
        through = life(lab, route, lambda: chance.choice(replicas), seed)
        cost = lost(lab.captures)
        assert [each.refusal for each in lab.captures if each.refusal and each.status < 500] == []
    # It saw what it would have seen, and calls of nothing but what it offers.
    assert [talk.calls for talk in through] == [talk.calls for talk in alone]
    assert [_said(talk) for talk in through] == [_said(talk) for talk in alone]
    # A process that begins with the same store, and one that knows nothing, plan it alike.
    for other in (lambda: opened(url), _kept(Gateway())):
        with lab_of() as lab:
            again = life(lab, route, other, seed)
        assert [talk.bodies for talk in again] == [talk.bodies for talk in through]
    # Being ready for changes costs a head the dispatcher; no life costs more than that.
    heads = len({node.head for talk in through for node in talk.nodes})
    assert cost <= 1.02 * cost_alone + 330 * heads, (cost, cost_alone, heads)


def _kept(gateway: Gateway) -> Callable[[], Gateway]:
    return lambda: gateway


def _said(talk: Talk) -> list[str]:
    """Return what a client holds of the model's answers, ids aside."""
    return [
        json.encode(_text(each)).decode() for each in talk.messages if each["role"] == "assistant"
    ]


def _text(message: dict[str, object]) -> object:
    content = message.get("content")
    if isinstance(content, list):
        return [each.get("text", each.get("name")) for each in content]
    return content
