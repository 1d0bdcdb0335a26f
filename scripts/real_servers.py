"""Use servers written with other people's releases, each started anew in the middle of a session.

    python -m scripts.real_servers [--folder FOLDER] [NAME...]

It makes an environment for each release in FOLDER (a temporary one, if none is given; needs the
network, Python's venv and npm), and plays a session with each server over each of its transports:
the tools are listed and called, what else it has is asked for; then the server ends (a process is
killed, an endpoint is stopped and started again on its port), and it is used again, twice. A row
for each; 1 is returned if one of them is not usable after.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from addendum import Agent
from addendum.lab.server import Lab, open_lab
from addendum.log.events import ToolResult
from addendum.tools.mcp.pool import ServerPool, Timings
from addendum.tools.mcp.values import CallOutcome

ROUTE = "anthropic:claude-opus-5-5"

SDK_1 = """
import sys
from mcp.server.fastmcp import FastMCP
way, port, more = sys.argv[1], int(sys.argv[2]), {each: True for each in sys.argv[3:]}
server = FastMCP("real", **({"host": "127.0.0.1", "port": port, **more} if way == "http" else {}))
"""
SDK_2 = """
import sys
from mcp.server.mcpserver import MCPServer
way, port, more = sys.argv[1], int(sys.argv[2]), {each: True for each in sys.argv[3:]}
server = MCPServer("real")
"""
FASTMCP = """
import sys
from fastmcp import FastMCP
way, port, more = sys.argv[1], int(sys.argv[2]), {each: True for each in sys.argv[3:]}
server = FastMCP("real")
"""
TOOLS = '''
@server.tool()
def echo(message: str) -> str:
    """Echo"""
    return "heard " + message
@server.resource("mem://a")
def a() -> str:
    """A"""
    return "held"
@server.prompt()
def p() -> str:
    """P"""
    return "asked"
'''
RUN_1 = 'server.run(transport="streamable-http" if way == "http" else "stdio")\n'
RUN_2 = """
if way == "http": server.run(transport="streamable-http", host="127.0.0.1", port=port, **more)
else: server.run(transport="stdio")
"""
RUN_FASTMCP = """
if way == "http":
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, **more)
else: server.run(transport="stdio", show_banner=False)
"""


@dataclass
class Release:
    """One release of somebody's library.

    Attributes:
        install: What pip or npm installs, words with spaces between.
        program: A Python program that serves; empty for a package of npm.
        ways: `stdio` and `http`, the latter with options of the server behind it.
        tool: The tool that is called, its arguments as JSON, and what its answer holds.
        bin: For npm: the package's program, and its arguments by way.
    """

    install: str
    program: str = ""
    ways: tuple[str, ...] = ("stdio", "http", "http json_response", "http stateless_http")
    tool: tuple[str, str, str] = ("echo", '{"message":"x"}', "heard x")
    bin: tuple[str, ...] = ()


ONE, TWO, FAST = SDK_1 + TOOLS + RUN_1, SDK_2 + TOOLS + RUN_2, FASTMCP + TOOLS + RUN_FASTMCP
RELEASES = {
    "mcp-1.2": Release("mcp==1.2.1 pydantic<2.12", ONE, ("stdio",)),
    "mcp-1.20": Release("mcp==1.20.0 pydantic<2.12", ONE),
    "mcp-1.23": Release("mcp==1.23.3", ONE),
    "mcp-1.26": Release("mcp==1.26.0", ONE),
    "mcp-1.30": Release("mcp==1.30.0", ONE),
    "mcp-2.0": Release("mcp==2.0.1", TWO),
    "mcp-2.3": Release("mcp==2.3.0", TWO),
    "fastmcp-2": Release("fastmcp==2.14.7", FAST),
    "fastmcp-3.0": Release("fastmcp==3.0.2", FAST),
    "fastmcp-3": Release("fastmcp==3.4.11", FAST),
    "fastmcp-4.0": Release("fastmcp==4.0.11", FAST),
    "fastmcp-4": Release("fastmcp==4.2.3", FAST),
    "everything": Release(
        "@modelcontextprotocol/server-everything",
        ways=("stdio", "http"),
        tool=("echo", '{"message":"x"}', "x"),
        bin=("mcp-server-everything",),
    ),
    "filesystem": Release(
        "@modelcontextprotocol/server-filesystem",
        ways=("stdio",),
        tool=("list_allowed_directories", "{}", "/"),
        bin=("mcp-server-filesystem",),
    ),
}


def install(name: str, release: Release, folder: Path) -> None:
    """Make the environment of a release, unless it is there."""
    place = folder / name
    if (place / "made").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    if release.bin:
        place.mkdir(parents=True)
        subprocess.run(
            ["npm", "install", "--prefix", str(place), *release.install.split()], **quiet
        )
    else:
        subprocess.run([sys.executable, "-m", "venv", str(place)], **quiet)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-qq"]
        subprocess.run([*pip, "install", *release.install.split()], **quiet)
        (place / "server.py").write_text(release.program)
    (place / "made").touch()


def command(name: str, release: Release, folder: Path, way: str, port: int) -> list[str]:
    """Return what starts a server."""
    place = folder / name
    kind, *more = way.split()
    if release.bin:
        program = str(place / "node_modules" / ".bin" / release.bin[0])
        last = {"stdio": "stdio", "http": "streamableHttp"}[kind]
        return [program, str(folder) if name == "filesystem" else last]
    return [str(place / "bin" / "python"), str(place / "server.py"), kind, str(port), *more]


class Web:
    """A server over HTTP in a process of its own, which can be started anew."""

    def __init__(self, argv: list[str], port: int) -> None:
        self.argv = argv
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    async def up(self) -> None:
        """Start it and wait until it listens."""
        self.process = subprocess.Popen(  # noqa: ASYNC220
            self.argv,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PORT": str(self.port)},
            start_new_session=True,
        )
        with anyio.fail_after(60):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", self.port)).aclose()
                    return
                except OSError:
                    assert self.process.poll() is None, "the server ended"
                    await anyio.sleep(0.05)

    async def down(self) -> None:
        """Stop it, as a deployment does."""
        process = self.process
        assert process is not None
        os.killpg(process.pid, signal.SIGTERM)
        with anyio.move_on_after(5):
            while process.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@asynccontextmanager
async def serving(argv: list[str], way: str, port: int) -> AsyncGenerator[tuple[Any, Web | None]]:
    """Yield a server's entry for an agent, and what starts it anew if that is not us."""
    if way == "stdio":
        yield {"command": argv[0], "args": argv[1:], "on": True}, None
        return
    web = Web(argv, port)
    await web.up()
    try:
        yield {"url": f"http://127.0.0.1:{port}/mcp", "on": True}, web
    finally:
        await web.down()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def play(lab: Lab, name: str, release: Release, folder: Path, way: str) -> tuple[bool, str]:
    """Play a session with a server; return whether it was usable to the end, and a few figures."""
    port = free_port()
    argv = command(name, release, folder, way, port)
    tool, arguments, wanted = release.tool
    said: list[str] = []
    took: list[float] = []
    pool = ServerPool(timings=Timings())
    try:
        async with serving(argv, way, port) as (entry, web):
            agent = Agent(
                ROUTE, base_url=lab.base_url("anthropic"), pool=pool, mcp_servers={"s": entry}
            )
            began = time.monotonic()
            async with agent.open("session", store="memory://") as session:
                await session.run("hello")
                first = time.monotonic() - began

                async def call() -> None:
                    began = time.monotonic()
                    await session.run(f"/call s__{tool} {arguments}")
                    took.append(time.monotonic() - began)
                    results = [each.data for each in session.log.events]
                    said.append([each.text for each in results if isinstance(each, ToolResult)][-1])

                await call()
                connection = await session.registry.connection("s")
                for _ in range(2):
                    if web is None:
                        assert connection.pid is not None
                        os.kill(connection.pid, signal.SIGKILL)
                        # What is asked in the same moment may or may not have been read.
                        await connection.until(lambda state: state.status == "lost", 5)
                    else:
                        await web.down()
                        await web.up()
                    await call()
                prompts = await connection.ask(lambda link: link.prompts(), 20)
                resources = await connection.ask(lambda link: link.resources(), 20)
                await call()
    finally:
        await pool.aclose()
    others = [isinstance(each, CallOutcome) for each in (prompts, resources)]
    good = all(wanted in each for each in said) and not any(others)
    counts = "?" if any(others) else f"{len(prompts)} prompts, {len(resources)} resources"
    times = " ".join(f"{each:.2f}" for each in took)
    shown = f"first list {first:5.2f} s, calls {times} s; {counts}"
    return good, shown if good else f"{shown}; {said}"


async def main(folder: Path, names: list[str]) -> int:
    """Play all that is asked for; return how many were not usable."""
    failed = 0
    async with open_lab(None) as lab:
        for name in names or RELEASES:
            release = RELEASES[name]
            install(name, release, folder)
            for way in release.ways:
                try:
                    good, shown = await play(lab, name, release, folder, way)
                except Exception as error:
                    good, shown = False, repr(error)[:300]
                failed += not good
                print(f"{'usable' if good else 'FAILED'}  {name:12} {way:20} {shown}", flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *RELEASES])
    given = parser.parse_args()
    os.environ.setdefault("ANTHROPIC_API_KEY", "no key is needed here")
    if shutil.which("npm") is None and not given.names:
        sys.exit("npm is missing; install Node.js, or name the releases to try")
    with tempfile.TemporaryDirectory() as temporary:
        place = (given.folder or Path(temporary)).absolute()
        sys.exit(min(1, anyio.run(main, place, given.names)))
