"""The examples run, and show what they are there for."""

from __future__ import annotations

import os
import sys
from ast import literal_eval
from pathlib import Path

import anyio
import httpx2
import pytest
from examples.web_chat import service
from examples.without_agent import talk

from addendum import Agent
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import load
from addendum.lab.server import Lab, open_lab, serve
from addendum.log.events import TurnEnd
from addendum.tools.mcp.file import read_mcp_file
from addendum.tools.mcp.pool import ServerPool

EXAMPLES = Path(__file__).parent.parent / "examples"

pytestmark = pytest.mark.anyio


async def test_log_tools_prompt_and_wire_work_without_the_agent() -> None:
    """Bare httpx2 carries it, and each request reads the whole one before."""
    async with open_lab() as lab:
        read = await anyio.to_thread.run_sync(talk, lab.base_url("anthropic"))
        prompts = [sum(_input(capture.usage)) for capture in lab.captures]
    assert read[0] == 0
    assert read[1:] == prompts[:-1]
    lines = (EXAMPLES / "without_agent.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 40


def _input(usage: dict[str, int]) -> list[int]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return [usage[name] for name in names]


async def ran(lab: Lab, folder: Path, *command: str) -> str:
    """Run an example as a program, the lab speaking for the provider; return what it printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if "ANTHROPIC" not in name},
        "ANTHROPIC_BASE_URL": lab.base_url("anthropic"),
    }
    name, *arguments = command
    done = await anyio.run_process(
        [sys.executable, str(EXAMPLES / name), *arguments], cwd=folder, env=environment
    )
    return done.stdout.decode()


async def test_the_file_of_servers_starts_a_server(tmp_path: Path) -> None:
    """As `make demo` leaves it: the interpreter of the checkout's own environment."""
    text = (EXAMPLES / "mcp.json").read_text("utf-8")
    assert '".venv/bin/python"' in text
    file = tmp_path / "mcp.json"
    file.write_text(text.replace(".venv/bin/python", sys.executable), "utf-8")
    pool = ServerPool()
    try:
        (spec,) = read_mcp_file(file)
        state = await (await pool.acquire(spec)).ready(30)
    finally:
        await pool.aclose()
    assert [tool.name for tool in state.tools] == ["grow", "shrink"]


@pytest.mark.parametrize(
    ("name", "needed"),
    [("check_any_client.py", "BASE_URL FILE"), ("without_agent.py", "BASE_URL")],
)
async def test_an_example_says_what_it_needs(name: str, needed: str) -> None:
    done = await anyio.run_process([sys.executable, str(EXAMPLES / name)], check=False)
    assert done.returncode == 1 and done.stdout == b""
    assert done.stderr.decode().startswith(f"usage: {name} {needed}; ")


async def test_a_turn_is_streamed_as_the_documentation_shows(tmp_path: Path) -> None:
    async with open_lab() as lab:
        called = await ran(lab, tmp_path, "streaming.py", '/call weather {"city": "Oslo"}')
        lab.fail_next("anthropic", status=400)
        failed = await ran(lab, tmp_path, "streaming.py")
    told = [literal_eval(line) for line in called.splitlines()]
    assert {"calls": "weather", "with": '{"city":"Oslo"}'} in told
    assert {"result": "Rain in Oslo.", "of": "weather", "failed": False} in told
    read = [each for each in told if "read" in each]
    assert len(read) == 2
    assert "".join(each["text"] for each in told if "text" in each)
    (error,) = [literal_eval(line) for line in failed.splitlines()]
    assert "error" in error


async def test_a_service_opens_a_session_in_one_request_and_uses_it_in_others(
    tmp_path: Path,
) -> None:
    async with open_lab() as lab, httpx2.AsyncClient(timeout=30) as client:
        agent = Agent("anthropic:claude-opus-5-5", base_url=lab.base_url("anthropic"))
        store = f"sqlite:///{tmp_path}/chats.db"
        app = service(agent, store)
        async with app.router.lifespan_context(app), serve(app) as url:
            for text in ("hello", "are you there?"):
                said = await client.post(f"{url}/chats/a", content=text)
                assert said.text == f"I heard: '{text}'"
            lab.stall_next("anthropic", after_events=4)
            async with client.stream("POST", f"{url}/chats/a", content="more") as answer:
                await anext(answer.aiter_text())
            # The client is gone, and with it the turn, as soon as that is noticed.
            with anyio.fail_after(10):
                while "a turn is running" in said.text or text in said.text:
                    said = await client.post(f"{url}/chats/a", content="again")
            lab.release()
            assert said.text == "I heard: 'again'"
            lab.stall_next("anthropic", after_events=4)
            async with client.stream("POST", f"{url}/chats/a", content="closed") as answer:
                chunks = answer.aiter_text()
                await anext(chunks)
                assert (await client.delete(f"{url}/chats/a")).status_code == 204
                lab.release()
                assert "closed while this ran" in "".join([each async for each in chunks])
        # Whoever comes next has the session.
        async with agent.open("a", store=store) as session:
            ends = [e.data.reason for e in session.log.events if isinstance(e.data, TurnEnd)]
        assert ends == ["done", "done", "interrupted", "done", "interrupted"]


async def test_a_server_is_switched_on_as_the_readme_shows(tmp_path: Path) -> None:
    """The README's example runs as a program; its second request reads the first whole."""
    async with open_lab() as lab:
        said = await ran(lab, tmp_path, "switch_on.py")
        first, second = lab.captures
    assert said.startswith("I heard")
    assert "git__git_log" in second.body.decode()
    assert "git__git_log" not in first.body.decode()
    assert (
        second.body.decode()
        .split('"messages":[')[0]
        .startswith(first.body.decode().split('"messages":[')[0])
    )


@pytest.mark.parametrize("route", ["anthropic:claude-opus-5-5", "openai-chat:gpt-4.1"])
async def test_the_scenario_of_the_documentation_plays(route: str) -> None:
    run = await run_scenario(load(EXAMPLES / "shop.yaml"), route)
    assert run.holds
    assert len(run.rows()) == 5
