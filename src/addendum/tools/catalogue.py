"""The pinned catalogue: what a server listed when its list first settled.

A pin lets the first request of a session be built without a connection, and makes it the same
bytes in every process that reads the same store or file (C9, D11).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from addendum import encoding
from addendum.errors import ConfigurationError
from addendum.tools.mcp import RemoteTool, ServerState

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


class _File(Struct):
    servers: dict[str, Pin]


def encode_pin(pin: Pin) -> bytes:
    """Return the stored form of a pin."""
    return encoding.encode(pin)


def decode_pin(data: bytes) -> Pin:
    """Return a pin from its stored form."""
    return msgspec.json.decode(data, type=Pin)


def read_catalogue(path: str | Path) -> dict[str, Pin]:
    """Return the pins of a catalogue file, by server name.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_File).servers
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot read the catalogue {path}: {error}; write it with `addendum tools pin`"
        ) from None


def write_catalogue(path: str | Path, pins: dict[str, Pin]) -> None:
    """Write a catalogue file, servers by name."""
    ordered = _File({name: pins[name] for name in sorted(pins)})
    Path(path).write_bytes(msgspec.json.format(encoding.encode(ordered), indent=1) + b"\n")
