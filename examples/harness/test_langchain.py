"""A langchain agent with its caching middleware, as a test."""

# Install them with: pip install -r bench/peers/requirements.txt
# pyright: reportMissingImports=false
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.tools import tool

from addendum.pytest_plugin import CacheLab, assert_stable_prefix

PROMPT = "You are the assistant of a harbour office. " * 100


@tool
def tides(port: str) -> str:
    """Tell the tides of a port."""
    return f"High water in {port} at 9:40."


@tool
def ships(port: str) -> str:
    """List the ships in a port."""
    return f"No ship in {port}."


def run(cache_lab: CacheLab, *tools: list[object]) -> None:
    """Make an agent for each list of tools, and go on with one conversation."""
    model = ChatAnthropic(
        model_name="claude-opus-5-5",
        base_url=cache_lab.base_url("anthropic"),
        api_key="any",
        max_tokens=100,
    )
    messages: list[object] = []
    for number, given in enumerate(tools, 1):
        agent = create_agent(
            model, given, system_prompt=PROMPT, middleware=[AnthropicPromptCachingMiddleware()]
        )
        asked = [*messages, {"role": "user", "content": f"Question {number}?"}]
        messages = agent.invoke({"messages": asked})["messages"]


def test_the_prefix_stays(cache_lab: CacheLab) -> None:
    run(cache_lab, [tides], [tides])
    assert_stable_prefix(cache_lab)


def test_a_tool_that_is_bound_anew_is_found(cache_lab: CacheLab) -> None:
    run(cache_lab, [tides], [tides, ships])
    with pytest.raises(AssertionError, match=r"V1 tools\[1\]: the tool list changed \(\+ships\)"):
        assert_stable_prefix(cache_lab)
