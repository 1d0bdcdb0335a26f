"""The usual `mcpServers` JSON file, read into server specs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from addendum.encoding import decode
from addendum.errors import ConfigurationError, ContentError
from addendum.tools.mcp import ServerSpec, one_line

MAX_FILE = 1024 * 1024
"""Bytes that a file of servers may have."""

MAX_SECONDS = 3_600
"""A `timeout` beyond this is in milliseconds, as some programs write it."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HTTP = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})


def read_mcp_file(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> tuple[ServerSpec, ...]:
    """Read the servers of a `.mcp.json` or any file with `{"mcpServers": {NAME: {...}}}`.

    A server has `command`, `args`, `env`, `cwd`, or `url`, `headers`; `type` (`stdio`, `http`) is
    optional. In their texts `${VAR}` and `${VAR:-default}` are taken from the environment.
    `timeout` says how long a call may take. Two fields are ours: `on` (switched on from the start)
    and `defer`. Others are left alone.

    Args:
        path: The file.
        environ: Variables for `${VAR}`; the process's own where it is None.

    Returns:
        The servers in the file's order.

    Raises:
        ConfigurationError: The file cannot be read, or a server in it cannot be used.
    """
    place = Path(path)
    try:
        if place.stat().st_size > MAX_FILE:
            raise ConfigurationError(
                f"{place} has more than {MAX_FILE:,} bytes; name a file of MCP servers"
            )
        data = decode(place.read_bytes(), limit=MAX_FILE)
    except OSError as error:
        reason = error.strerror or "no reason given"
        raise ConfigurationError(
            f"cannot read {place}: {reason}; name a file of MCP servers"
        ) from error
    except ContentError as error:
        raise ConfigurationError(f"{place} is not usable: {error}; correct the file") from error
    servers = cast("Any", data).get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(
            f'{place} names no servers; it needs {{"mcpServers": {{NAME: {{"command": ...}}}}}}'
        )
    variables = os.environ if environ is None else environ
    return tuple(
        _spec(name, entry, f"{place}: server {one_line(name, 60)!r}", variables)
        for name, entry in cast("dict[str, Any]", servers).items()
    )


def server_specs(
    servers: Mapping[str, Mapping[str, Any] | ServerSpec],
    environ: Mapping[str, str] | None = None,
) -> tuple[ServerSpec, ...]:
    """Return the specs of servers given by name, each as in a file or ready.

    Args:
        servers: Servers by name. `command` may be a list of program and arguments.
        environ: As for `read_mcp_file`.

    Raises:
        ConfigurationError: A server cannot be used.
    """
    variables = os.environ if environ is None else environ
    specs: list[ServerSpec] = []
    for name, entry in servers.items():
        if isinstance(entry, ServerSpec):
            specs.append(entry)
            continue
        where = f"MCP server {one_line(str(name), 60)!r}"
        if not isinstance(entry, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f'{where} is no object; give it a "command" or a "url"')
        fields: dict[str, Any] = dict(entry)
        command: Any = fields.get("command")
        arguments: Any = fields.get("args", [])
        if isinstance(command, list | tuple) and command and isinstance(arguments, list | tuple):
            parts = [str(part) for part in cast("list[Any]", command)]
            fields |= {"command": parts[0], "args": [*parts[1:], *cast("list[Any]", arguments)]}
        specs.append(_spec(name, fields, where, variables))
    return tuple(specs)


def _spec(name: str, entry: Any, where: str, variables: Mapping[str, str]) -> ServerSpec:
    if not isinstance(name, str) or not name or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{where} has an unusable name; give it a printable one")
    if not isinstance(entry, dict):
        raise ConfigurationError(f'{where} is no object; give it a "command" or a "url"')
    fields = cast("dict[str, Any]", entry)

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
        given = fields.get(key)
        if given is not None and not isinstance(given, str):
            raise ConfigurationError(f'{where}: "{key}" must be text')
        return None if given is None else expand(given)

    def flag(key: str) -> bool:
        given = fields.get(key, False)
        if not isinstance(given, bool):
            raise ConfigurationError(f'{where}: "{key}" must be true or false')
        return given

    kind, command, url = text("type"), text("command"), text("url")
    if kind == "sse":
        raise ConfigurationError(
            f"{where} uses the old SSE transport; use the server's streamable HTTP address"
        )
    if kind is not None and kind != "stdio" and kind not in _HTTP:
        raise ConfigurationError(f'{where}: "type" must be stdio or http, not {one_line(kind)!r}')
    if (command is None) == (url is None):
        raise ConfigurationError(f'{where} needs either a "command" or a "url"')
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


def _seconds(fields: dict[str, Any], where: str) -> float | None:
    """Return a server's `timeout` in seconds.

    Cline, Roo and goose write seconds, at most 3,600; Gemini CLI, opencode, LibreChat and Claude
    Code milliseconds, from 1,000 on: what is more than an hour is taken for milliseconds.

    Raises:
        ConfigurationError: It is no number above 0.
    """
    given = fields.get("timeout")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e9:
        raise ConfigurationError(f'{where}: "timeout" must be a number of seconds above 0')
    return given / 1000 if given > MAX_SECONDS else float(given)


def _arguments(fields: dict[str, Any], where: str, expand: Callable[[str], str]) -> tuple[str, ...]:
    given = fields.get("args", [])
    if not isinstance(given, list) or not all(
        isinstance(part, str) for part in cast("list[Any]", given)
    ):
        raise ConfigurationError(f'{where}: "args" must be a list of texts')
    return tuple(expand(part) for part in cast("list[str]", given))


def _pairs(
    fields: dict[str, Any], key: str, where: str, expand: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    given = fields.get(key, {})
    if not isinstance(given, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", given).values()
    ):
        raise ConfigurationError(f'{where}: "{key}" must be an object of texts')
    return tuple((name, expand(value)) for name, value in cast("dict[str, str]", given).items())
