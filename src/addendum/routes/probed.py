"""What a probe found out about an endpoint: dated results in a file, laid over the route's data.

One file a route and address, in the user's own data directory or in `$ADDENDUM_PROBES`. Results
act where an epoch begins; an epoch that a log holds goes on as it was recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from addendum import encoding
from addendum.errors import ConfigurationError
from addendum.log.values import Definitions
from addendum.paths import FOREIGN, home, told
from addendum.routes.model import Beta, Readd, Removals, Route, ToolUpdate, untold

FOLDER_VARIABLE = "ADDENDUM_PROBES"
"""Environment variable that names another folder for results."""

MAX_FILE = 1024 * 1024
"""Bytes of results that are read."""


class Facts(Struct, frozen=True, forbid_unknown_fields=True):
    """What an endpoint was seen to take; the fields are those of `Capabilities`."""

    tool_update: ToolUpdate | None
    definitions: Definitions = "by-reference"
    removals: Removals = "text"
    readd: Readd = "text"
    redefine: bool = False
    placeholder: bool = False
    betas: tuple[Beta, ...] = ()


class Probed(Struct, frozen=True, forbid_unknown_fields=True):
    """The results of one probe.

    Attributes:
        route: `provider:model`.
        endpoint: Base URL that was asked.
        date: Day on which it was asked, `YYYY-MM-DD`.
        version: Release that asked.
        facts: What is laid over the route's data; None if nothing could be decided.
        forms: What each form of tool changes led to, as `addendum routes probe --json` prints it.
        tasks: What tasks led to in each form; empty if none were run.
    """

    route: str
    endpoint: str
    date: str
    version: str
    facts: Facts | None
    forms: tuple[dict[str, Any], ...] = ()
    tasks: tuple[dict[str, Any], ...] = ()


def default_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of results: `$ADDENDUM_PROBES`, else in the user's data directory.

    Raises:
        ConfigurationError: The variable names something else than a folder.
    """
    source = os.environ if environ is None else environ
    if named := source.get(FOLDER_VARIABLE, "").strip():
        folder = home(named)
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"{FOLDER_VARIABLE}={named} is no folder; correct it")
        return folder
    data = source.get("XDG_DATA_HOME", "")
    base = Path(data) if Path(data).is_absolute() else home("~/.local/share")
    return base / "addendum" / "probes"


def results_file(route: Route, folder: Path | None = None) -> Path:
    """Return the file that holds the results of a route at its address."""
    name = re.sub(r"[^A-Za-z0-9.-]", "-", route.name)[:80]
    identity = encoding.digest(f"{route.name} {route.endpoint.base_url}".encode())[:8]
    return (default_folder() if folder is None else folder) / f"{name}-{identity}.json"


def keep(route: Route, probed: Probed, folder: Path | None = None) -> Path:
    """Keep results in place of earlier ones, and return their file.

    Raises:
        ConfigurationError: The folder cannot be written to.
    """
    path = results_file(route, folder)
    fresh = path.with_suffix(".new")
    with told("write", path, "name another folder with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.format(encoding.encode(probed), indent=2) + b"\n")
        fresh.replace(path)
    return path


def read(route: Route, folder: Path | None = None) -> Probed | None:
    """Return the results that are kept of a route at its address, or None.

    Raises:
        ConfigurationError: The file is damaged, or `$ADDENDUM_PROBES` names no folder.
    """
    try:
        path = results_file(route, folder)
    except ConfigurationError:
        if os.environ.get(FOLDER_VARIABLE, "").strip():
            raise
        # Nothing can be kept where there is no home directory, so nothing is.
        return None
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except FOREIGN:
        return None
    try:
        found = msgspec.json.decode(data, type=Probed) if len(data) <= MAX_FILE else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = None
    facts = None if found is None else found.facts
    if (
        found is None
        or (found.route, found.endpoint) != (route.name, route.endpoint.base_url)
        or (facts and untold(route.wire, facts.tool_update, facts.definitions, facts.removals))
    ):
        raise ConfigurationError(f"{path} holds no results of {route.name}; delete it")
    return found


def overlaid(route: Route, found: Probed | None) -> Route:
    """Return a route with what was probed at its address laid over its data.

    A route that names a weaker form (`+FACT`) stays as it is.

    Args:
        route: The route.
        found: The results of its probe, as from `read`.
    """
    if route.facts or found is None or found.facts is None:
        return route
    facts = found.facts
    changed: dict[str, Any] = {"tool_update": facts.tool_update, "also": ()}
    if facts.tool_update is not None:
        changed |= structs.asdict(facts)
        # What other parts of a request need stays.
        kept = [each for each in route.capabilities.betas if each.needed_for == "clear_at"]
        changed["betas"] = (*facts.betas, *(each for each in kept if each not in facts.betas))
    return structs.replace(
        route,
        capabilities=structs.replace(route.capabilities, **changed),
        source=f"probed at {found.endpoint} by addendum {found.version}; {route.source}",
        checked=found.date,
        certainty="probed",
    )
