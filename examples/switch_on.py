"""Switch an MCP server on in the middle of a conversation.

Needs a key for the route in the environment and `pip install mcp-server-git`. What stands between
the two marks is the example of the READMEs.
"""

# [readme]
import asyncio
import sys

from addendum import Agent

git = {"command": [sys.executable, "-m", "mcp_server_git"]}
agent = Agent("anthropic:claude-opus-5-5", instructions="Answer briefly.", mcp_servers={"git": git})


async def main() -> None:
    async with agent.open("s1", store="sqlite:///chat.db") as session:
        await session.run("Hello!")
        await session.tools.enable("git")  # appended to the history; nothing before it changes
        print((await session.run("What did the last commit in this folder change?")).text)


if __name__ == "__main__":
    asyncio.run(main())
# [/readme]
