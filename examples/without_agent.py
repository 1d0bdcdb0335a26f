"""The log, the fold, the projection and the wire, without our agent: bare httpx2 carries it."""

import sys

import httpx2
from msgspec import Raw

from addendum.log import events as say
from addendum.log.headers import log_header
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
    epoch, config = context(route, choose_projection(route)), Config("anthropic", route.model)
    headers = {**dict(route.endpoint.headers), "anthropic-beta": ",".join(epoch.betas)}
    headers["x-api-key"] = "key"
    log, read = SessionLog("example"), list[int | None]()
    for turn, tools in enumerate(([CLOCK], [CLOCK, NOTES], [NOTES]), 1):
        log.append(say.TurnStart(turn))
        log.append(say.StepStart(turn, 1))
        log.append(say.UserMessage(turn, "Remember it. " * 200))
        log_header(log, Header(config, tuple(tools)), first=turn == 1, series=False)
        sent = body(project(log, epoch, facts(route)), config, stream=False)
        answer = parse_body(httpx2.post(route.endpoint.url, content=sent, headers=headers).content)
        log.append(say.AssistantMessage(turn, 1, route.name, route.wire, native=answer.native))
        log.append(say.StepEnd(turn, 1))
        log.append(say.TurnEnd(turn))
        read.append(answer.usage.cache_read)
    return read


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: without_agent.py BASE_URL; `addendum lab` prints that of anthropic")
    print(talk(sys.argv[1]))
