"""A pydantic-ai agent, as a test: what does a toolset cost that comes in the second run?"""

# Install them with: pip install -r bench/peers/requirements.txt
# pyright: reportMissingImports=false
import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.toolsets import FunctionToolset

from addendum.pytest_plugin import CacheLab, assert_stable_prefix

PROMPT = "You are the assistant of a harbour office. " * 100
CACHED = AnthropicModelSettings(
    anthropic_cache=True, anthropic_cache_instructions=True, anthropic_cache_tool_definitions=True
)


def tides(port: str) -> str:
    """Tell the tides of a port."""
    return f"High water in {port} at 9:40."


def ships(port: str) -> str:
    """List the ships in a port."""
    return f"No ship in {port}."


async def talk(cache_lab: CacheLab, toolsets: tuple[list[FunctionToolset], ...]) -> None:
    """Run an agent once for each list of toolsets, in one conversation."""
    provider = AnthropicProvider(base_url=cache_lab.base_url("anthropic"), api_key="any")
    agent = Agent(AnthropicModel("claude-opus-5-5", provider=provider), instructions=PROMPT)
    history = None
    async with agent:  # closes its connections, in the loop that they belong to
        for number, given in enumerate(toolsets, 1):
            done = await agent.run(
                f"Question {number}?",
                toolsets=given,
                message_history=history,
                model_settings=CACHED,
            )
            history = done.all_messages()


def run(cache_lab: CacheLab, *toolsets: list[FunctionToolset]) -> None:
    """Talk with an agent."""
    asyncio.run(talk(cache_lab, toolsets))


def test_the_prefix_stays(cache_lab: CacheLab) -> None:
    first = FunctionToolset([tides])
    run(cache_lab, [first], [first])
    assert_stable_prefix(cache_lab)


def test_a_toolset_that_comes_between_two_runs_is_found(cache_lab: CacheLab) -> None:
    first = FunctionToolset([tides])
    run(cache_lab, [first], [first, FunctionToolset([ships])])
    with pytest.raises(AssertionError, match=r"V1 tools\[1\]: the tool list changed \(\+ships\)"):
        assert_stable_prefix(cache_lab)
