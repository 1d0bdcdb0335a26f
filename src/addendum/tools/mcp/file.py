"""MCP servers as a caller gives them: the usual `mcpServers` file, its content, or ready specs."""

from __future__ import annotations

import json
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from addendum.allowed import shown
from addendum.checked import Location, check_value, nearest
from addendum.encoding import decode
from addendum.errors import ConfigurationError, ContentError
from addendum.lines import one_line
from addendum.masking import masked
from addendum.paths import read_bytes
from addendum.tools.mcp.values import ServerSpec

MAX_FILE = 1024 * 1024
"""Bytes that a file of servers may have."""

Servers: TypeAlias = Location | Mapping[str, Any] | Sequence[ServerSpec]
"""A file, what stands in one, servers by name, or specs."""

FIELDS = ("type", "command", "args", "env", "cwd", "url", "headers", "timeout", "on", "defer")
"""What is read of a server; `on` and `defer` are ours."""

FOREIGN = frozenset(
    "alwaysAllow autoApprove auth description disabled disabledTools enabled envFile excludeTools "
    "gallery headersHelper httpUrl icon id includeTools initTimeout name oauth scope serverUrl "
    "source tools transport transportType trust version watchPaths".split()
)
"""What other programs write into an entry of such a file, as their documents say: left alone."""

_WHOLE = "mcpServers"
_NEAR = 0.75
"""How like one of ours a foreign field has to be to be a slip of the pen."""

_ENCODINGS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[\]}])')

MAX_SECONDS = 3_600
"""A `timeout` beyond this is in milliseconds, as some programs write it."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HTTP = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})


def server_specs(
    servers: Servers, environ: Mapping[str, str] | None = None
) -> tuple[ServerSpec, ...]:
    """Return the specs of servers, however they are given.

    Args:
        servers: The path of a `.mcp.json` or any file with `{"mcpServers": {NAME: {...}}}`; such
            a value itself; servers by name, each as in a file or ready; or ready specs.
        environ: Variables for `${VAR}`; the process's own where it is None.

    Raises:
        ConfigurationError: The file cannot be read, a server cannot be used, or two have one name.
    """
    variables = os.environ if environ is None else environ
    if isinstance(servers, str | os.PathLike):
        return read_mcp_file(servers, variables)
    if isinstance(servers, Mapping):
        whole = servers.get(_WHOLE)
        if isinstance(whole, Mapping) and not {"command", "url"} & whole.keys():
            _alone(servers)
            return _entries(cast("Mapping[str, Any]", whole), "", variables)
        return _entries(servers, "", variables, ours=True)
    check_value("Agent", "mcp_servers", servers, Sequence[ServerSpec])
    names = [spec.name for spec in servers]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"two MCP servers are named {twice!r}; rename one of them")
    return tuple(servers)


def read_mcp_file(
    path: Location, environ: Mapping[str, str] | None = None
) -> tuple[ServerSpec, ...]:
    """Read the servers of a file.

    A server has `command`, `args`, `env`, `cwd`, or `url`, `headers`; `type` (`stdio`, `http`) is
    optional. In their texts `${VAR}` and `${VAR:-default}` are taken from the environment.
    `timeout` says how long a call may take. Two fields are ours: `on` (switched on from the start)
    and `defer`. Others are left alone, unless one looks like a slip of the pen. A byte order mark,
    comments and last commas are no mistake.

    Args:
        path: The file.
        environ: Variables for `${VAR}`; the process's own where it is None.

    Returns:
        The servers in the file's order.

    Raises:
        ConfigurationError: The file cannot be read, or a server in it cannot be used.
    """
    place = Path(path)
    if not os.fspath(path):
        raise ConfigurationError("'' is no file of MCP servers; name one")
    try:
        content = _json(read_bytes(place, limit=MAX_FILE, advice="name a file of MCP servers"))
    except ContentError as error:
        raise ConfigurationError(f"{place} is not usable: {error}; correct the file") from error
    servers = cast("Any", content).get(_WHOLE) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(
            f'{place} names no servers; it needs {{"mcpServers": {{NAME: {{"command": ...}}}}}}'
        )
    variables = os.environ if environ is None else environ
    return _entries(cast("dict[str, Any]", servers), f"{place}: ", variables)


def _json(data: bytes) -> Any:
    """Decode a file that people write, and programs with their own habits."""
    mark = next((mark for mark in _ENCODINGS if data.startswith(mark)), b"")
    try:
        text = data.decode(_ENCODINGS.get(mark, "utf-8"))
    except UnicodeDecodeError:
        raise ContentError("it is no text in UTF-8") from None
    try:
        return _once(text, decode(text, limit=MAX_FILE))
    except ContentError as error:
        # Text between quotes stays; white space keeps the places that an error names.
        bare = _COMMENT.sub(lambda found: _blank(found.group(), "/"), text)
        bare = _LAST_COMMA.sub(lambda found: _blank(found.group(), ","), bare)
        if bare == text:
            raise error
        return _once(bare, decode(bare, limit=MAX_FILE))


def _once(text: str, value: Any) -> Any:
    """Return what was decoded, if no name stands twice in an object of it: one would be lost.

    Raises:
        ContentError: One does.
    """

    def pairs(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            shown_name = one_line(masked(twice), 60)
            raise ContentError(f"{shown_name!r} stands twice in one object, and one would be lost")

    json.loads(text, object_pairs_hook=pairs, parse_int=str, strict=False)
    return value


def _blank(text: str, begin: str) -> str:
    return re.sub(r"[^\n]", " ", text) if text.startswith(begin) else text


def _alone(servers: Mapping[str, Any]) -> None:
    """Refuse servers beside `mcpServers`: they would be lost."""
    for name, entry in servers.items():
        if name != _WHOLE and (
            isinstance(entry, ServerSpec)
            or (isinstance(entry, Mapping) and {"command", "url"} & cast("Any", entry).keys())
        ):
            raise ConfigurationError(
                f"MCP server {one_line(str(name), 60)!r} stands beside {_WHOLE!r}; put it inside"
            )


def _entries(
    servers: Mapping[str, Any], place: str, variables: Mapping[str, str], *, ours: bool = False
) -> tuple[ServerSpec, ...]:
    """Return the specs of servers by name.

    Args:
        servers: Their entries, or specs.
        place: The file that they stand in, for messages; empty if in none.
        variables: For `${VAR}`.
        ours: Whether they were written for us, so that a field that nobody knows is a mistake.
    """
    specs: list[ServerSpec] = []
    for name, entry in servers.items():
        where = f"{place}{'server' if place else 'MCP server'} {one_line(str(name), 60)!r}"
        if not isinstance(entry, ServerSpec):
            specs.append(_spec(name, entry, where, variables, ours))
        elif entry.name != name:
            raise ConfigurationError(
                f"{where} has a spec with the name {entry.name!r}; give both the same"
            )
        else:
            specs.append(entry)
    return tuple(specs)


def _spec(
    name: str, entry: Any, where: str, variables: Mapping[str, str], ours: bool
) -> ServerSpec:
    if not isinstance(name, str) or not name or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{where} has an unusable name; give it a printable one")
    if not isinstance(entry, Mapping):
        # A text may be an address with a key in it.
        what = "text" if isinstance(entry, str) else shown(entry)
        raise ConfigurationError(f'{where} is no object but {what}; give it a "command" or a "url"')
    fields = _plain(cast("Mapping[str, Any]", entry), where)
    _known(fields, where, ours)

    def expand(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            variable, default = match.group(1), match.group(2)
            found = variables.get(variable)
            # As in a shell, `:-` also stands in for a variable that is set but empty.
            if default is not None and not found:
                return default
            if found is None:
                raise ConfigurationError(
                    f"{where} needs the environment variable {variable}; set it, or write "
                    f"${{{variable}:-default}}"
                )
            return found

        return _VARIABLE.sub(value, text)

    def text(key: str) -> str | None:
        field = fields.get(key)
        if field is not None and not isinstance(field, str):
            raise ConfigurationError(f'{where}: "{key}" must be text, not {shown(field)}')
        return None if field is None else expand(field)

    def flag(key: str) -> bool:
        field = fields.get(key, False)
        if not isinstance(field, bool):
            raise ConfigurationError(f'{where}: "{key}" must be true or false, not {shown(field)}')
        return field

    kind, command, url = text("type"), text("command"), text("url")
    if kind == "sse":
        raise ConfigurationError(
            f"{where} uses the old SSE transport; use the server's streamable HTTP address"
        )
    if kind is not None and kind != "stdio" and kind not in _HTTP:
        raise ConfigurationError(f'{where}: "type" must be stdio or http, not {one_line(kind)!r}')
    if (command is None) == (url is None):
        slip = next((slip for key in fields if (slip := _slip(key, 0.6))), "")
        raise ConfigurationError(f'{where} needs either a "command" or a "url"{slip}')
    if kind is not None and (kind == "stdio") != (command is not None):
        needed = "command" if kind == "stdio" else "url"
        raise ConfigurationError(f'{where} is of type {kind} and needs a "{needed}"')
    if command == "":
        raise ConfigurationError(f'{where}: "command" is empty; name a program')
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigurationError(f'{where}: "url" must begin with http:// or https://')
    return ServerSpec(
        name=name,
        command=() if command is None else (command, *_arguments(fields, where, expand)),
        url=url,
        env=_pairs(fields, "env", where, expand),
        headers=_pairs(fields, "headers", where, expand),
        cwd=text("cwd"),
        defer=flag("defer"),
        on=flag("on"),
        timeout=_seconds(fields, where),
    )


def _plain(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return an entry whose `command`, which may be a list with the arguments, is a text."""
    fields = dict(entry)
    command: Any = fields.get("command")
    if not isinstance(command, list | tuple):
        return fields
    parts = list(cast("Sequence[Any]", command))
    arguments: Any = fields.get("args", [])
    if not parts or not isinstance(arguments, list | tuple):
        raise ConfigurationError(
            f'{where}: "command" must be a program, or a list of it and its arguments'
        )
    parts += list(cast("Sequence[Any]", arguments))
    program, *rest = (str(part) if isinstance(part, Path) else part for part in parts)
    return fields | {"command": program, "args": rest}


def _known(fields: Mapping[str, Any], where: str, ours: bool) -> None:
    """Tell a field that nothing reads, where it looks like one of ours or was meant for us."""
    for key in fields:
        if key in FIELDS or key in FOREIGN:
            continue
        slip = _slip(key, _NEAR)
        if slip or ours:
            hint = slip or f"; there are: {', '.join(FIELDS)}"
            raise ConfigurationError(
                f"{where} has a field {one_line(str(key), 60)!r} that nothing reads{hint}"
            )


def _slip(key: Any, like: float) -> str:
    if not isinstance(key, str) or key in FIELDS or key in FOREIGN:
        return ""
    return nearest(key, FIELDS, like)


def _seconds(fields: dict[str, Any], where: str) -> float | None:
    """Return a server's `timeout` in seconds.

    Cline, Roo and goose write seconds, at most 3,600; Gemini CLI, opencode, LibreChat and Claude
    Code milliseconds, from 1,000 on: what is more than an hour is taken for milliseconds.

    Raises:
        ConfigurationError: It is no number above 0.
    """
    field = fields.get("timeout")
    if field is None:
        return None
    if isinstance(field, bool) or not isinstance(field, int | float) or not 0 < field < 1e9:
        raise ConfigurationError(
            f'{where}: "timeout" must be a number of seconds above 0, not {shown(field)}'
        )
    return field / 1000 if field > MAX_SECONDS else float(field)


def _arguments(fields: dict[str, Any], where: str, expand: Callable[[str], str]) -> tuple[str, ...]:
    field = fields.get("args", [])
    if not isinstance(field, list | tuple):
        raise ConfigurationError(f'{where}: "args" must be a list of texts, not {shown(field)}')
    parts = cast("list[Any]", field)
    if odd := [part for part in parts if not isinstance(part, str)]:
        raise ConfigurationError(
            f'{where}: "args" must be a list of texts; {shown(odd[0])} is none'
        )
    return tuple(expand(part) for part in parts)


def _pairs(
    fields: dict[str, Any], key: str, where: str, expand: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    field = fields.get(key, {})
    if not isinstance(field, Mapping):
        raise ConfigurationError(f'{where}: "{key}" must be an object of texts')
    texts = cast("Mapping[Any, Any]", field)
    for name, value in texts.items():
        if not isinstance(name, str) or not isinstance(value, str):
            # Never the value: it is a key, most often.
            raise ConfigurationError(
                f'{where}: "{key}" must be an object of texts; that of {one_line(str(name), 60)!r} '
                "is none"
            )
    return tuple((name, expand(value)) for name, value in texts.items())
