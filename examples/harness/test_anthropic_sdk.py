"""A loop around the anthropic SDK, as a test: does each request begin with the one before?

The system prompt and the newest message carry a mark; the history is sent back as it came.
"""

# The SDK takes plain dicts; its types name each field.
# pyright: reportArgumentType=false
import anthropic
import pytest

from addendum.pytest_plugin import CacheLab, assert_stable_prefix

MARK = {"cache_control": {"type": "ephemeral"}}
PROMPT = "You are the assistant of a harbour office. " * 100


def talk(client: anthropic.Anthropic, prompts: list[str]) -> None:
    """Ask one question for each prompt in one conversation."""
    messages: list[dict[str, object]] = []
    for number, prompt in enumerate(prompts, 1):
        question = {"type": "text", "text": f"Question {number}?"}
        answer = client.messages.create(
            model="claude-opus-5-5",
            max_tokens=100,
            system=[{"type": "text", "text": prompt, **MARK}],
            messages=[*messages, {"role": "user", "content": [{**question, **MARK}]}],
        )
        messages.append({"role": "user", "content": [question]})
        messages.append({"role": "assistant", "content": answer.content})


def test_the_prefix_stays(cache_lab: CacheLab) -> None:
    client = anthropic.Anthropic(base_url=cache_lab.base_url("anthropic"), api_key="any")
    talk(client, [PROMPT] * 3)
    assert_stable_prefix(cache_lab)
    assert cache_lab.captures[-1].usage["cache_read_input_tokens"] > 1000


def test_the_time_in_a_prompt_is_found(cache_lab: CacheLab) -> None:
    client = anthropic.Anthropic(base_url=cache_lab.base_url("anthropic"), api_key="any")
    talk(client, [f"It is {hour} o'clock. {PROMPT}" for hour in (9, 10)])
    with pytest.raises(AssertionError, match=r"V2 system\[0\].text: the prompt text changed"):
        assert_stable_prefix(cache_lab)
