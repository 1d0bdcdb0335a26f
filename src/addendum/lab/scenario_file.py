"""Reads a scenario file, strictly.

Whatever is not known, of the wrong kind or impossible (a second equal user text, a rewind of more
turns than there are) is one line that names file, line and place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import UNSET, Raw

from addendum import encoding
from addendum.checked import Location, checks_arguments
from addendum.errors import ConfigurationError, ContentError
from addendum.lab.filler import fill
from addendum.lab.places import Place, Value, read_yaml
from addendum.lab.scenario import (
    EMPTY_SCHEMA,
    MAIN,
    AddTool,
    CannedFunction,
    Compact,
    Converse,
    Decide,
    Fork,
    Kind,
    MoveTo,
    Reach,
    Redefine,
    RemoveTool,
    Restart,
    Rewind,
    Say,
    Scenario,
    ScenarioServer,
    SetTexts,
    Step,
    Toggle,
    Verdict,
    follow,
)
from addendum.lab.script import Entry, Form, ScriptCall
from addendum.log.values import TailMode
from addendum.paths import there
from addendum.routes import TailChoice
from addendum.tools.dispatcher import RESERVED_NAMES
from addendum.tools.names import check_function_names

MAX_TOKENS = 200_000
"""Tokens that one filler may have."""

MAX_REPEAT = 1_000
"""How often something may be repeated."""

_TAILS = ("auto", *get_args(TailMode))


@checks_arguments
def load(path: Location, values: Mapping[str, Value] | None = None) -> Scenario:
    """Read a scenario file.

    Args:
        path: The file.
        values: Values for its `variables`.

    Raises:
        ConfigurationError: It cannot be read or says something that cannot be; one line with
            file, line and place.
    """
    return _Reader().scenario(read_yaml(Path(path), values or {}))


def bundled() -> tuple[str, ...]:
    """Return the names of the scenarios that come with addendum."""
    folder = resources.files("addendum.lab") / "scenarios"
    found = [each.name for each in folder.iterdir() if each.name.endswith(".yaml")]
    return tuple(sorted(name.removesuffix(".yaml") for name in found))


@checks_arguments
def find(name: str, values: Mapping[str, Value] | None = None) -> Scenario:
    """Read a scenario by the path of its file, or one that comes with addendum by its name.

    Raises:
        ConfigurationError: There is none, or as `load`.
    """
    if name in bundled():
        with resources.as_file(resources.files("addendum.lab") / "scenarios") as folder:
            return load(folder / f"{name}.yaml", values)
    if not there(name) and "/" not in name and not Path(name).suffix:
        known = ", ".join(bundled())
        raise ConfigurationError(f"no scenario {name[:60]!r}; there are {known}, or name a file")
    return load(name, values)


class _Reader:
    """One pass over a file; it keeps what can be there at each step."""

    def __init__(self) -> None:
        self._functions: dict[str, CannedFunction] = {}
        self._servers: dict[str, ScenarioServer] = {}
        self._listed: dict[str, dict[str, CannedFunction]] = {}
        self._live: dict[str, list[str]] = {MAIN: []}
        self._now = MAIN
        self._texts: set[str] = set()
        self._forks = 0

    def scenario(self, root: Place) -> Scenario:
        given = root.fields(
            ("name", "steps"),
            (
                "variables",
                "tail",
                "instructions",
                "conversation_instructions",
                "turn_instructions",
                "tools",
                "servers",
            ),
        )
        name = _name(given["name"])
        tail: TailChoice = _one_of(given["tail"], _TAILS) if "tail" in given else "auto"
        servers = self._read_servers(given.get("servers"))
        tools = self._tools(given.get("tools"), own=True)
        self._functions.update({tool.name: tool for tool in tools})
        steps = tuple(step for place in given["steps"].items() for step in self._step(place))
        if not any(isinstance(step, Say) for step in steps):
            raise given["steps"].wrong("no step has a user text; write at least one")
        return Scenario(
            name,
            tail,
            _text(given.get("instructions")) or "",
            _text(given.get("conversation_instructions")) or "",
            _text(given.get("turn_instructions"), null=True),
            tools,
            servers,
            steps,
        )

    # -- tools and servers ------------------------------------------------------------------

    def _tools(self, place: Place | None, *, own: bool) -> tuple[CannedFunction, ...]:
        found: dict[str, CannedFunction] = {}
        for each in place.items() if place is not None else ():
            for _, one in each.repeated(MAX_REPEAT):
                tool = _tool(one, own=own, added=False)
                if tool.waits_for is not None:
                    self._server(one.entries()["waits_for"])
                if tool.name in found:
                    raise one.wrong(f"there are two tools named {tool.name!r}; rename one")
                found[tool.name] = tool
        return tuple(found.values())

    def _read_servers(self, place: Place | None) -> tuple[ScenarioServer, ...]:
        for name, each in place.entries().items() if place is not None else ():
            if not name or not name.isprintable() or len(name) > 100:
                raise each.wrong("a server's name is 1 to 100 printable characters")
            given = each.fields(
                (), ("command", "url", "tools", "instructions", "start", "repository")
            )
            if len({"command", "url", "tools"} & given.keys()) != 1:
                raise each.wrong("a server has exactly one of command, url and tools")
            for key, other in (("instructions", "tools"), ("repository", "command")):
                if key in given and other not in given:
                    raise given[key].wrong(f"goes with {other!r} only")
            command = given["command"].items() if "command" in given else []
            if "command" in given and not command:
                raise given["command"].wrong("must name a program")
            server = ScenarioServer(
                name,
                tuple(part.text() for part in command),
                given["url"].text() if "url" in given else None,
                self._tools(given.get("tools"), own=False),
                _text(given.get("instructions")),
                _one_of(given["start"], ("on", "off")) == "on" if "start" in given else False,
                given["repository"].flag() if "repository" in given else False,
            )
            self._servers[name] = server
            self._listed[name] = {tool.name: tool for tool in server.tools}
        return tuple(self._servers.values())

    def _server(self, place: Place, *, canned: bool = False) -> str:
        name = place.text()
        server = self._servers.get(name)
        if server is None:
            there = ", ".join(self._servers) or "none"
            raise place.wrong(f"there is no server {name[:60]!r}; there are: {there}")
        if canned and not server.canned:
            raise place.wrong(f"{name} is no server made of `tools`; only such a one can do this")
        return name

    # -- steps ------------------------------------------------------------------------------

    def _step(self, place: Place) -> Iterator[Step]:
        for _, one in place.repeated(MAX_REPEAT):
            step = self._read_step(one)
            if isinstance(step, Rewind) and step.turns > len(self._live[self._now]):
                there = len(self._live[self._now])
                raise one.wrong(f"cannot rewind {step.turns} turns; the conversation has {there}")
            if isinstance(step, Compact) and not self._live[self._now]:
                raise one.wrong("there is nothing to compact; put a user step in front of it")
            self._now = follow(self._live, self._now, step)
            if isinstance(step, Compact):
                self._live[self._now].clear()
            yield step

    def _read_step(self, place: Place) -> Step:
        given = place.entries()
        kinds = [name for name in given if name not in ("model", "repeat")]
        if len(kinds) != 1:
            raise place.wrong(f"a step does one thing; this has {', '.join(kinds) or 'none'}")
        kind = kinds[0]
        value = given[kind]
        if "model" in given and kind != "user":
            raise given["model"].wrong("goes with a user step only")
        match kind:
            case "user":
                return self._say(value, given.get("model"))
            case "enable" | "disable":
                return Toggle(self._server(value), kind == "enable")
            case "add_tool":
                tool = _tool(value, own=False, added=True)
                self._functions[tool.name] = tool
                return AddTool(tool)
            case "remove_tool":
                if value.text() not in self._functions:
                    raise value.wrong("there is no function tool of this name")
                del self._functions[value.text()]
                return RemoveTool(value.text())
            case "redefine":
                return self._redefine(value)
            case "drop" | "back":
                return Reach(self._server(value, canned=True), kind == "back")
            case "set":
                return _texts(value)
            case "compact":
                return Compact(_text(value.fields(("summary",))["summary"]) or "")
            case "rewind":
                return Rewind(value.fields(("turns",))["turns"].integer(1, MAX_REPEAT))
            case "fork" | "restart":
                if not value.flag():
                    raise value.wrong("must be true; leave the step out otherwise")
                return self._fork() if kind == "fork" else Restart()
            case "route":
                return MoveTo(value.text())
            case "conversation":
                return Converse(_name(value))
            case "decide":
                return Decide(_verdicts(value))
            case _:
                raise value.wrong(_no_step(kind))

    def _fork(self) -> Fork:
        self._forks += 1
        return Fork("fork" if self._forks == 1 else f"fork{self._forks}")

    def _say(self, place: Place, model: Place | None) -> Say:
        text = _text(place) or ""
        if not text.strip():
            raise place.wrong("the user text is empty; write something")
        if text in self._texts:
            raise place.wrong("this user text is there already; each has to be unique")
        self._texts.add(text)
        if model is None:
            raise place.wrong("the step has no `model`; give one entry a model request")
        entries = [
            entry
            for each in model.items()
            for _, one in each.repeated(MAX_REPEAT)
            if (entry := _entry(one)) is not None
        ]
        if not entries or entries[-1].calls:
            raise model.wrong("the last entry has to be a text, which ends the turn")
        if any(not entry.calls for entry in entries[:-1]):
            raise model.wrong("only the last entry may be without calls: it ends the turn")
        return Say(text, tuple(entries))

    def _redefine(self, place: Place) -> Redefine:
        given = place.fields(("name",), ("description", "parameters", "result"))
        if len(given) == 1:
            raise place.wrong("say what is new: description, parameters or result")
        name = given["name"].text()
        server, old = self._known(given["name"], name)
        new = CannedFunction(
            old.name,
            (_text(given.get("description")) if "description" in given else None)
            or old.description,
            _schema(given["parameters"]) if "parameters" in given else old.parameters,
            (_text(given.get("result")) if "result" in given else None) or old.result,
            old.defer_loading,
            old.disabled,
            old.waits_for,
        )
        if server is None:
            self._functions[name] = new
        else:
            self._listed[server][old.name] = new
        return Redefine(new, server)

    def _known(self, place: Place, name: str) -> tuple[str | None, CannedFunction]:
        if name in self._functions:
            return None, self._functions[name]
        found = [
            (server, tool)
            for server, tools in self._listed.items()
            for tool in tools.values()
            if name in (tool.name, f"{server}__{tool.name}")
        ]
        if len(found) != 1:
            why = (
                "more than one tool has"
                if found
                else "no function tool or canned server's tool has"
            )
            raise place.wrong(f"{why} the name {name[:60]!r}; write SERVER__TOOL for a server's")
        return found[0]


# -- parts ----------------------------------------------------------------------------------

_TOOL = ("description", "parameters", "result", "repeat")
_KINDS: tuple[Kind, ...] = get_args(Kind)
_OWN = ("defer_loading", "disabled", "waits_for")


def _tool(place: Place, *, own: bool, added: bool) -> CannedFunction:
    """Read a tool: the agent's own, one that is added, or a server's."""
    given = place.fields(("name",), (*_TOOL, *_OWN) if own else _TOOL)
    name = given["name"].text()
    if own or added:
        try:
            check_function_names([name], RESERVED_NAMES)
        except ConfigurationError as error:
            raise given["name"].wrong(str(error)) from None
    elif not name or not name.isprintable() or len(name) > 128:
        raise given["name"].wrong("a tool's name is 1 to 128 printable characters")
    return CannedFunction(
        name,
        _text(given.get("description")) or "",
        _schema(given["parameters"]) if "parameters" in given else EMPTY_SCHEMA,
        _text(given.get("result")) or "done",
        given["defer_loading"].flag() if "defer_loading" in given else False,
        given["disabled"].flag() if "disabled" in given else False,
        given["waits_for"].text() if "waits_for" in given else None,
    )


def _schema(place: Place) -> Raw:
    value = place.json()
    if not isinstance(value, dict):
        raise place.wrong("must be a JSON schema, an object")
    schema = cast(dict[str, Any], value)
    if schema.get("type", "object") != "object":
        raise place.wrong('must be a schema of type "object"')
    try:
        return Raw(encoding.encode({"type": "object", **schema}))
    except ContentError as error:
        raise place.wrong(str(error)) from None


def _entry(place: Place) -> Entry | None:
    """Read one answer of the model; None if it would make calls that are repeated no time."""
    given = place.fields((), ("text", "thinking", "calls", "repeat"))
    text, thinking = _text(given.get("text")) or "", _text(given.get("thinking")) or ""
    calls: list[ScriptCall] = []
    for each in given["calls"].items() if "calls" in given else ():
        for _, one in each.repeated(MAX_REPEAT):
            part = one.fields(("tool",), ("arguments", "form", "repeat"))
            arguments: Any = part["arguments"].json() if "arguments" in part else {}
            if not isinstance(arguments, dict):
                raise part["arguments"].wrong("must be an object")
            form: Form = _one_of(part["form"], get_args(Form)) if "form" in part else "auto"
            calls.append(ScriptCall(part["tool"].text(), cast(dict[str, Any], arguments), form))
    if not calls and "calls" in given and not text:
        return None
    if not calls and not text:
        raise place.wrong("an entry has a text or calls")
    return Entry(text, thinking, tuple(calls))


def _texts(place: Place) -> SetTexts:
    given = place.fields((), ("instructions", "conversation_instructions", "turn_instructions"))
    if not given:
        raise place.wrong("say which instructions change")
    return SetTexts(
        _text(given["instructions"]) or "" if "instructions" in given else UNSET,
        _text(given["conversation_instructions"]) or ""
        if "conversation_instructions" in given
        else UNSET,
        _text(given["turn_instructions"], null=True) if "turn_instructions" in given else UNSET,
    )


def _verdicts(place: Place) -> tuple[Verdict, ...]:
    """Read one decision or a list of them."""
    found: dict[str, Verdict] = {}
    for each in [place] if place.is_object else place.items():
        given = each.fields((), (*_KINDS, "arguments", "text"))
        kinds: list[Kind] = [kind for kind in _KINDS if kind in given]
        if len(kinds) != 1:
            raise each.wrong(
                f"a decision is exactly one of {', '.join(_KINDS)}, with a tool's name"
            )
        kind = kinds[0]
        for key, wanted in (("arguments", ("edit",)), ("text", ("deny", "respond"))):
            if key in given and kind not in wanted:
                raise given[key].wrong(f"goes with {' and '.join(wanted)} only")
        if kind == "edit" and "arguments" not in given:
            raise each.wrong("an edit needs `arguments`, an object")
        arguments: Raw | None = None
        if "arguments" in given:
            value: Any = given["arguments"].json()
            if not isinstance(value, dict):
                raise given["arguments"].wrong("must be an object")
            arguments = Raw(encoding.encode(value))
        tool = given[kind].text()
        if tool in found:
            raise each.wrong(f"{tool[:60]!r} is decided twice; once is for all of its calls")
        found[tool] = Verdict(kind, tool, arguments, _text(given.get("text")) or "")
    if not found:
        raise place.wrong("decides nothing; name a tool")
    return tuple(found.values())


def _text(place: Place | None, *, null: bool = False) -> str | None:
    """Read a text, or `{text, tokens}`."""
    if place is None or (null and place.is_null):
        return None
    if not place.is_object:
        return place.text()
    given = place.fields(("text", "tokens"))
    return fill(given["text"].text(), given["tokens"].integer(1, MAX_TOKENS))


def _name(place: Place) -> str:
    name = place.text()
    if not name.isprintable() or not 1 <= len(name) <= 60 or "/" in name:
        raise place.wrong("a name is 1 to 60 printable characters without `/`")
    return name


def _one_of(place: Place, choices: tuple[str, ...]) -> Any:
    found = place.text()
    if found not in choices:
        raise place.wrong(f"must be one of {', '.join(choices)}, not {found[:40]!r}")
    return found


def _no_step(kind: str) -> str:
    known = "user, enable, disable, add_tool, remove_tool, redefine, drop, back, set, compact"
    return (
        f"there is no step {kind[:40]!r}; there are: {known}, rewind, fork, restart, route, "
        "conversation, decide"
    )
