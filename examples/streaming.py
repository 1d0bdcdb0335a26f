"""One turn of a chat service: text as it comes, calls, figures, decisions, errors.

Needs a key for the route in the environment.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

from addendum import (
    AddendumError,
    Agent,
    Notice,
    RequestDone,
    Session,
    TextPiece,
    ToolFinished,
    ToolStarted,
    TurnDone,
    tool,
)


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Rain in {city}."


# [turn]
async def answer(session: Session, text: str) -> AsyncGenerator[dict[str, object]]:
    """Run one turn and give what a page needs, as it happens."""
    try:
        async for event in session.stream(text):
            match event:
                case TextPiece(piece):
                    yield {"text": piece}
                case ToolStarted(_, name, arguments):
                    yield {"calls": name, "with": arguments}
                case ToolFinished(_, name, result, failed):
                    yield {"result": result, "of": name, "failed": failed}
                case Notice(notice):  # a break, a retry, a server that is not there
                    yield {"notice": notice}
                case RequestDone(figures):
                    yield {"read": figures.usage.cache_read, "of": figures.usage.prompt}
                case TurnDone(result) if result.waiting:  # session.decide(...) goes on from here
                    yield {"asks": [call.name for call in result.waiting]}
                case _:
                    pass
    except AddendumError as error:  # one line that says what to do; the session goes on
        yield {"error": str(error)}


# [/turn]


async def main() -> None:
    agent = Agent("anthropic:claude-opus-5-5", instructions="Answer briefly.", tools=[weather])
    async with agent.open(store="memory://") as session:
        async for each in answer(session, " ".join(sys.argv[1:]) or "How is the weather in Oslo?"):
            print(each)


if __name__ == "__main__":
    asyncio.run(main())
