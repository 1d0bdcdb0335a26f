"""Values that events carry: tool definitions, settings, calls, usage."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, structs

from addendum import encoding


class Facts(Struct, frozen=True, kw_only=True):
    """What holds of every event of a kind; each kind states its own, and none has a default.

    Attributes:
        title: A word for it in a list of events, of at most eight letters.
        surface: Whether it makes messages: the model sees it.
        ignorable: Whether an older release may pass over it: nothing that the model sees, and no
            decision, may depend on it.
        echo: Whether another event of the log says the same to people; a short list leaves it out.
    """

    title: str
    surface: bool
    ignorable: bool
    echo: bool = False


class Logged(
    Struct,
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """How every event is made: frozen, named by its `type`, and nothing but what is known of it.

    A field that this release does not know is refused: it could be content. As an event is part of
    no cycle, the garbage collector need not look at it.
    """


class ToolSchema(Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it.

    Attributes:
        name: Full name (`SERVER__TOOL` for a server's tool).
        description: What it does.
        parameters: JSON Schema of its arguments, an object; the first-seen bytes.
        defer_loading: True if it is not offered until an update or a search surfaces it; absent
            otherwise (False is refused where it counts).
    """

    name: str
    description: str
    parameters: Raw
    defer_loading: bool | None = None

    def identity(self) -> str:
        """Return the digest that says whether two definitions are the same.

        Key order inside the schema does not count; the deferral flag does.
        """
        key = (self.name, self.description, bytes(self.parameters), self.defer_loading)
        found = _identities.get(key)
        if found is None:
            if len(_identities) > 50_000:
                _identities.clear()
            found = _identities[key] = encoding.digest(
                encoding.encode([self.name, self.description, bool(self.defer_loading)])
                + encoding.canonical(self.parameters)
            )
        return found

    def definition(self) -> str:
        """Return the digest of what is defined, whether or not it is deferred."""
        return (
            structs.replace(self, defer_loading=None) if self.defer_loading else self
        ).identity()


_identities: dict[tuple[str, str, bytes, bool | None], str] = {}


class Config(Struct, frozen=True, omit_defaults=True):
    """Sampling settings of a request."""

    provider: str
    model: str
    effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


class Header(Struct, frozen=True, omit_defaults=True):
    """The assembled ACTIVE tools and the settings, whatever the route can do (A1)."""

    config: Config
    tools: tuple[ToolSchema, ...] = ()
    adapter_defaults: tuple[str, ...] = ()


class Call(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool call in its real form.

    Attributes:
        id: The model's call id.
        name: The real tool; the name as given, if no target could be found.
        arguments: JSON text of the arguments. A direct call keeps the model's text; a dispatched
            one the text inside the envelope.
        origin: `direct` (called by its name) or `dispatched` (through `call_tool`).
    """

    id: str
    name: str
    arguments: str
    origin: Literal["direct", "dispatched"] = "direct"


class Media(Struct, frozen=True, gc=False):
    """A file in a result, in no wire's form.

    Attributes:
        media_type: What it is by its own bytes: `image/png`, `image/jpeg`, `image/gif`,
            `image/webp` or `application/pdf`.
        data: Its bytes in base64, with padding.
    """

    media_type: str
    data: str

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens a provider reported. None means it did not say; never 0 in its place.

    Attributes:
        prompt: All input tokens: uncached, read and written together.
        cache_read: Input tokens read from cache.
        cache_write: Input tokens written to cache.
        output: Output tokens.
        raw: The provider's own object.
    """

    prompt: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    raw: Raw | UnsetType = UNSET


class ToolAddition(
    Struct, frozen=True, tag_field="type", tag="tool-addition", forbid_unknown_fields=True
):
    """A name that became callable; its definition stands in the header named by `header_seq`."""

    tool_name: str


class ToolRemoval(
    Struct, frozen=True, tag_field="type", tag="tool-removal", forbid_unknown_fields=True
):
    """A name that is no longer callable."""

    tool_name: str


class DeveloperText(Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Text beside tool blocks."""

    text: str


DeveloperBlock: TypeAlias = ToolAddition | ToolRemoval | DeveloperText

CallForm: TypeAlias = Literal["direct", "dispatch"]
HeaderReason: TypeAlias = Literal["initial", "resume", "change", "series"]
Projection: TypeAlias = Literal["in-history", "addition-only", "dispatch", "rebind"]
Definitions: TypeAlias = Literal["by-reference", "by-value"]
TailMode: TypeAlias = Literal["moved", "kept", "scoped"]
BreakReason: TypeAlias = Literal[
    "redefinition",
    "removal",
    "restore",
    "removal or restore",
    "rebinding",
    "prompt rewritten",
    "settings changed",
    "compaction",
    "rewind",
    "fork",
    "head changed",
    "explicit series",
    "route changed",
    "downgrade",
    "attempt failed",
    "concurrent first requests",
    "lifetime passed",
    "reasoning stripped",
    "rendering changed",
    "history edited by the client",
    "system rewritten by the client",
    "history unknown",
    "new head: cheaper",
    "tool that cannot be told",
    "passed on unchanged",
]
