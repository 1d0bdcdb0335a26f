"""A walk over everything public with wrong values: each is one error of ours that names the value.

What is wrong follows from the annotations, by a pool of values and what an annotation takes of it.
A public class, method or parameter that nobody has put here fails the walk, and so does one that
the documents show.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import inspect
import math
import os
import re
import types
import typing
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import httpx2
import pytest
from msgspec import Meta, Raw, Struct
from tests.agent.stage import CLAUDE, server, stage

import addendum
from addendum import errors
from addendum.agent.agent import Agent
from addendum.agent.calls.tools import SessionTools
from addendum.agent.prompts import SessionPrompts
from addendum.agent.session import Session
from addendum.agent.setup import AgentSetup
from addendum.cache.recording import RecordingTransport
from addendum.errors import AddendumError
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.server import Lab, open_lab
from addendum.log.values import Call, ToolSchema
from addendum.pytest_plugin import CacheLab, assert_stable_prefix
from addendum.routes import choose_projection, context, load, resolve
from addendum.stores import open_store
from addendum.tools.functions import FunctionTool
from addendum.tools.history import ToolUpdate
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec, Timings
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]


def look(city: str) -> str:
    """Look."""
    return city


SCHEMA = ToolSchema("look", "Look.", Raw(b'{"type":"object"}'))

# -- what is public, and what it takes ------------------------------------------------------

MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    name: (getattr(addendum, name), fine)
    for name, fine in {
        "AddContext": {"text": "x"},
        "AddendumTransport": {"inner": httpx2.HTTPTransport()},
        "Agent": {"route": CLAUDE},
        "Approval": {},
        "Ask": {},
        "AsyncAddendumTransport": {"inner": httpx2.AsyncHTTPTransport()},
        "Change": {"arguments": {}},
        "Compaction": {},
        "Decision": {"kind": "approve"},
        "Deny": {},
        "Gateway": {},
        "Hook": {"before": lambda call: None},
        "HookCall": dict(session="s", turn=1, step=1, id="c", name="n", arguments={}),
        "Limits": {},
        "Pending": dict(call_id="c", name="n", arguments="{}", reason="r", definition="d"),
        "Policy": {"action": "ask"},
        "Replace": {"text": "x"},
        "ServerSpec": {"name": "s", "command": ("x",)},
        "Settings": {},
        "ToolContext": dict(session="s", turn=1, step=1, call_id="c", tool="t", state={}),
        "ToolDispatch": {},
        "ToolHistory": {},
        "async_http_client": {},
        "http_client": {},
        "project_tool_updates": dict(messages=(), active_tools=(), mode=None, history=None),
        "resolve_dispatched_tool_call": dict(call=Call("c", "n", "{}"), registry={}, bound=()),
        "subagent": {"agent": Agent(CLAUDE), "name": "helper"},
        "tool": {"function": look},
    }.items()
} | {
    each.__name__: (each, fine)
    for each, fine in (
        (FunctionTool, {"schema": SCHEMA, "function": look}),
        (RecordingTransport, {"inner": httpx2.HTTPTransport(), "path": "calls.jsonl"}),
        (ServerPool, {}),
        (Timings, {}),
        (ToolUpdate, {"message_id": 1}),
        (Transport, {}),
        (TransportSettings, {}),
        (assert_stable_prefix, {"requests": [b'{"messages":[]}']}),
        (choose_projection, {"route": resolve(CLAUDE)}),
        (context, {"route": resolve(CLAUDE), "projection": "rebind"}),
        (find, {"name": "g2"}),
        (load, {"text": ""}),
        (open_lab, {}),
        (open_store, {"url": "memory://"}),
        (resolve, {"name": CLAUDE}),
        (run_scenario, {"scenario": find("g2"), "route": CLAUDE}),
    )
}
"""What a caller makes or calls: by name, with arguments that are right."""

METHODS: dict[type, dict[str, dict[str, Any]]] = {
    Agent: {"open": {}},
    CacheLab: {"base_url": {"provider": "anthropic"}},
    AgentSetup: {"resolve": {"route": CLAUDE}},
    FunctionTool: {"from_schema": {"schema": SCHEMA, "function": lambda arguments: ""}},
    Lab: {
        name: {"provider": "anthropic"}
        for name in ("base_url", "cut_next", "fail_next", "stall_next")
    },
    Session: {
        "compact": {},
        "decide": {"decisions": {}},
        "edit": {"turn": 1, "text": "x"},
        "fork": {},
        "result": {"call_id": "c"},
        "rewind": {},
        "run": {"text": "x"},
        "stream": {"text": "x"},
        "stream_again": {"turn": 1},
        "stream_decide": {"decisions": {}},
        "use": {"route": CLAUDE},
    },
    SessionPrompts: {"list": {}, "text": {"server": "github", "name": "p"}},
    SessionTools: {
        "add": {"tool": look},
        "disable": {"server": "github"},
        "enable": {"server": "github"},
        "on": {"server": "github"},
        "refuse": {"names": "web"},
        "remove": {"name": "web"},
    },
}
"""Public methods that take something."""

TAKE_NOTHING = {
    Session: "aclose keep_alive keep_alive_price pending rehead retry start_series switch_cost "
    "tool_history",
    SessionTools: "redefined",
    ServerSpec: "key",
}
OURS = {
    addendum.AddendumTransport: "close handle_request",
    addendum.AsyncAddendumTransport: "aclose handle_async_request",
    addendum.Gateway: "begin close refuse",
    addendum.GatewayExchange: "end feed start",
    addendum.Approval: "judge",
    addendum.Compaction: "limit room",
    addendum.Hook: "matches",
    addendum.Policy: "fits told",
    AgentSetup: "check new_log",
    FunctionTool: "invoke",
    Lab: "release until_stalled",
    ServerSpec: "redact",
    Transport: "aclose stream",
    ServerPool: "acquire aclose release",
    RecordingTransport: "aclose close handle_async_request handle_request",
}
"""Methods that the loop drives, with values of its own making: nothing is checked in them."""

HANDED_BACK = (
    "CacheBreak GatewayExchange Hints KeepAlive Media NotDispatched Notice Opening Outcome "
    "PinnedTool PromptArgument ReasoningPiece Refused RemotePrompt RemoteResource RemoteTool "
    "RequestDone RequestFigures Resolved ServerPrompt ServerState StreamEvent SubagentEnded "
    "SwitchCost TextPiece ToolEntry ToolFinished ToolProgress ToolRedefined ToolStarted TurnDone "
    "TurnResult TurnStream Usage"
).split()
"""Values that only come back: no public parameter takes one (which is tested). They are made while
an answer streams, or by what is asked for them; errors are raised."""

RAISED = [name for name in addendum.__all__ if hasattr(errors, name)]
CONSTANTS = "RESOURCE_TOOLS TOOL_DISPATCHER_NAME __version__".split()
BY_US = {
    "Call": "a model's call, as its wire reads it; nothing of it is an option",
    "CacheLab": "the fixture gives it",
    "Carrier": "a protocol",
    "Clock": "the lab's time",
    "Event": "an event of a log",
    "NodeStore": "a protocol",
    "Pin": "what a server listed, as a catalogue has it",
    "Provider": "a row of data that `load` reads",
    "Route": "what `resolve` gives",
    "Scenario": "what `find` reads",
    "Script": "what a scenario makes",
    "Session": "what an agent opens",
    "Store": "a protocol",
    "Switches": "what the lab does otherwise, for our own tests",
    "ToolSchema": "checked where a tool is made of it: logs are full of them",
}
"""Classes that public parameters take and that a caller has ready-made."""

UNDER_A_LOOP = (
    *"Config Header SessionLog body facts log_header parse_body project".split(),
    "events as say",
)
"""The lower rooms, for whoever has a loop of their own: they trust what our loop gives them."""

ATTRIBUTES = ("instructions", "conversation_instructions", "turn_instructions")

# -- wrong values ---------------------------------------------------------------------------


class Odd:
    """A value of no type that anything takes."""

    def __repr__(self) -> str:
        return "<odd>"


POOL: dict[str, Any] = {
    "text": "drop",
    "no text": "",
    "number": 3,
    "zero": 0,
    "negative": -1,
    "huge": 10**30,
    "too huge for a float": 10**400,
    "fraction": 1.5,
    "nan": math.nan,
    "infinite": math.inf,
    "true": True,
    "none": None,
    "bytes": b"drop",
    "texts": ["drop"],
    "numbers": [3],
    "nothings": [None],
    "no list": [],
    "dict": {"a": 1},
    "no dict": {},
    "function": look,
    "class": dict,
    "odd": Odd(),
}
NUMBERS = {
    "number",
    "zero",
    "negative",
    "huge",
    "too huge for a float",
    "fraction",
    "nan",
    "infinite",
}


def taken(annotation: Any, meta: Meta | None = None) -> set[str]:
    """What of the pool fits an annotation: an account of its own, beside the checking one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        metas = [each for each in arguments[1:] if isinstance(each, Meta)]
        return taken(arguments[0], metas[0] if metas else meta)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(taken(each, meta) for each in arguments))
    if annotation in (Any, object):
        return set(POOL)
    if annotation is types.NoneType:
        return {"none"}
    if annotation is bool:
        return {"true"}
    if annotation is bytes:
        return {"bytes"}
    if annotation in (int, float):
        whole = {"number", "zero", "negative"} | ({"fraction"} if annotation is float else set())
        return {each for each in whole if _within(POOL[each], meta)}
    if annotation is str or origin is os.PathLike:
        least = 0 if meta is None or meta.min_length is None else meta.min_length
        return {"text"} | ({"no text"} if not least else set())
    if origin in (abc.Callable, type):
        return {"function", "class"} if origin is abc.Callable else {"class"}
    if annotation is FunctionTool or origin is FunctionTool:
        return set()
    if isinstance(origin or annotation, type) and issubclass(origin or annotation, abc.Mapping):
        deep = len(arguments) > 1 and "number" not in taken(arguments[1])
        return {"no dict"} if deep and not _shallow(meta) else {"no dict", "dict"}
    if origin in (tuple, abc.Sequence, abc.Collection, abc.Iterable):
        return _lists(arguments[0], meta)
    return set()


def _within(value: float, meta: Meta | None) -> bool:
    bounds = meta or Meta()
    return all(
        (
            bounds.gt is None or value > bounds.gt,
            bounds.ge is None or value >= bounds.ge,
            bounds.lt is None or value < bounds.lt,
            bounds.le is None or value <= bounds.le,
        )
    )


def _shallow(meta: Meta | None) -> bool:
    return meta is not None and bool((meta.extra or {}).get("shallow"))


def _lists(member: Any, meta: Meta | None) -> set[str]:
    fits = set(POOL) if _shallow(meta) or isinstance(member, typing.TypeVar) else taken(member)
    found = {"no list"} if meta is None or not meta.min_length else set[str]()
    pairs = (("texts", "text"), ("numbers", "number"), ("nothings", "none"))
    return found | {many for many, one in pairs if one in fits}


def words(annotation: Any) -> Iterator[str]:
    """Slips of the pen for each word that an annotation takes."""
    if get_origin(annotation) is Literal:
        every = [each for each in get_args(annotation) if isinstance(each, str)]
        for each in every:
            for slip in (each.upper(), each.title(), f"{each} ", f" {each}", each[:-1], f"{each}s"):
                if slip not in every:
                    yield slip
    elif get_origin(annotation) not in (tuple, abc.Sequence, abc.Collection, abc.Mapping):
        for part in get_args(annotation):
            yield from words(part)


def wrong(annotation: Any) -> list[Any]:
    """The wrong values of an annotation."""
    fits = taken(annotation)
    return [value for name, value in POOL.items() if name not in fits] + list(words(annotation))


def annotations(function: Any) -> dict[str, Any]:
    """The annotations of a callable's parameters, in their order."""
    if isinstance(function, type) and issubclass(function, Struct):
        hints = typing.get_type_hints(function, include_extras=True)
        return {name: hints[name] for name in function.__struct_fields__}
    target = inspect.unwrap(function.__init__ if isinstance(function, type) else function)
    hints = {n: target.__annotations__[n] for n in target.__annotations__ if n != "return"}
    known = target.__globals__ | {"Agent": Agent, "Session": Session, "Lab": Lab}
    alone = types.SimpleNamespace(__annotations__=hints)
    return typing.get_type_hints(alone, known, include_extras=True)


class Named(typing.NamedTuple):
    """A wrong value, and what of it a message names."""

    value: Any
    part: str


ROWS: dict[tuple[str, str], list[Any]] = {
    ("AddendumTransport", "inner"): [3, "x", None],
    ("AsyncAddendumTransport", "inner"): [3, "x", None],
    ("http_client", "inner"): [3, "x"],
    ("async_http_client", "inner"): [3, "x"],
    ("Agent", "route"): ["", "anthropic", Named("nobody:x", "nobody"), "anthropic:nosuch"],
    ("Agent", "base_url"): ["ftp://x", "no address", "http://"],
    ("Agent", "mcp_servers"): [
        "/no/such/file",
        {"s": {"comand": "x"}},
        {"s": {"command": "x", "evn": {}}},
        {"s": {"command": "x", "colour": 1}},
        {"s": {"command": "x", "on": "yes"}},
        {"s": ServerSpec(name="t", command=("x",))},
        {"mcpServers": {"s": {"url": "x"}}},
        {"mcpServers": {}, "s": {"command": "x"}},
        [ServerSpec(name="s", command=("x",)), ServerSpec(name="s", command=("y",))],
    ],
    ("Agent", "disabled"): [["nosuch"]],
    ("Agent", "tools"): [
        [look, look],
        Named([lambda x: x], "<lambda>"),
        [{"name": "x"}],
        [addendum.RESOURCE_TOOLS],
    ],
    ("Agent", "hooks"): [[addendum.Hook("nosuch", before=look)]],
    ("Agent", "approval"): [
        addendum.Approval((addendum.Policy("deny", "nosuch"),)),
        addendum.Approval((addendum.Policy("deny", server="nosuch"),)),
    ],
    ("Agent", "catalogue"): ["/no/such/file"],
    ("Agent", "on_redefinition"): ["ask"],
    ("Agent.open", "exclude"): [["wbe"]],
    ("Agent.open", "session_id"): ["", "a/b", "a\nb", Named("x" * 201, "xxx")],
    ("Agent.open", "store"): [
        Named("", "scheme"),
        "nosuch://x",
        "sqlite:",
        Named("drop", "scheme"),
    ],
    ("AgentSetup.resolve", "route"): ["", "drop"],
    ("CacheLab.base_url", "provider"): ["nosuch", ""],
    ("Lab.base_url", "provider"): ["nosuch"],
    ("Decision", "kind"): ["edit"],
    ("Decision", "arguments"): [{}],
    ("FunctionTool.from_schema", "schema"): [
        Named(ToolSchema("a", "", Raw(b"[]")), "ToolSchema('a')"),
        Named(ToolSchema("a", "", Raw(b"{")), "ToolSchema('a')"),
        Named(ToolSchema("a", 5, Raw(b"{}")), "description=5"),  # type: ignore[arg-type]
        Named(ToolSchema("a", "", {}), "parameters={}"),  # type: ignore[arg-type]
    ],
    ("Hook", "tools"): [(), ("a", "")],
    ("Hook", "before"): [None],
    ("RecordingTransport", "inner"): [None, "x", object()],
    ("RecordingTransport", "path"): [Named("/no/such/calls.jsonl", "/no/such")],
    ("ServerSpec", "command"): [("",), ()],
    ("ServerSpec", "url"): ["x", "ftp://x"],
    ("ServerSpec", "name"): ["a\nb"],
    ("ServerSpec", "env"): [{"KEY": "secret"}, [("KEY",)], [("KEY", 5)], ["KEY=secret"]],
    ("ServerSpec", "headers"): [{"KEY": "secret"}, [("KEY", "secret", "x")]],
    ("Session.edit", "turn"): [0, -1, 7],
    ("Session.fork", "turn"): [0, -1, 7],
    ("Session.fork", "session_id"): ["", "a/b"],
    ("Session.rewind", "turns"): [0, -1, 7],
    ("Session.run", "text"): [Named("", "empty"), Named(" \n", "empty")],
    ("Session.compact", "summary"): [Named(" ", "summary")],
    ("Session.result", "call_id"): ["nosuch", ""],
    ("Session.stream_again", "turn"): [0, -1, 7],
    ("Session.use", "route"): ["", "drop", "nosuch:route", "anthropic:nosuch"],
    ("SessionPrompts.list", "server"): ["nosuch"],
    ("SessionPrompts.text", "server"): ["nosuch"],
    ("SessionTools.add", "tool"): [Named(lambda x: x, "<lambda>"), Named(type(look), "'function'")],
    ("SessionTools.disable", "server"): ["gihub"],
    ("SessionTools.enable", "server"): ["gihub"],
    ("SessionTools.on", "server"): ["gihub"],
    ("SessionTools.refuse", "names"): ["wbe", "gihub__t0"],
    ("SessionTools.remove", "name"): ["wbe"],
    ("Settings", "stop"): [("a", ""), "END"],
    ("subagent", "name"): ["a b", "", "x" * 65],
    ("subagent", "exclude"): [["nosuch"], "nosuch"],
    ("tool", "name"): ["a b", "call_tool", "x" * 65],
    ("assert_stable_prefix", "allow"): [["nosuch"]],
    ("context", "ttl"): ["auto", "2h"],
    ("find", "name"): ["nosuch", "/no/such.yaml"],
    ("load", "text"): [Named("no toml", "column 4"), Named("provider = 5", "$.provider")],
    ("open_lab", "port"): [65_536],
    ("open_store", "url"): [Named("", "scheme"), "nosuch://x", "sqlite:", Named("drop", "scheme")],
    ("resolve", "name"): [
        "",
        "drop",
        Named("nobody:x", "nobody"),
        Named(f"{CLAUDE}+magic", "+magic"),
        Named("x" * 400, "xxx"),
    ],
    ("resolve", "base_url"): ["ftp://x", "drop", Named("http://me:secret@host", "host")],
    ("run_scenario", "route"): ["", "drop"],
}
"""Wrong values that no annotation tells."""

RIGHT: dict[tuple[str, str], list[Any]] = {
    ("Agent.open", "session_id"): ["drop"],
    ("Agent.open", "parent"): ["drop", ""],
}


FREE = {("ServerSpec", "server"), ("ToolContext", "host")}
"""Parameters that take anything: what is wrong with one is told where it is used."""


def rows(label: str, function: Any) -> Iterator[tuple[str, Any, str]]:
    """The parameters of something public, each with a value that is wrong and what is named."""
    for name, annotation in annotations(function).items():
        free = annotation is Any or (label, name) in FREE
        for value in [] if free else wrong(annotation):
            yield name, value, ""
        for row in ROWS.get((label, name), []):
            value, part = row if isinstance(row, Named) else (row, "")
            yield name, value, part


def said(error: AddendumError, name: str, value: Any, part: str) -> None:
    """Fail unless an error is one line that names the value, or what of it is wrong."""
    line = str(error)
    assert line == " ".join(line.split()) and 15 <= len(line) <= 900, line
    assert "secret" not in line
    inner = re.findall(r"nosuch|wbe|look|comand|evn|colour|'s'", repr(value))
    named = [part] if part else [f"({name}", f"{name}=", repr(value), *inner]
    if isinstance(value, str) and value.strip() and not part:
        named.append(value.strip())
    assert any(each in line for each in named), (line, named)


def attempt(function: Any, fine: dict[str, Any], name: str, value: Any) -> Any:
    """Call something with one wrong value."""
    target = inspect.unwrap(function)
    given = fine | {name: value}
    ways = ("command", "url", "server") if function is ServerSpec else ()
    if name in ways[1:]:
        given.pop("command", None)
    first: list[Any] = []
    if not isinstance(function, type):
        for parameter in inspect.signature(target).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                if parameter.name in given:
                    first.append(given.pop(parameter.name))
    return function(*first, **given)


async def settled(result: Any) -> None:
    """Go as far as a caller would: await, enter, iterate."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, contextlib.AbstractAsyncContextManager):
        async with result:
            pass
    elif isinstance(result, AsyncGenerator):
        try:
            async for _ in result:
                pass
        finally:
            await result.aclose()


async def fell(function: Any, fine: dict[str, Any], name: str, value: Any, part: str) -> str:
    """Return what went wrong with the walk itself; empty if the value was refused as it must be."""
    try:
        await settled(attempt(function, fine, name, value))
    except AddendumError as error:
        try:
            said(error, name, value, part)
        except AssertionError as wrong:
            return f"is not named: {wrong}"
        return ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"raised {type(error).__name__}: {error}"
    return "was taken"


def right(label: str, name: str, value: Any) -> bool:
    return any(value == each and type(value) is type(each) for each in RIGHT.get((label, name), []))


async def walk(label: str, function: Any, fine: dict[str, Any]) -> list[str]:
    """Try every wrong value of something public; return what went wrong with that."""
    tried: set[str] = set()
    wrongs: list[str] = []
    for name, value, part in rows(label, function):
        if not right(label, name, value):
            tried.add(name)
            if why := await fell(function, fine, name, value, part):
                wrongs.append(f"{label}({name}={value!r}) {why}")
    untried = {name for name in annotations(function) if (label, name) not in FREE} - tried
    return wrongs + [f"{label}({name}=...): no wrong value is known" for name in sorted(untried)]


@pytest.mark.parametrize("label", sorted(MADE))
async def test_a_wrong_value_is_told_where_it_is_given(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrongs = await walk(label, *MADE[label])
    assert not wrongs, "\n".join(wrongs)


async def test_a_wrong_argument_of_a_method_is_told_and_changes_nothing() -> None:
    wrongs: list[str] = []
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.run("two")
            before = len(session.log)
            receivers: dict[type, Any] = {
                Agent: agent,
                AgentSetup: agent.setup,
                CacheLab: CacheLab(here.lab, {}),
                FunctionTool: FunctionTool,
                Lab: here.lab,
                Session: session,
                SessionPrompts: session.prompts,
                SessionTools: session.tools,
            }
            for kind, methods in METHODS.items():
                for name, fine in methods.items():
                    method = getattr(receivers[kind], name)
                    wrongs += await walk(f"{kind.__name__}.{name}", method, fine)
            for name in ATTRIBUTES:
                for value in (5, b"x", ["x"], *([] if name.startswith("turn") else [None])):
                    with pytest.raises(AddendumError, match=name):
                        setattr(session, name, value)
            assert len(session.log) == before
            await session.run("three")
    assert not wrongs, "\n".join(wrongs)


# -- that nothing is left out ---------------------------------------------------------------


def test_everything_public_is_walked_or_only_handed_back() -> None:
    named = {*MADE, *HANDED_BACK, *CONSTANTS, *BY_US, *RAISED}
    assert set(addendum.__all__) <= named
    assert not set(HANDED_BACK) & set(MADE)


def test_every_public_method_is_walked_or_ours() -> None:
    values = [made for made, _ in MADE.values() if isinstance(made, type)]
    for kind in {*METHODS, *values}:
        there = {
            name
            for name, each in inspect.getmembers(kind)
            if not name.startswith("_") and callable(each) and name not in ATTRIBUTES
        }
        inherited = {name for base in kind.__mro__[1:] for name in vars(base)}
        own = {name for name in there if name not in inherited or name in vars(kind)}
        listed = {*METHODS.get(kind, {}), *TAKE_NOTHING.get(kind, "").split()}
        assert own <= listed | set(OURS.get(kind, "").split()), (kind, own - listed)
        for name in TAKE_NOTHING.get(kind, "").split():
            assert not annotations(getattr(kind, name)), (kind, name)


def parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for each in get_args(annotation):
        yield from parts(each)


def test_what_is_only_handed_back_is_taken_by_nothing() -> None:
    entries = [made for made, _ in MADE.values()]
    entries += [getattr(kind, name) for kind, names in METHODS.items() for name in names]
    hints = [hint for each in entries for hint in annotations(each).values()]
    taken_types = {part for hint in hints for part in parts(hint) if isinstance(part, type)}
    assert not {getattr(addendum, name) for name in HANDED_BACK} & taken_types


def test_what_a_caller_has_to_make_is_walked_too() -> None:
    """Classes of ours that a public parameter takes are walked, or made by us alone."""
    for each, _ in MADE.values():
        for name, hint in annotations(each).items():
            for part in parts(hint):
                if isinstance(part, type) and part.__module__.startswith("addendum"):
                    assert part.__name__ in {*MADE, *BY_US}, (each, name, part)


def test_what_the_documents_show_is_walked_too() -> None:
    shown: set[str] = set()
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py")]:
        for found in re.finditer(
            r"^from addendum[\w.]* import (\(.*?\)|[^\n(]+)", file.read_text(), re.M | re.S
        ):
            shown |= {each.strip() for each in found[1].strip("()").split(",") if each.strip()}
    listed = {*MADE, *HANDED_BACK, *CONSTANTS, *BY_US, *RAISED, *UNDER_A_LOOP}
    assert shown <= listed, shown - listed
