"""Names that no tool has: told as soon as the tools are known, with the nearest one.

A name that no function of the agent has, and that no configured server's tools begin like, is an
error if the agent has all of its tools (no servers, no `tool_dispatch=True`), or if it looks like a
slip for one that is there. Where a server or a hand may still bring it, a notice tells it in the
first turn that knows better. A glob pattern stands for what there is, so one that fits nothing is
a notice at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from addendum.agent.children import setups_of
from addendum.agent.setup import AgentSetup
from addendum.checked import nearest
from addendum.errors import ConfigurationError
from addendum.log.events import SessionStart
from addendum.log.session_log import SessionLog
from addendum.tools.dispatcher import RESERVED_NAMES, TOOL_DISPATCHER_NAME
from addendum.tools.history import HistoryFold, definitions
from addendum.tools.names import model_prefix
from addendum.tools.registry import Registry, Snapshot

_WILD = "*?["
_NAMED = 8
"""Names that a message lists at most."""


class Written(Struct, frozen=True):
    """A name as a caller wrote it.

    Attributes:
        where: What it was given to.
        name: A tool's name or pattern; a server's if `of_server`.
        of_server: Whether it is a server's.
        exact: Whether it is read as a name only, and never as a pattern.
    """

    where: str
    name: str
    of_server: bool = False
    exact: bool = False

    @property
    def is_pattern(self) -> bool:
        """Whether it is a glob pattern."""
        return not self.exact and self.is_wild

    @property
    def is_wild(self) -> bool:
        """Whether it has what no name of a tool has."""
        return any(each in self.name for each in _WILD)

    def fits(self, names: Collection[str]) -> bool:
        """Say whether one of some names is meant."""
        return self.name in names or (
            self.is_pattern and any(fnmatchcase(name, self.name) for name in names)
        )

    def may_come(self, servers: Iterable[str]) -> bool:
        """Say whether a tool of one of some servers could be meant."""
        if self.exact and self.is_wild:
            return False
        places = [place for each in _WILD if (place := self.name.find(each)) >= 0]
        begin = self.name[: min(places, default=len(self.name))]
        prefixes = [model_prefix(server) for server in servers]
        return any(
            begin.startswith(each) or (self.is_pattern and each.startswith(begin))
            for each in prefixes
        )


def written_in(setup: AgentSetup) -> list[Written]:
    """Return the names of tools and servers that an agent's configuration has."""
    found = [Written(f"disabled=[{name!r}]", name, exact=True) for name in setup.disabled]
    for policy in () if setup.approval is None else setup.approval.policies:
        found.append(Written(f"Policy({policy.action!r}, {policy.tool!r})", policy.tool))
        if policy.server is not None:
            where = f"Policy({policy.action!r}, server={policy.server!r})"
            found.append(Written(where, policy.server, True))
    for hook in setup.hooks:
        names = (hook.tools,) if isinstance(hook.tools, str) else hook.tools
        found += [Written(f"Hook({name!r})", name) for name in names]
    return [each for each in found if each.exact or each.name != "*"]


def check_names(setup: AgentSetup, names: Iterable[Written], *, children: bool = False) -> None:
    """Refuse exact names that nothing can bring.

    Args:
        setup: Of the agent whose tools and servers are meant.
        names: The names.
        children: Whether those of the child sessions that its tools open are meant, too.

    Raises:
        ConfigurationError: One of them is such a name.
    """
    setups = _with_children(setup) if children else [setup]
    tools = {tool.name for each in setups for tool in each.tools} | RESERVED_NAMES
    servers = {spec.name for each in setups for spec in each.servers}
    for name in names:
        known = servers if name.of_server else tools
        if name.is_pattern or name.name in known:
            continue
        if not (name.of_server or (name.exact and name.is_wild)):
            may_come = name.may_come(servers) or setup.tool_dispatch
            if may_come or (servers and not nearest(name.name, known - RESERVED_NAMES)):
                continue
        raise ConfigurationError(_line(name, known - RESERVED_NAMES, setup))


def _with_children(setup: AgentSetup) -> list[AgentSetup]:
    setups = [setup]
    for each in setups:
        setups += setups_of(each)
    return setups


def _line(written: Written, known: Collection[str], setup: AgentSetup | None) -> str:
    what = "MCP server" if written.of_server else "tool"
    said = f"{written.where}: no {what} has this name"
    if near := nearest(written.name, sorted(known)):
        return said + near
    there = ", ".join(sorted(known)[:_NAMED]) or "none"
    later = "" if written.of_server or setup is None else "; tool_dispatch=True if it comes later"
    return f"{said}; there are: {there}{', ...' if len(known) > _NAMED else ''}{later}"


class UnknownNames:
    """What of an agent's names no tool of a session has, told once each, whoever has it open.

    Args:
        setup: What the agent is set up with.
        log: The session's log.
        registry: Its tools.
        history: What its log says of declarations.
    """

    def __init__(
        self, setup: AgentSetup, log: SessionLog, registry: Registry, history: HistoryFold
    ) -> None:
        self._setup = setup
        self._log = log
        self._registry = registry
        self._history = history
        self._checked: Snapshot | None = None
        self._left = written_in(setup)
        first = log.events[0].data
        if isinstance(first, SessionStart) and first.parent is None:
            # A child's are its parent's too, and may mean tools that only that one has.
            below = {tool.name for each in _with_children(setup) for tool in each.tools}
            names = [Written(f"exclude=[{name!r}]", name) for name in first.excluded]
            self._left += [each for each in names if not each.fits(below)]
        if self._left and log.header is not None:
            # What could be said of the requests so far was said by whoever sent them.
            offered = self._ever_offered()
            away = [
                server
                for server in registry.server_names
                if not any(name.startswith(model_prefix(server)) for name in offered)
            ]
            self._settled(offered | self._own(registry.snapshot()), away)

    def notices(self, snapshot: Snapshot) -> list[str]:
        """Return a line for each name that can be said now to mean nothing.

        Args:
            snapshot: The tools of the step.
        """
        if not self._left or snapshot is self._checked:
            return []
        self._checked = snapshot
        return self._settled(self._own(snapshot), self._registry.unlisted)

    def check_refused(self, names: Iterable[str], disabled: Iterable[str]) -> None:
        """Refuse to refuse what no tool of the session is called, and no server can bring.

        Args:
            names: The names.
            disabled: Names that are refused already.

        Raises:
            ConfigurationError: One is such a name.
        """
        registry = self._registry
        known = self._known(registry.snapshot()) | {*disabled}
        for name in names:
            written = Written(f"SessionTools.refuse({name!r})", name, exact=True)
            if name not in known | RESERVED_NAMES and not written.may_come(registry.server_names):
                raise ConfigurationError(_line(written, known, None), session=self._log.session)

    def _own(self, snapshot: Snapshot) -> set[str]:
        return self._known(snapshot) | RESERVED_NAMES

    def _known(self, snapshot: Snapshot) -> set[str]:
        """Return the names that mean something in the session: what it has, or had."""
        own = {tool.name for tool in self._setup.tools}
        declared = definitions(self._history.history)
        head = {tool.name for tool in self._history.head}
        return {*own, *declared, *head, *snapshot.entries}

    def _ever_offered(self) -> set[str]:
        """Return the names of all tools that the session's headers have."""
        headers = self._log.state.headers.values()
        return {tool.name for each in headers for tool in each.header.tools}

    def _settled(self, tools: Collection[str], unlisted: Collection[str]) -> list[str]:
        """Keep the names that may still come to mean something; return what is said of others."""
        lines, left = list[str](), list[Written]()
        for each in self._left:
            known = set(self._registry.server_names if each.of_server else tools)
            if each.name == TOOL_DISPATCHER_NAME:
                lines.append(
                    f"{each.where}: other tools are called through {each.name}; it is they that "
                    "are named, whatever way the call comes"
                )
            elif each.fits(known):
                continue
            elif not each.of_server and each.may_come(unlisted):
                left.append(each)
            else:
                lines.append(_line(each, known - RESERVED_NAMES, None))
        self._left = left
        return lines
