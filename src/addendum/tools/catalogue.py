"""The pinned catalogue: what a server listed when its list first settled.

A pin lets the first request of a session be built without a connection, and makes it the same
bytes in every process that reads the same store or file (C9, D11).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from addendum import encoding
from addendum.checked import Location
from addendum.errors import ConfigurationError, ContentError
from addendum.paths import read_bytes, shown, told
from addendum.tools.mcp.values import RemoteTool, ServerState, screen_tool

KIND = "catalogue"
"""Kind of the store's records."""


class PinnedTool(Struct, frozen=True, omit_defaults=True):
    """A settled definition."""

    name: str
    description: str
    parameters: Raw
    annotations: Raw | UnsetType = UNSET


class Pin(Struct, frozen=True, omit_defaults=True):
    """A server's settled list."""

    tools: tuple[PinnedTool, ...]
    instructions: str | None = None

    @classmethod
    def of(cls, state: ServerState) -> Pin:
        """Return the pin of a settled state."""
        return cls(
            tuple(
                PinnedTool(
                    tool.name,
                    tool.description,
                    tool.parameters,
                    UNSET if tool.annotations is None else tool.annotations,
                )
                for tool in state.tools
            ),
            state.instructions,
        )

    def remote(self) -> tuple[RemoteTool, ...]:
        """Return the tools as a server would list them."""
        return tuple(
            RemoteTool(
                tool.name,
                tool.description,
                tool.parameters,
                None if isinstance(tool.annotations, UnsetType) else tool.annotations,
                encoding.digest(
                    encoding.encode([tool.name, tool.description])
                    + encoding.canonical(tool.parameters)
                ),
            )
            for tool in self.tools
        )


_ADVICE = "write it with `addendum tools pin`"


class _File(Struct):
    servers: dict[str, Pin]


def encode_pin(pin: Pin) -> bytes:
    """Return the stored form of a pin."""
    return encoding.encode(pin)


def decode_pin(data: bytes) -> Pin:
    """Return a pin from its stored form.

    Raises:
        ContentError: It is no pin.
    """
    try:
        return _checked(msgspec.json.decode(data, type=Pin))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ContentError(f"the pinned list of a server cannot be read ({error})") from error


def _checked(pin: Pin) -> Pin:
    """Return the pin if every definition in it is one that a server could list.

    Raises:
        ContentError: One is not.
    """
    for tool in pin.tools:
        screen_tool({"name": tool.name, "inputSchema": encoding.decode(bytes(tool.parameters))})
    return pin


def read_catalogue(path: Location) -> dict[str, Pin]:
    """Return the pins of a catalogue file, by server name.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    text = read_bytes(path, limit=encoding.MAX_TEXT, advice=_ADVICE)
    try:
        # It is formatted for people: white space is no part of a definition.
        found = msgspec.json.decode(bytes(encoding.compact(text)), type=_File).servers
        return {name: _checked(pin) for name, pin in found.items()}
    except (msgspec.MsgspecError, ContentError) as error:
        raise ConfigurationError(
            f"cannot read the catalogue {shown(path)}: {error}; {_ADVICE}"
        ) from None


def write_catalogue(path: str | Path, pins: dict[str, Pin]) -> None:
    """Write a catalogue file, servers by name.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    ordered = _File({name: pins[name] for name in sorted(pins)})
    with told("write", path, "name another file"):
        Path(path).write_bytes(msgspec.json.format(encoding.encode(ordered), indent=1) + b"\n")
