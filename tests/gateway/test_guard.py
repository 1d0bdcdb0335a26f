"""A call that a client cannot run never reaches it: answered inside, and the model asked again."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import anthropic
import openai
import pytest
from tests.gateway.playing import Played, lab_of, play_chat, play_messages

import addendum
from addendum.lab.scenario import Scenario
from addendum.lab.scenario_file import load
from addendum.lab.server import Lab
from addendum.wire.splice import GIVEN_UP

ROUTES = [
    ("openai-chat", "gpt-4.1"),
    ("openai-chat", "gpt-6.1-sol"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-5"),
]

GONE = "{tool: harbour__ships, form: direct, arguments: {port: x}}"
GOOD = "{tool: tides, arguments: {day: today}}"
AMISS = {
    "alone": [f"calls: [{GONE}]"],
    "beside_a_good_one": [f"calls: [{GOOD}, {GONE}]"],
    "in_front_of_a_good_one": [f"calls: [{GONE}, {GOOD}]"],
    "twice": [f"calls: [{GONE}]", f"calls: [{GONE}]"],
    "two_at_once": [f"calls: [{GONE}, {GONE}]"],
    "by_the_dispatcher": ["calls: [{tool: harbour__ships, form: dispatch, arguments: {port: x}}]"],
}


def scenario(answers: list[str]) -> Scenario:
    said = "".join(f"      - {each}\n" for each in answers)
    text = f"""
name: guard
instructions: {{text: "You look after a harbour.", tokens: 1500}}
conversation_instructions: "Answer in one line."
tools:
  - name: tides
    description: "When the tide is high."
    parameters: {{properties: {{day: {{type: string}}}}}}
    result: {{text: "At noon.", tokens: 20}}
servers:
  harbour:
    start: "on"
    tools:
      - name: ships
        description: "Which ships lie in a port."
        parameters: {{properties: {{port: {{type: string}}}}}}
        result: {{text: "Two.", tokens: 20}}
steps:
  - user: "Which ships are there?"
    model:
      - calls: [{{tool: harbour__ships, arguments: {{port: north}}}}]
      - text: "Two."
  - disable: harbour
  - user: "And now?"
    model:
{said}      - text: "I cannot see any more."
  - user: "Thank you."
    model:
      - text: "You are welcome."
"""
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return load(Path(file.name))


def played(
    lab: Lab, provider: str, model: str, told: Scenario, stream: bool, **more: Any
) -> Played:
    base = lab.base_url(provider)
    if provider == "anthropic":
        with anthropic.Anthropic(base_url=base, api_key="k", max_retries=0, **more) as claude:
            return play_messages(claude, model, told, stream=stream)
    with openai.OpenAI(base_url=base, api_key="k", max_retries=0, **more) as chat:
        return play_chat(chat, model, told, stream=stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("provider", "model"), ROUTES)
@pytest.mark.parametrize("amiss", AMISS)
def test_a_client_only_sees_calls_of_what_it_offers(
    amiss: str, provider: str, model: str, stream: bool
) -> None:
    told = scenario(AMISS[amiss])
    with lab_of(told) as lab, addendum.http_client() as client:
        result = played(lab, provider, model, told, stream, http_client=client)
        refused = [each.refusal for each in lab.captures if each.refusal]
    assert refused == []
    good = [("tides", {"day": "today"})] if "good" in amiss else []
    assert result.calls == [("harbour__ships", {"port": "north"}), *good]
    assert result.texts == ["Two.", "I cannot see any more.", "You are welcome."]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("provider", "model"), ROUTES)
def test_a_model_that_never_stops_is_asked_twice_more_and_no_further(
    provider: str, model: str, stream: bool
) -> None:
    told = scenario([f"calls: [{GONE}]"] * 4)
    with lab_of(told) as lab, addendum.http_client() as client:
        base, key = lab.base_url(provider), "k"
        before = 0

        def ask(sdk: Any, play: Any) -> Played:
            nonlocal before
            before = len(lab.captures)
            return play(sdk, model, told, stream=stream)

        if provider == "anthropic":
            sdk: Any = anthropic.Anthropic(
                base_url=base, api_key=key, max_retries=0, http_client=client
            )
            result = ask(sdk, play_messages)
        else:
            sdk = openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=client)
            result = ask(sdk, play_chat)
        # Two of the first turn, three of the second, one of the last.
        assert len(lab.captures) == 6
    assert [name for name, _ in result.calls] == ["harbour__ships"]
    assert result.texts == ["Two.", GIVEN_UP, "You are welcome."]
