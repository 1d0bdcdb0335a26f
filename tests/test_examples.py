"""The examples run, and show what they are there for."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from addendum.lab.server import open_lab
from examples.without_agent import talk

EXAMPLES = Path(__file__).parent.parent / "examples"

pytestmark = pytest.mark.anyio


async def test_log_tools_prompt_and_wire_work_without_the_agent() -> None:
    """Bare httpx2 carries it, and each request reads the whole one before."""
    async with open_lab() as lab:
        read = await anyio.to_thread.run_sync(talk, lab.base_url("anthropic"))
        prompts = [sum(_input(capture.usage)) for capture in lab.captures]
    assert read[0] == 0
    assert read[1:] == prompts[:-1]
    lines = (EXAMPLES / "without_agent.py").read_text().split("if __name__")[0].splitlines()
    code = [line for line in lines if line.strip()]
    assert len(code) <= 40, len(code)


def _input(usage: dict[str, int]) -> list[int]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return [usage[name] for name in names]
