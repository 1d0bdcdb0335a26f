"""The scenario language: a conversation, its tools and servers, and what is switched when.

A scenario is a YAML file (`addendum.lab.scenario_file` reads it). Where it holds text it may give
`{text: ..., tokens: N}`: filler of about N tokens that begins with the text.

=====================  =====================================================================
step                   what happens
=====================  =====================================================================
user, model            a turn; `model` has one entry a model request
enable, disable        a server is switched on or off
add_tool, remove_tool  a function tool comes or goes
redefine               a function tool or a server's tool changes: `{name, what is new}`
drop, back             a server's connection is lost, and can be made again
set                    instructions change, of whichever kind
compact                the conversation is summarised by one model request
rewind                 the last turns are taken back
fork                   the conversation goes on in a child; `main` goes on being its parent
restart                the session is closed and opened again from the store
route                  it goes on with another provider or model
conversation           another session of the same agent; the first is `main`
decide                 calls that wait for a person are decided; a tool that is named in any
                       such step is asked about
=====================  =====================================================================
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from addendum.lab.script import Entry, Script, ScriptStep
from addendum.routes import TailChoice

MAIN = "main"
"""Name of the conversation that a scenario begins with."""

EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
"""Schema of a tool without parameters."""


class CannedFunction(Struct, frozen=True):
    """A tool that always answers the same; a function tool, or one of a server.

    Attributes:
        name: Its name.
        description: What the model reads of it.
        parameters: Its JSON schema, an object.
        result: What it answers.
        defer_loading: Whether it is kept out of the head (function tools only).
        disabled: Whether it is bound and refused (function tools of the agent only).
        waits_for: A server whose list has to change, since the turn began, before it answers.
    """

    name: str
    description: str = ""
    parameters: Raw = EMPTY_SCHEMA
    result: str = "done"
    defer_loading: bool = False
    disabled: bool = False
    waits_for: str | None = None


class ScenarioServer(Struct, frozen=True):
    """An MCP server: a real one by command or address, or a real one made of canned tools.

    Attributes:
        name: Its name.
        command: Program and arguments; `python` is the interpreter that runs addendum.
        url: Address of a streamable HTTP endpoint.
        tools: What a server in this process lists.
        instructions: What that server says about its use.
        start: Whether it is on from the start.
        repository: Whether it runs in a Git repository that is made for the run.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    tools: tuple[CannedFunction, ...] = ()
    instructions: str | None = None
    start: bool = False
    repository: bool = False

    @property
    def canned(self) -> bool:
        """Whether it is made of canned tools, in this process."""
        return not self.command and self.url is None


class Say(Struct, frozen=True):
    """A turn: what the person writes, and the model's answers, one a request."""

    user: str
    entries: tuple[Entry, ...]


class Toggle(Struct, frozen=True):
    """A server is switched on or off."""

    server: str
    on: bool


class AddTool(Struct, frozen=True):
    """A function tool is added."""

    tool: CannedFunction


class RemoveTool(Struct, frozen=True):
    """A function tool is removed."""

    name: str


class Redefine(Struct, frozen=True):
    """A tool changes: a function tool, or with `server` one of a canned server.

    Attributes:
        tool: The tool as it is from now on.
        server: Its server, if it has one.
    """

    tool: CannedFunction
    server: str | None = None


class Reach(Struct, frozen=True):
    """A canned server's connection is lost, or can be made again."""

    server: str
    up: bool


class SetTexts(Struct, frozen=True):
    """Instructions change; what is unset stays."""

    instructions: str | UnsetType = UNSET
    conversation_instructions: str | UnsetType = UNSET
    turn_instructions: str | UnsetType | None = UNSET


class Compact(Struct, frozen=True):
    """The model is asked for a summary, and answers with this one."""

    summary: str


class Rewind(Struct, frozen=True):
    """The last turns are taken back."""

    turns: int


class Fork(Struct, frozen=True):
    """The conversation goes on in a child session, under a name of its own."""

    name: str


class Restart(Struct, frozen=True):
    """The session is closed and opened again."""


class MoveTo(Struct, frozen=True):
    """The session goes on with another route."""

    route: str


class Converse(Struct, frozen=True):
    """Another conversation goes on, or begins."""

    name: str


Kind: TypeAlias = Literal["approve", "deny", "edit", "respond"]
"""What may be decided of a call."""


class Verdict(Struct, frozen=True):
    """What is decided of the waiting calls of one tool.

    Attributes:
        kind: `approve`, `deny`, `edit` or `respond`.
        tool: The tool: its name, or a server's own name for it.
        arguments: What it runs with instead, for `edit`: a JSON object.
        text: The reason of a denial, or the response.
    """

    kind: Kind
    tool: str
    arguments: Raw | None = None
    text: str = ""


class Decide(Struct, frozen=True):
    """The calls that wait for a person are decided, all of them at once."""

    verdicts: tuple[Verdict, ...]


Step: TypeAlias = (
    Say
    | Toggle
    | AddTool
    | RemoveTool
    | Redefine
    | Reach
    | SetTexts
    | Compact
    | Rewind
    | Fork
    | Restart
    | MoveTo
    | Converse
    | Decide
)


class Scenario(Struct, frozen=True):
    """A whole scenario.

    Attributes:
        name: Its name.
        tail: Where per-turn instructions stand.
        instructions: Static instructions.
        conversation_instructions: Those of one conversation.
        turn_instructions: Those of the current turn, if any.
        tools: The agent's function tools, in order.
        servers: Its servers, in order.
        steps: What happens.
    """

    name: str
    tail: TailChoice = "auto"
    instructions: str = ""
    conversation_instructions: str = ""
    turn_instructions: str | None = None
    tools: tuple[CannedFunction, ...] = ()
    servers: tuple[ScenarioServer, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def restarts(self) -> bool:
        """Whether a session is opened again from the store."""
        return any(isinstance(step, Restart) for step in self.steps)

    @property
    def asked(self) -> tuple[str, ...]:
        """The tools whose calls wait for a decision."""
        steps = (step for step in self.steps if isinstance(step, Decide))
        return tuple(sorted({each.tool for step in steps for each in step.verdicts}))

    def script(self) -> Script:
        """Return what the lab's model says."""
        steps: list[ScriptStep] = []
        places: dict[str, int] = {}
        live: dict[str, list[str]] = {MAIN: []}
        now = MAIN
        for step in self.steps:
            now = follow(live, now, step)
            if isinstance(step, Say):
                places[step.user] = len(steps)
                steps.append(ScriptStep(step.user, step.entries))
            elif isinstance(step, Compact):
                at = places[live[now][-1]]
                steps[at] = msgspec.structs.replace(steps[at], summary=step.summary)
                live[now].clear()
        return Script(tuple(steps))


def follow(live: dict[str, list[str]], now: str, step: Step) -> str:
    """Follow which user texts each conversation still has; return which one goes on.

    Args:
        live: User texts by conversation; changed. A compaction's are left for the caller.
        now: The conversation that the step is in.
        step: The step.
    """
    if isinstance(step, Say):
        live[now].append(step.user)
    elif isinstance(step, Rewind):
        del live[now][-step.turns :]
    elif isinstance(step, Fork):
        live[step.name] = list(live[now])
        return step.name
    elif isinstance(step, Converse):
        live.setdefault(step.name, [])
        return step.name
    return now
