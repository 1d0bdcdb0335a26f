"""From a client's request to the bytes that leave, and from the answer to what the client reads.

    core = Gateway(store="sqlite:///gateway.db")
    exchange = core.begin(url, headers, body)
    ...  # send exchange.body with exchange.headers; then, for its answer:
    exchange.start(status, content_type)
    for chunk in answer:
        write(exchange.feed(chunk))
    write(exchange.end())
    ...  # while exchange.again is not None: send that, and feed its answer the same way

Nothing here reads or writes a socket, so any HTTP client can carry it. On any doubt and on any
error the client's bytes leave as they came.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct, structs

from addendum import encoding
from addendum.checked import checks_arguments
from addendum.gateway.answers import MOST_ROUNDS, Judging
from addendum.gateway.branches import PLAIN, Branches, Node, head_schemas, ledger
from addendum.gateway.foreign import Chain, chain, route_at, wire_at
from addendum.gateway.planner import PlanInput, Prepare, ToolChanges, named, plan, way_of
from addendum.log.events import RequestContext
from addendum.log.values import ToolSchema
from addendum.prompt.updates import PLACEHOLDER, Telling
from addendum.routes import Route, context
from addendum.routes.choose import fields
from addendum.stores.nodes import NodeStore, open_nodes
from addendum.tools.dispatcher import CALL_TOOL, TOOL_DISPATCHER_NAME
from addendum.wire.apis import wire
from addendum.wire.driven import CLIENT_WIRES
from addendum.wire.splice import (
    AnswerFilter,
    ClientRequest,
    ClientTool,
    PassedOn,
    PassReason,
    Splice,
    Splicing,
    Verdict,
)
from addendum.wire.sse import SseEvent, SseParser

OFF = "ADDENDUM_OFF"
"""Environment variable that, set to anything but 0, lets every request leave as it came."""

Marks: TypeAlias = Literal["ours", "client", "off"]

_BUDGET = 1 << 40  # A client's own list would hold them all; none is left out.
_BLAMED = frozenset({400, 422})
_log = logging.getLogger("addendum.gateway")


class Gateway:
    """Drives the conversations of other clients. It is safe to be used by several threads.

    Args:
        store: Where what is known of conversations is kept: `sqlite:///path.db`, or None for this
            process alone.
        tool_changes: How changes are told; `off` lets every request leave as it came.
        marks: Whose cache marks are sent: ours in place of the client's, the client's, or none.
        prepare: Whether every conversation is ready for changes from its first request on
            (`always`), or from its first change on, which then is one declared break.
        trusted: Whether an address that is not a provider's own takes what the provider takes.
    """

    @checks_arguments
    def __init__(
        self,
        store: str | NodeStore | None = None,
        *,
        tool_changes: ToolChanges = "auto",
        marks: Marks = "ours",
        prepare: Prepare = "always",
        trusted: bool = False,
    ) -> None:
        self._store = open_nodes(store)
        self._branches = Branches(self._store)
        self._tool_changes: ToolChanges = tool_changes
        self._marks: Marks = marks
        self._prepare: Prepare = prepare
        self._trusted = trusted

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def begin(self, url: str, headers: Mapping[str, str], body: bytes) -> GatewayExchange | None:
        """Take a request that a client posts.

        Args:
            url: Where it goes.
            headers: Its headers, names in lower case.
            body: Its body.

        Returns:
            What leaves in its place; None if it asks no model on a wire that is known here, and
            passes with its answer as it is.
        """
        name = wire_at(url)
        if name is None or headers.get("content-encoding", "identity") != "identity":
            return None
        try:
            return self._begin(name, url, headers, body)
        except PassedOn as passed:
            return GatewayExchange(body, passed=passed.reason)
        except Exception:
            # A fault of ours must never cost an answer.
            _log.warning("a request is passed on as it came: not understood", exc_info=True)
            return GatewayExchange(body, passed="not understood")

    def _begin(
        self, name: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> GatewayExchange:
        splice = CLIENT_WIRES[name].splice
        request = splice.read(body)
        if not request.elements:
            raise PassedOn("not understood")
        if any(field in request.fields for field in ("previous_response_id", "conversation")):
            raise PassedOn("history at the provider")
        route = route_at(url, name, request.model, self._trusted)
        if route is None:
            raise PassedOn("no way to tell")
        off = os.environ.get(OFF, "0") not in ("", "0")
        links = chain(self._store.key, name, headers, request)
        places = (endpoint_of(url, route), links.root)
        way = way_of(route, self._tool_changes, self._refused(places, "native"))
        refused = way == "dispatch" and self._refused(places, "dispatch")
        way = "off" if refused else way
        own = self._branches.name(links, request, f"{way} {self._prepare} {off}")
        node = self._branches.get(own)
        if node is None:
            standing = self._branches.stand(own, links, request)
            case = PlanInput(
                request, splice, route, links, standing, way, self._prepare, off, refused
            )
            self._branches.keep(request.tools)
            planned = plan(case, self._branches)
            _check_forced(request, planned, self._branches)
            node = self._branches.write(planned, links.ends[-1])
            if node.head:
                self._branches.use(links.root, node.head)
        # One that is known already may be asked for with another choice.
        _check_forced(request, node, self._branches)
        return _Driving(self, self._branches, url, headers, body, name, splice, route).exchange(
            request, node, links, self._marks
        )

    def _refused(self, places: Sequence[str], way: str) -> bool:
        return self._store.first([f"refused:{way}:{each}" for each in places]) is not None

    def refuse(self, scope: str, way: str) -> None:
        """Note that a way of telling was refused, and that the request was taken without it.

        Args:
            scope: The endpoint, where its refusal named what tells changes; else the root of the
                conversation, since anything else of it may have been to blame.
            way: `native` or `dispatch`.
        """
        self._store.add(f"refused:{way}:{scope}", b"1")


def _check_forced(request: ClientRequest, node: Node, branches: Branches) -> None:
    """Pass a request on that forces a tool which only the dispatcher reaches.

    Raises:
        PassedOn: It does.
    """
    if node.projection == "dispatch" and request.forced:
        definitions = branches.definitions(node.head) or {}
        front = {_plain_name(each) for each in definitions.values()}
        if not front.issuperset(request.forced):
            raise PassedOn("forced tool")


def endpoint_of(url: str, route: Route) -> str:
    """Return the name under which refusals of an endpoint are kept."""
    return encoding.digest(f"{url} {route.name}")


class GatewayExchange:
    """One request of a client, with its answer.

    Attributes:
        body: What leaves.
        headers: Headers that are set in place of the client's own, names in lower case.
        passed: Why it leaves as it came; None if it does not.
        node: What was planned, if anything was.
        again: Another body to be sent, with the same headers, whose answer goes on where the first
            one ended; None if the answer is complete.
        streams: Whether the answer comes piece by piece.
    """

    def __init__(self, body: bytes, *, passed: PassReason | str | None = None) -> None:
        self.body = body
        self.headers: dict[str, str] = {}
        self.passed = passed
        self.node: Node | None = None
        self.again: bytes | None = None
        self.streams = False

    @property
    def plain(self) -> bool:
        """Whether the answer needs no look at it."""
        return self.node is None

    def start(self, status: int, content_type: str) -> None:
        """Take the beginning of an answer.

        Args:
            status: Its status.
            content_type: What kind of body it has.
        """

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client reads of the answer's next bytes."""
        return chunk

    def end(self) -> bytes:
        """Return what is left for the client when an answer has ended; see `again`."""
        self.again = None
        return b""


class _Driving(Struct, frozen=True):
    """What stays the same for all rounds of one exchange."""

    gateway: Gateway
    branches: Branches
    url: str
    client_headers: Mapping[str, str]
    client_body: bytes
    wire: str
    splice: Splice
    route: Route

    def exchange(
        self, request: ClientRequest, node: Node, links: Chain, marks: Marks
    ) -> GatewayExchange:
        def answered(identity: bytes) -> None:
            self.branches.answered(node, links, identity)

        bound = self.route.capabilities.reasoning_bound
        if node.passed:
            body = self.client_body
            spare = any(each.reasons for each in request.elements[: node.floor])
            if bound and spare:
                body = self.splice.write(request, _nothing(node.floor))
            return _Driven(self, request, node, None, body, answered)
        splicing, headers = self._splicing(request, node, marks)
        if not bound:
            splicing = structs.replace(splicing, floor=0)
        body = self.splice.write(request, splicing)
        made = _Driven(self, request, node, splicing, body, answered)
        made.headers = headers
        return made

    def note_refusal(self, node: Node, refusal: bytes) -> None:
        """Note that a request was refused as it was told, and taken as the client wrote it.

        Args:
            node: What was told.
            refusal: What the endpoint answered.
        """
        if node.projection == PLAIN:
            return
        way = "dispatch" if node.projection == "dispatch" else "native"
        epoch = context(self.route, node.projection)  # pyright: ignore[reportArgumentType]
        names = fields(self.route, epoch) if way == "native" else {TOOL_DISPATCHER_NAME}
        blamed = any(name.encode() in refusal for name in names)
        place = endpoint_of(self.url, self.route) if blamed else node.root
        self.gateway.refuse(place, way)

    def _splicing(
        self, request: ClientRequest, node: Node, marks: Marks
    ) -> tuple[Splicing, dict[str, str]]:
        route = self.route
        definitions = self.branches.definitions(named(node))
        if definitions is None:
            raise PassedOn("not understood")
        head = head_schemas(node.head, definitions)
        updates = ledger(node.updates, definitions)
        headers: dict[str, str] = {}
        behind: Mapping[int, Any] = {}
        declared = {tool.name: tool for tool in head}
        placeholder = False
        if node.projection != PLAIN:
            epoch = context(route, node.projection)  # pyright: ignore[reportArgumentType]
            told = Telling(epoch, budget=_BUDGET).read(head, updates)
            behind = told.updates
            declared |= {tool.name: tool for tool in told.tools if tool.name in declared}
            placeholder = PLACEHOLDER in told.tools
            headers |= self._flags(epoch)
        raws = [_declared(digest, definitions, declared) for digest in node.head]
        if node.projection == "dispatch":
            raws.append(self.splice.declared(CALL_TOOL))
        immediate = len(raws)
        if placeholder:
            raws.append(self.splice.declared(PLACEHOLDER))
        ours = route.cache.kind == "marks" and marks == "ours"
        ttl = b',"ttl":"1h"' if request.ttl == "1h" and "1h" in route.cache.lifetimes else b""
        extra: dict[str, bytes] = {}
        if route.endpoint.vouched and (route.cache_key or route.cache_key_header):
            key = node.line
            if route.cache_key:
                extra[route.cache_key] = encoding.encode(key)
            elif route.cache_key_header.lower() not in self.client_headers:
                headers[route.cache_key_header.lower()] = key
        splicing = Splicing(
            tuple(raws),
            immediate,
            behind,
            {digest: each.raw for digest, each in definitions.items()},
            _dispatched(node, definitions),
            floor=node.floor,
            marks="ours" if ours else "off" if marks == "off" else "client",
            mark_tools=ours and not route.cache.text_marks,
            mark_system=ours,
            mark_at=_ends(request, node, route) if ours else (),
            mark=b'{"type":"ephemeral"' + ttl + b"}",
            joined="user-after-user" in route.shapes.refuses,
            extra=extra,
        )
        return splicing, headers

    def _flags(self, epoch: RequestContext) -> dict[str, str]:
        name = wire(self.wire).flag_header
        if not name or not epoch.betas:
            return {}
        own = [each.strip() for each in self.client_headers.get(name, "").split(",")]
        flags = dict.fromkeys([*filter(None, own), *epoch.betas])
        return {name: ",".join(flags)}


def _nothing(floor: int) -> Splicing:
    """Return a splicing that leaves out reasoning alone."""
    return Splicing((), 0, {}, {}, lambda number, name: False, floor=floor, marks="client")


def _declared(
    digest: str, definitions: Mapping[str, ClientTool], declared: Mapping[str, ToolSchema]
) -> bytes:
    """Return what stands in the place of a declaration of the head."""
    own = definitions[digest]
    now = declared.get(own.name)
    if own.schema is None or now is None:
        return own.raw
    return definitions[now.definition()].raw


def _ends(request: ClientRequest, node: Node, route: Route) -> tuple[int, ...]:
    """Return the ends to be marked: that of the request before, and this one's."""
    ends: list[int] = []
    for end in (node.before, node.count):
        while end > 0:
            element = request.elements[end - 1]
            mixed = route.cache.text_marks and (element.results or element.calls)
            told = any(update.behind == end for update in node.updates)
            if told or (not mixed and (element.role != "tool" or "tool" in route.cache.mark_roles)):
                break
            end -= 1
        if end > 0:
            ends.append(end)
    return tuple(dict.fromkeys(ends))


def _dispatched(node: Node, definitions: Mapping[str, ClientTool]) -> Callable[[int, str], bool]:
    """Return what says of an element's number and a name whether the dispatcher was called."""
    if node.projection != "dispatch":
        return lambda number, name: False
    head = {definitions[digest].name: digest for digest in node.head}
    head |= {_plain_name(definitions[digest]): digest for digest in node.head}
    changes: dict[str, list[tuple[int, bool]]] = {}
    for update in node.updates:
        for digest in (*update.added, *update.redefined):
            name = definitions[digest].name
            if name in head:
                changes.setdefault(name, []).append((update.behind, digest != head[name]))

    def dispatched(number: int, name: str) -> bool:
        if name not in head:
            return True
        now = False
        for behind, other in changes.get(name, ()):
            if behind < number:
                now = other
        return now

    return dispatched


def _plain_name(tool: ClientTool) -> str:
    """Return the name of a tool, also where only its declaration says it."""
    if tool.name:
        return tool.name
    value: Any = encoding.decode(tool.raw)
    inner: Any = value.get(value.get("type"), {})
    own = value.get("name") or (inner.get("name") if isinstance(inner, dict) else None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return own if isinstance(own, str) else ""


class _Driven(GatewayExchange):
    """A request whose answer is turned back."""

    def __init__(
        self,
        driving: _Driving,
        request: ClientRequest,
        node: Node,
        splicing: Splicing | None,
        body: bytes,
        answered: Callable[[bytes], None],
    ) -> None:
        super().__init__(body, passed=node.passed or None)
        self.node = node
        self._driving = driving
        self._request = request
        self._splicing = splicing
        self._answered = answered
        active = {tool.name: tool.schema for tool in request.tools}
        self._judging = Judging(active, dispatch=node.projection == "dispatch")
        self._rounds = 0
        self._behind: list[bytes] = []
        self._raw: list[bytes] = []
        self._shown: list[bytes] = []
        self._filter: AnswerFilter | None = None
        self._status = 0
        self._refusal: bytes | None = None
        self._latest = b""

    def start(self, status: int, content_type: str) -> None:
        """Take the beginning of an answer."""
        self.again = None
        self._status, self._raw = status, []
        self.streams = status < 400 and "text/event-stream" in content_type
        if self.streams and self._splicing is not None:
            if self._filter is None:
                self._filter = self._driving.splice.filter(self._judge, hold=self._judging.hold)
            else:
                self._filter.again()

    def _judge(self, call_id: str, name: str, arguments: str) -> Verdict:
        return self._judging.judge(call_id, name, arguments)

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client reads of the answer's next bytes."""
        self._raw.append(chunk)
        if not self.streams:
            return b""
        if self._filter is None:
            return self._show(chunk)
        pending = self._filter.pending
        try:
            return self._show(self._filter.feed(chunk))
        except Exception:
            return self._show(self._give_in(pending + chunk))

    def end(self) -> bytes:
        """Return what is left for the client when an answer has ended; see `again`."""
        self.again = None
        raw = b"".join(self._raw)
        if self._status >= 400:
            return self._failed(raw)
        try:
            out = self._ended(raw)
        except Exception:
            out = self._give_in(b"") if self.streams else raw
        if self.again is None:
            self._settle(out if not self.streams else b"".join(self._shown))
        return out

    def _failed(self, raw: bytes) -> bytes:
        changed = self._splicing is not None and self._refusal is None
        if self._rounds:
            # The client has had an answer already, and reads the end of that one.
            if self._filter is not None:
                self.streams = True
                return self._show(self._filter.give_up())
            self._status = 200
            return self._driving.splice.given_up(self._latest)
        if changed and self._status in _BLAMED:
            self._refusal = raw
            self._splicing, self._filter = None, None
            self.again = self._driving.client_body
            self.headers = {}
            return b""
        return raw

    def _ended(self, raw: bytes) -> bytes:
        if self._refusal is not None and self.node is not None:
            self._driving.note_refusal(self.node, self._refusal)
        if self._splicing is None:
            return b"" if self.streams else raw
        if self.streams:
            assert self._filter is not None
            out = self._show(self._filter.close())
            if not self._filter.unanswered:
                return out
            if self._rounds >= MOST_ROUNDS:
                return out + self._show(self._filter.give_up())
            self._ask_again(raw, self._filter.withheld)
            return out
        shown, withheld, unanswered = self._driving.splice.whole(raw, self._judge)
        if not unanswered:
            return shown
        if self._rounds >= MOST_ROUNDS:
            return self._driving.splice.given_up(shown)
        self._latest = shown
        self._ask_again(raw, withheld)
        return b""

    def _ask_again(self, raw: bytes, withheld: Sequence[Any]) -> None:
        assert self._splicing is not None
        self._rounds += 1
        native = self._native(raw)
        self._behind += self._driving.splice.hidden_round(native, withheld)
        splicing = structs.replace(self._splicing, behind=tuple(self._behind))
        self.again = self._driving.splice.write(self._request, splicing)

    def _native(self, raw: bytes) -> tuple[Raw, ...]:
        parser = wire(self._driving.wire).parser()
        if self.streams:
            events = SseParser()
            for event in (*events.feed(raw), *events.close()):
                parser.feed(event)
        else:
            parser.feed(SseEvent(None, raw))
        return parser.finish().native

    def _show(self, shown: bytes) -> bytes:
        self._shown.append(shown)
        return shown

    def _give_in(self, unread: bytes) -> bytes:
        """Return what of an answer was not read when turning it back ended in a fault."""
        _log.warning("an answer is passed on as it came: not understood", exc_info=True)
        self._filter, self._splicing = None, None
        return unread

    def _settle(self, shown: bytes) -> None:
        """Note the answer as the client has it."""
        try:
            self._answered(self._driving.splice.answer_identity(self._native(shown)))
        except Exception:
            # It was cut, or is of a shape that nobody knows: the request itself is known.
            _log.debug("an answer is not noted", exc_info=True)


__all__ = ["OFF", "Gateway", "GatewayExchange", "Marks"]
