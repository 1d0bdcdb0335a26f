"""MCP servers as values: what identifies one, what it offers, what it answered.

No network and no process here, only the rules for what a server sends. `pool` keeps the
connections, `link` speaks the protocol through the official SDK.

What a server lists is data from outside. One bad tool never costs the others, nor the session,
which a provider would refuse as a whole, for good once the tool stands in its history: a tool is
dropped, with a note in `ServerState.notes`, by these rules:

===============  ==================================================================
name             text of 1 to 128 printable characters; of equal names the first counts
description      text or absent; lone surrogates become U+FFFD
parameters       a JSON object of type "object" (a missing type is filled in; null is an
                 empty one), at most 200 levels deep, finite numbers only; surrogates as above.
                 A schema of draft 2020-12 that refers to nothing outside itself, once slips
                 are mended that lose nothing (`schema_slips`)
annotations      the protocol's five fields where they have the right type
size             at most 256 KiB a tool; 10,000 tools and 4 MiB a list
===============  ==================================================================

A list over its limit is not cut: it is refused as a whole and the earlier list stays.
"""

from __future__ import annotations

import itertools
import math
import secrets
import shlex
import weakref
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from addendum.allowed import shown
from addendum.checked import SECRET, Seconds, Wait, Word, check_fields
from addendum.encoding import MAX_DEPTH, canonical, clean, digest, encode
from addendum.errors import ConfigurationError, ContentError
from addendum.lines import one_line
from addendum.log.values import Media
from addendum.masking import masked, secrets_in
from addendum.tools.schema_slips import in_this_draft
from addendum.tools.validation import SchemaUnusable, Validator, is_schema

MAX_TOOLS = 10_000
"""Tools that one server may list."""

MAX_LIST_BYTES = 4 * 1024 * 1024
"""Bytes (UTF-8) of all names, descriptions and schemas that one server may list."""

MAX_TOOL_BYTES = 256 * 1024
"""Bytes (UTF-8) of one tool's name, description and schema."""

MAX_NAME = 128
"""Characters of a tool's name (the limit in the MCP specification, 2025-11-25, server/tools)."""

MAX_RESULT_BYTES = 1024 * 1024
"""Bytes (UTF-8) of one call's text; what is longer is cut, with a note."""

MAX_INSTRUCTIONS = 64 * 1024
"""Characters of a server's instructions; what is longer is cut, with a note."""

MAX_NOTES = 20
"""Dropped tools that are noted one by one; the rest is counted."""

Status = Literal["idle", "starting", "ready", "lost", "failed"]


_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()
_identities: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()


def _identity(server: object) -> str:
    """Return what no other object has, not even a later one or one of another process."""
    # Not `id`: a later object may get it again, and a catalogue outlives both.
    if server not in _identities:
        _identities[server] = next(_numbers)
    return f"{_PROCESS}-{_identities[server]}"


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server: how to reach it and what it is called.

    Exactly one of `command`, `url` and `server` says how.

    Attributes:
        name: What the model sees in front of the tool's name.
        command: Program and arguments of a server on stdio.
        url: Address of a streamable HTTP endpoint.
        server: A server in this process: an `mcp` server object, or anything whose `connect()`
            is an async context manager of the SDK's (read, write) streams.
        env: Environment variables of the child beside the minimal ones. Never shown.
        headers: HTTP headers of every request. Never shown.
        cwd: Working directory of the child.
        defer: Its tools are not bound in a session's head.
        on: Switched on by configuration.
        timeout: Seconds that a call of its tools may take; None for the agent's own limit.

    Raises:
        ConfigurationError: A field holds what it cannot hold, or nothing says how it is reached.
    """

    name: Word
    command: tuple[str, ...] = ()
    url: Word | None = None
    server: object | None = None
    env: Annotated[tuple[tuple[str, str], ...], SECRET] = ()
    headers: Annotated[tuple[tuple[str, str], ...], SECRET] = ()
    cwd: Word | None = None
    defer: bool = False
    on: bool = False
    timeout: Seconds | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        where = f"ServerSpec(name={shown(self.name)})"
        if not self.name.isprintable():
            raise ConfigurationError(f"{where}: has an unusable name; give it a printable one")
        ways = (bool(self.command), self.url is not None, self.server is not None)
        if ways.count(True) != 1:
            raise ConfigurationError(
                f"{where}: must have exactly one of command=, url= and server=; correct it"
            )
        if self.command and not self.command[0]:
            raise ConfigurationError(f"{where}: command={self.command} names no program; name one")
        if self.url is not None and not _is_address(self.url):
            # Behind an @ or a ? stands what may be a key.
            named = "..." if set("@?#") & set(self.url) else shown(masked(self.url))
            raise ConfigurationError(
                f"{where}: url={named} must begin with http:// or https:// and a host; correct it"
            )

    def key(self) -> str:
        """Return the digest of what identifies the connection: spec and credentials.

        Equal keys share one connection. `defer`, `on` and `timeout` say how tools are offered and
        called, so they do not count; a server object counts by its identity, so its key holds in
        this process only.
        """
        identity = None if self.server is None else _identity(self.server)
        return digest(
            encode(
                [
                    self.name,
                    self.command,
                    self.url,
                    identity,
                    sorted(self.env),
                    sorted(self.headers),
                    self.cwd,
                ]
            )
        )

    def redact(self, text: str) -> str:
        """Return `text` without the server's credentials, nor any other.

        The values of `env` and `headers`, also behind a scheme such as `Bearer`, and what is secret
        in the address or the command become `***`. Redact a text before a part of it is cut off.
        """
        values = [value for _, value in self.env + self.headers]
        values += [value.split()[-1] for value in values if " " in value.strip()]
        values += secrets_in(self.url or "") + secrets_in(shlex.join(self.command))
        for value in sorted(values, key=len, reverse=True):
            # Shorter values ("1", "true") are no secrets, and replacing them garbles the text.
            if len(value) >= 6:
                text = text.replace(value, "***")
        return masked(text)

    def __repr__(self) -> str:
        where = self.command[:1] or self.server
        if self.url is not None:
            parts = urlsplit(self.url)
            where = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return masked(f"ServerSpec(name={self.name!r}, at={where!r})")


def _is_address(url: str) -> bool:
    """Say whether an address names a host, and a port if any."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return url.startswith(("http://", "https://")) and bool(parts.hostname) and url.isprintable()


class RemoteTool(msgspec.Struct, frozen=True):
    """One tool as its server lists it.

    Attributes:
        name: The server's own name for it.
        description: Empty where the server gives none.
        parameters: Its JSON schema, an object, compact, in the key order first seen.
        annotations: The server's hints (`readOnlyHint`, `destructiveHint` ...) as a JSON object.
        digest: SHA-256 of the four above in canonical form, so key order does not count.
    """

    name: str
    description: str
    parameters: msgspec.Raw
    annotations: msgspec.Raw | None
    digest: str


class ServerState(msgspec.Struct, frozen=True):
    """What is known of a server at one moment.

    Attributes:
        status: `idle` not dialled; `starting` first attempt; `ready` connected and listed;
            `lost` was ready, tries again; `failed` never ready so far, tries again.
        tools: The last settled list, sorted by name. A lost connection does not change it.
        instructions: The server's own text of the same moment.
        error: One line on what is wrong, or None.
        notes: One line for each tool of the list that was dropped.
        revision: Grows by one with each settled difference of tools or instructions; 0 means
            that no list has settled yet.
    """

    status: Status = "idle"
    tools: tuple[RemoteTool, ...] = ()
    instructions: str | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()
    revision: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a pool waits for what, in seconds.

    Attributes:
        idle: A connection without users is closed after this.
        connect: An attempt to connect may take this.
        fetch: Reading one list may take this.
        first_pause: Pause before the first new attempt; it doubles with each failure.
        longest_pause: The pause does not grow beyond this.
        stable: A connection that lived this long starts again with the first pause.
        demand: A call to a server that is away waits at most this for one attempt.
        probe: A server that let a call time out must answer a ping within this.
        quiet: After a notice of change, wait this for more of them.
        confirm: A list that lost tools in a suspicious way must still stand after this.
        grace: A child process has this to end before it is told to, and again before it is killed.
    """

    idle: Wait = 60.0
    connect: Wait = 60.0
    fetch: Wait = 30.0
    first_pause: Wait = 0.2
    longest_pause: Wait = 30.0
    stable: Wait = 5.0
    demand: Wait = 10.0
    probe: Wait = 5.0
    quiet: Wait = 0.05
    confirm: Wait = 1.0
    grace: Wait = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


class CallOutcome(msgspec.Struct, frozen=True):
    """The answer to one call, always an answer and never an exception.

    Attributes:
        text: What the model reads.
        media: Files that the text names by number.
        is_error: The tool, the server or the way to it failed.
        code: None for the tool's own answers, else `invalid_arguments`, `unreachable` (not sent),
            `lost` (sent; the connection broke before the answer), `timeout`, `refused` (the server
            answered with a protocol error), `malformed` (its answer breaks the protocol),
            `input_required` (it asked for input that nobody can give) or `PROPOSAL_CHANGED` (the
            tool was defined anew before the call was sent).
        anew: What was asked, where it surely did not run and a new connection may do better.
    """

    text: str
    is_error: bool = False
    code: str | None = None
    media: tuple[Media, ...] = ()
    anew: str = ""


def lost_outcome(name: str, reason: str | None = None) -> CallOutcome:
    """Return the answer for a call whose connection broke before the server's answer.

    Args:
        name: The server's name.
        reason: What came in place of an answer, in one line.
    """
    what = f"failed ({reason})" if reason else "broke the connection"
    return CallOutcome(
        f"server {name} {what} before it answered; the call may or may not have taken effect",
        True,
        "lost",
    )


def changed_outcome(server: str, tool: str) -> CallOutcome:
    """Return the answer for a call of a tool that was defined anew before the call was sent."""
    return CallOutcome(
        f"proposal changed: {tool} of server {server} is defined otherwise now; it was not run. "
        "Look at it again before you call it.",
        True,
        "PROPOSAL_CHANGED",
    )


class Listing(msgspec.Struct, frozen=True):
    """One complete list of a server's tools, read at one moment.

    Attributes:
        tools: The good ones, sorted by name.
        instructions: The server's instructions, cleaned and cut.
        notes: Why others were dropped, and what was left out.
    """

    tools: tuple[RemoteTool, ...]
    instructions: str | None = None
    notes: tuple[str, ...] = ()

    def same_as(self, tools: Sequence[RemoteTool], instructions: str | None) -> bool:
        """Return whether a model would see no difference."""
        return self.instructions == instructions and (
            [t.digest for t in self.tools] == [t.digest for t in tools]
        )


def screen_tool(raw: object) -> dict[str, Any]:
    """Return one entry of a `tools/list` result reduced to what is good and needed.

    Args:
        raw: The decoded entry, anything.

    Returns:
        `name`, `inputSchema`, and where given `description` and `annotations`.

    Raises:
        ContentError: The tool cannot be offered; the message says why.
    """
    if not isinstance(raw, dict):
        raise ContentError("an entry that is no object")
    entry = cast("dict[str, Any]", raw)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ContentError("a tool without a name")
    shown = one_line(name, 80)
    if len(name) > MAX_NAME:
        raise ContentError(f"{shown}: the name has more than {MAX_NAME} characters")
    if not name.isprintable():
        raise ContentError(f"{shown}: the name has characters that cannot be shown")
    good: dict[str, Any] = {"name": name}
    description = entry.get("description")
    if description is not None:
        if not isinstance(description, str):
            raise ContentError(f"{shown}: the description is no text")
        good["description"] = clean(description)
    schema: Any = entry.get("inputSchema", "")
    schema = {} if schema is None else schema
    if not isinstance(schema, dict):
        raise ContentError(f"{shown}: the parameters are no JSON schema of an object")
    try:
        checked = checked_json(cast("dict[str, Any]", schema))
        if len(encode([good, checked])) > MAX_TOOL_BYTES:
            raise ContentError(f"the definition has more than {MAX_TOOL_BYTES:,} bytes")
        good["inputSchema"] = _usable(checked)
    except ContentError as error:
        raise ContentError(f"{shown}: {error}") from None
    if isinstance(entry.get("annotations"), dict):
        good["annotations"] = _annotations(cast("dict[str, Any]", entry["annotations"]))
    return good


def _usable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of an object that says what it means in draft 2020-12; itself if it does.

    Raises:
        ContentError: It cannot be used.
    """
    if schema.get("type", "object") != "object" or not is_schema(schema):
        schema = cast("dict[str, Any]", in_this_draft(schema))
    if schema.get("type", "object") != "object":
        raise ContentError("the parameters are no JSON schema of an object")
    schema = schema if "type" in schema else {"type": "object", **schema}
    try:
        # Providers read every schema by this draft, whatever it says of itself.
        Validator(encode({key: part for key, part in schema.items() if key != "$schema"}))
    except SchemaUnusable as error:
        raise ContentError(f"the parameters are no usable schema ({error})") from None
    return schema


def _annotations(raw: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "title": str,
        "readOnlyHint": bool,
        "destructiveHint": bool,
        "idempotentHint": bool,
        "openWorldHint": bool,
    }
    good = {k: raw[k] for k, kind in kinds.items() if isinstance(raw.get(k), kind)}
    if "title" in good:
        good["title"] = clean(good["title"])
    return good


def checked_json(value: Any, depth: int = 1) -> Any:
    """Return JSON data with clean text.

    Raises:
        ContentError: It breaks a rule of `encoding`.
    """
    if depth > MAX_DEPTH:
        raise ContentError(f"the parameters are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ContentError("the parameters hold a number that is not finite")
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {clean(key): checked_json(item, depth + 1) for key, item in pairs}
    if isinstance(value, list):
        return [checked_json(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def remote_tool(
    name: str, description: str, parameters: dict[str, Any], annotations: dict[str, Any] | None
) -> RemoteTool:
    """Return a tool of screened parts, with its digest."""
    given = msgspec.Raw(encode(annotations)) if annotations else None
    return RemoteTool(
        name,
        description,
        msgspec.Raw(encode(parameters)),
        given,
        digest(canonical([name, description, parameters, annotations or None])),
    )


def merge(old: Iterable[RemoteTool], new: Iterable[RemoteTool]) -> tuple[RemoteTool, ...]:
    """Return `new` sorted by name, each tool in the spelling first seen where it is the same."""
    known = {tool.digest: tool for tool in old}
    return tuple(sorted((known.get(t.digest, t) for t in new), key=lambda tool: tool.name))


def limited_notes(notes: Sequence[str]) -> tuple[str, ...]:
    """Return at most `MAX_NOTES` notes and a line that counts the rest."""
    if len(notes) <= MAX_NOTES:
        return tuple(notes)
    return (*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES:,} more")


def limited_instructions(text: str | None) -> str | None:
    """Return a server's instructions cleaned and cut to `MAX_INSTRUCTIONS`; empty text is None."""
    if not text:
        return None
    if len(text) > MAX_INSTRUCTIONS:
        text = f"{text[:MAX_INSTRUCTIONS]}\n[cut: the instructions had {len(text):,} characters]"
    return clean(text)


def cut(text: str, limit: int = MAX_RESULT_BYTES) -> str:
    """Return `text` as it is up to `limit` bytes of UTF-8, else its beginning and a note."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    kept = raw[:limit].decode(errors="ignore")
    return f"{kept}\n[cut: the result had {len(raw):,} bytes, these are the first {limit:,}]"
