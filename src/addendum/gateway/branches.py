"""The log of a conversation that somebody else drives: nodes by digest, one a request.

A node holds all that its request said of tools, so that no other has to be read. It is written
once: whoever plans the same request again, here or on another machine, reads what was planned. A
new request goes on from the node that knows most of its elements: the conversation is a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.gateway.foreign import Chain, keyed, linked, offered
from addendum.log.values import BreakReason, ToolSchema
from addendum.stores.nodes import NodeStore
from addendum.tools.ledger import LedgerUpdate
from addendum.wire.splice import ClientRequest, ClientTool

PLAIN = "plain"
"""Projection of a request whose tools are the client's own list, with no way to tell another."""


class Update(Struct, frozen=True, omit_defaults=True):
    """A change of tools, told once.

    Attributes:
        behind: Number of elements that it stands behind.
        added: Digests of definitions that became callable.
        redefined: Digests of definitions that replaced others.
        removed: Names that can no longer be called.
    """

    behind: int
    added: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Break(Struct, frozen=True, omit_defaults=True):
    """A break of the prefix, declared before the request was sent."""

    reason: BreakReason
    at: str
    detail: str = ""


class Node(Struct, frozen=True, omit_defaults=True):
    """One request as it was planned.

    Attributes:
        key: Its own name.
        root: Digest of the request's root.
        conversation: Name of the conversation's first node.
        number: Requests of the conversation up to here.
        count: Its elements.
        head: Digests of what is declared in front, in order.
        active: Digests of what can be called.
        projection: How changes are told; `plain` without a way.
        updates: All changes that it tells, in order.
        before: Elements of the answered request that it goes on from; 0 for none.
        floor: Elements whose reasoning is not valid any more.
        edits: How often in a row the client wrote its history anew.
        passed: Why it left as it came; empty if it did not.
        breaks: What it breaks, as declared.
        time: Seconds since the epoch.
        line: What the cache key is: it stays where a conversation's text or tools change.
    """

    key: str
    root: str
    conversation: str
    number: int
    count: int
    head: tuple[str, ...]
    active: tuple[str, ...]
    projection: str
    updates: tuple[Update, ...] = ()
    before: int = 0
    floor: int = 0
    edits: int = 0
    passed: str = ""
    breaks: tuple[Break, ...] = ()
    time: float = 0.0
    line: str = ""


class Footing(Struct, frozen=True):
    """Where a request stands in what is known.

    Attributes:
        key: Name that its own node has.
        node: The node that knows most of its elements, or None.
        depth: How many of them it knows.
        expected: The node whose answer the request ends with, wherever that stands; None if no
            answer is known.
    """

    key: str
    node: Node | None
    depth: int
    expected: Node | None


_nodes = msgspec.json.Decoder(Node)
_ANSWERS = 8
"""Elements at the end of a request that are looked up first."""


class Branches:
    """Reads and writes nodes.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: NodeStore) -> None:
        self._store = store

    def name(self, links: Chain, request: ClientRequest, way: str) -> str:
        """Return the name of a request's node.

        Args:
            links: Its digests.
            request: The request.
            way: How the caller wants changes to be told.
        """
        key = self._store.key
        tools = offered(key, [tool.digest() for tool in request.tools])
        return keyed(key, b"node", links.ends[-1], tools.encode(), way.encode())

    def get(self, name: str) -> Node | None:
        """Return a node by its name."""
        value = self._store.get(f"node:{name}")
        return None if value is None else _nodes.decode(value)

    def stand(self, name: str, links: Chain, request: ClientRequest) -> Footing:
        """Find what a request goes on from.

        Args:
            name: Name of its own node.
            links: Its digests.
            request: The request.
        """
        known = self._deepest(links.ends)
        node = None if known is None else self.get(known[1].decode())
        depth = 0 if known is None or node is None else known[0]
        spoken = (each for each in reversed(request.elements) if each.role == "assistant")
        answers = [
            f"answer:{keyed(self._store.key, links.scope.encode(), element.identity)}"
            for element in islice(spoken, _ANSWERS)
        ]
        made = self._store.first(answers)
        expected = None if made is None else self.get(made[1].decode())
        return Footing(name, node, depth, expected)

    def _deepest(self, ends: Sequence[bytes]) -> tuple[int, bytes] | None:
        """Return how many elements are known at most, and the name of the node that knows them."""
        stop = len(ends)
        # Most requests say a message or two more than one that is known.
        for start in (max(stop - _ANSWERS, 1), 1):
            names = [f"end:{end.hex()}" for end in reversed(ends[start:stop])]
            known = self._store.first(names)
            if known is not None:
                return stop - 1 - known[0], known[1]
            stop = start
        return None

    def write(self, node: Node, end: bytes) -> Node:
        """Write a node unless there is one, and return the one that counts.

        Args:
            node: The node.
            end: Digest of all elements of its request.
        """
        counts = _nodes.decode(self._store.add(f"node:{node.key}", encoding.encode(node)))
        self._store.add(f"end:{end.hex()}", node.key.encode())
        return counts

    def answered(self, node: Node, links: Chain, identity: bytes) -> None:
        """Note the answer to a request as its client will send it back."""
        key = self._store.key
        self._store.add(f"end:{linked(key, links.ends[-1], identity).hex()}", node.key.encode())
        own = keyed(key, links.scope.encode(), identity)
        self._store.add(f"answer:{own}", node.key.encode())

    # -- definitions ------------------------------------------------------------------------

    def keep(self, tools: Sequence[ClientTool]) -> None:
        """Keep definitions as the client wrote them; the first one of a digest counts."""
        for tool in tools:
            name = f"definition:{tool.digest()}"
            if self._store.get(name) is None:
                self._store.add(name, encoding.encode([tool.raw.decode(), tool.schema]))

    def definitions(self, digests: Sequence[str]) -> dict[str, ClientTool] | None:
        """Return definitions by their digests; None if one is not kept any more."""
        tools: dict[str, ClientTool] = {}
        for digest in dict.fromkeys(digests):
            tool = self._definition(digest)
            if tool is None:
                return None
            tools[digest] = tool
        return tools

    def _definition(self, digest: str) -> ClientTool | None:
        value = self._store.get(f"definition:{digest}")
        if value is None:
            return None
        raw, schema = msgspec.json.decode(value, type=tuple[str, ToolSchema | None])
        name = "" if schema is None else schema.name
        return ClientTool(name, raw.encode(), schema)

    # -- heads ------------------------------------------------------------------------------

    def is_live(self, root: str, head: Sequence[str]) -> bool:
        """Say whether a conversation with this root has had this head."""
        return self._store.get(f"head:{self._head(root, head)}") is not None

    def use(self, root: str, head: Sequence[str]) -> None:
        """Note that a head is used."""
        self._store.add(f"head:{self._head(root, head)}", b"1")

    def _head(self, root: str, head: Sequence[str]) -> str:
        return keyed(self._store.key, root.encode(), *(each.encode() for each in head))


def ledger(
    updates: Sequence[Update], definitions: Mapping[str, ClientTool]
) -> tuple[LedgerUpdate, ...]:
    """Return updates as the projections read them."""
    return tuple(
        LedgerUpdate(
            number,
            update.behind,
            _schemas(update.added, definitions),
            _schemas(update.redefined, definitions),
            update.removed,
        )
        for number, update in enumerate(updates)
    )


def _schemas(
    digests: Sequence[str], definitions: Mapping[str, ClientTool]
) -> tuple[ToolSchema, ...]:
    schemas = (definitions[digest].schema for digest in digests)
    return tuple(schema for schema in schemas if schema is not None)


def head_schemas(
    head: Sequence[str], definitions: Mapping[str, ClientTool]
) -> tuple[ToolSchema, ...]:
    """Return what the head holds of tools whose changes can be told."""
    return _schemas(head, definitions)
