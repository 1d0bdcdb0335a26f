"""A loop around the openai SDK, as a test, on both of its APIs."""

# The SDK takes plain dicts; its types name each field.
# pyright: reportArgumentType=false
import openai
import pytest

from addendum.pytest_plugin import CacheLab, assert_stable_prefix

PROMPT = "You are the assistant of a harbour office. " * 200


def tool(name: str) -> dict[str, object]:
    """Return the definition of a tool without arguments."""
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat(client: openai.OpenAI, tools: list[list[str]]) -> None:
    """Ask one question for each list of tools in one conversation."""
    messages: list[dict[str, object]] = [{"role": "system", "content": PROMPT}]
    for number, names in enumerate(tools, 1):
        messages.append({"role": "user", "content": f"Question {number}?"})
        answer = client.chat.completions.create(
            model="gpt-4.1", messages=messages, tools=[tool(name) for name in names]
        )
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})


def test_the_prefix_stays_on_chat(cache_lab: CacheLab) -> None:
    client = openai.OpenAI(base_url=cache_lab.base_url("openai"), api_key="any")
    chat(client, [["tides"]] * 3)
    assert_stable_prefix(cache_lab)
    assert cache_lab.captures[-1].usage["prompt_tokens_details"]["cached_tokens"] > 1000


def test_a_tool_that_comes_is_found(cache_lab: CacheLab) -> None:
    client = openai.OpenAI(base_url=cache_lab.base_url("openai"), api_key="any")
    chat(client, [["tides"], ["tides", "ships"]])
    with pytest.raises(AssertionError, match=r"V1 tools\[1\]: the tool list changed \(\+ships\)"):
        assert_stable_prefix(cache_lab)


def test_the_prefix_stays_on_responses(cache_lab: CacheLab) -> None:
    client = openai.OpenAI(base_url=cache_lab.base_url("openai"), api_key="any")
    items: list[object] = []
    for number in (1, 2, 3):
        items.append({"role": "user", "content": f"Question {number}?"})
        answer = client.responses.create(
            model="gpt-6.1-sol", instructions=PROMPT, input=items, store=False
        )
        items += answer.output
    assert_stable_prefix(cache_lab)
