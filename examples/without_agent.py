"""The log, the fold, the projection and the wire, without our agent: bare httpx2 carries it."""

import sys

import httpx2
from msgspec import Raw

from addendum.agent.header import log_header
from addendum.log.events import (
    AssistantMessage,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Config, Header, ToolSchema
from addendum.prompt.projector import project
from addendum.routes import choose_projection, context, resolve
from addendum.wire.anthropic_messages.build import body
from addendum.wire.anthropic_messages.parse import parse_body
from addendum.wire.apis import facts

CLOCK = ToolSchema("clock", "Tells the time.", Raw(b'{"type":"object","properties":{}}'))
NOTES = ToolSchema("notes", "Keeps a note.", Raw(b'{"type":"object","properties":{}}'))


def talk(base_url: str) -> list[int | None]:
    route = resolve("anthropic:claude-opus-5-5", base_url=base_url)
    epoch = context(route, choose_projection(route))
    config = Config(route.provider, route.model, max_tokens=1000)
    log, read = SessionLog("example"), list[int | None]()
    for turn, tools in enumerate(([CLOCK], [CLOCK, NOTES], [NOTES]), 1):
        log.append(TurnStart(turn))
        log.append(StepStart(turn, 1))
        log.append(UserMessage(turn, f"This is message {turn}. " + "Please remember it. " * 120))
        log_header(log, Header(config, tuple(tools)), first=turn == 1, series=False)
        sent = body(project(log, epoch, facts(route)), config).replace(b'"stream":true,', b"")
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": ",".join(epoch.betas)}
        answer = parse_body(
            httpx2.post(route.endpoint.url, content=sent, headers=headers | {"x-api-key": "key"})
            .raise_for_status().content
        )  # fmt: skip
        log.append(AssistantMessage(turn, 1, route.name, route.wire, native=answer.native))
        log.append(StepEnd(turn, 1))
        log.append(TurnEnd(turn))
        read.append(answer.usage.cache_read)
    return read


if __name__ == "__main__":
    print(talk(sys.argv[1]))
