"""What a session knows of its tools and servers beside definitions.

No model sees it, but decisions read it and a person is told of it: a session that is opened again
must decide as before, and tell nothing twice. A release that does not know these events passes over
them.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from addendum.log.values import Facts, Logged


class KnownTool(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a tool beside its definition, as policies read it.

    Attributes:
        name: The tool.
        server: The MCP server that it comes from; None for a function.
        read_only: Whether its maker says that a call changes nothing. What nobody says is no.
        destructive: Whether a call may destroy. What nobody says is yes, unless it is read-only.
        own: The server's own name for it, where the tool's name does not say it.
    """

    name: str
    server: str | None = None
    read_only: bool = False
    destructive: bool = True
    own: str | None = None


class ToolsKnown(Logged, frozen=True, tag="tool/known"):
    """What is known of tools from here on; of a tool in no such event nothing is, but its name."""

    facts: ClassVar[Facts] = Facts(title="known", surface=False, ignorable=True)

    tools: tuple[KnownTool, ...]


class ServerAway(Logged, frozen=True, tag="server/away"):
    """A person was told that a server is on and its tools are not there.

    Attributes:
        server: The server.
        why: What is wrong, in one line; empty once its tools are there.
    """

    facts: ClassVar[Facts] = Facts(title="away", surface=False, ignorable=True)

    server: str
    why: str = ""
