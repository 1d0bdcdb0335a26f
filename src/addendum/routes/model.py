"""What is known of a route: frozen values, filled from the TOML files beside it.

Three axes stay apart: a wire API is code, a provider is data (address, credentials, quirks), and
what a model can do is data. Nothing here is ever written to a log; an epoch records the few facts
that it renders with (`addendum.routes.choose`).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Annotated, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Meta, Struct

from addendum.errors import ConfigurationError
from addendum.log.values import Definitions, TailMode
from addendum.routes.schemas import SchemaRules
from addendum.routes.shapes import ShapeRules
from addendum.routes.wires import wire_data

Wire: TypeAlias = str
"""Name of a wire API (`addendum.routes.wires`)."""

_SECONDS = {"5m": 300, "1h": 3600}
ToolUpdate: TypeAlias = Literal["addition-only", "in-history"]
Removals: TypeAlias = Literal["block", "omit", "text"]
Readd: TypeAlias = Literal["block", "redeclare", "text"]
CacheKind: TypeAlias = Literal["marks", "steps", "boundaries", "units", "none"]
Certainty: TypeAlias = Literal["documented", "reported", "probed"]
WeakerForm: TypeAlias = Literal["by-reference", "addition-only"]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class CacheRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How an endpoint caches a prompt's prefix.

    Attributes:
        kind: `marks` (written only at marks we set), `boundaries` (written at the ends of certain
            messages, and at marks), `steps` (automatic, read in whole steps), `units` (automatic,
            only whole stored prefixes are read) or `none` (nothing is known or promised).
        minimum: Shortest prefix that is cached, in tokens.
        lookback: Positions that a read walks back from a mark, the mark's own included; for
            `boundaries`, earlier message ends that are looked up. 0 where it does not apply.
        max_marks: Marks that a request may set.
        text_marks: Whether marks are taken only on prompt text and in messages that hold nothing
            but text: not on tools, and not beside calls or results.
        mark_roles: Roles of the messages that may carry a mark; `tool` is a result's, on any wire.
            On Chat Completions it is left out unless the row names it: not every gateway that
            takes marks takes them there.
        runs: Whether a run of calls, or of results, is one position of a lookback.
        step: Distance in tokens between places that can be read (`steps`), or between automatic
            units (`units`); 0 where it does not apply or is not published.
        fresh: Tokens at a prompt's end that are evaluated each time, whatever is stored.
        lifetimes: Lifetimes that a request may ask for, the provider's default first.
        default_lifetime_s: Seconds that an entry surely lives without being read.
        version: Names this set of rules; an epoch records it.
    """

    kind: CacheKind
    minimum: Count = 0
    lookback: Count = 0
    max_marks: Count = 0
    text_marks: bool = False
    mark_roles: tuple[Literal["system", "user", "tool"], ...] = ("system", "user", "tool")
    runs: bool = True
    step: Count = 0
    fresh: Count = 0
    lifetimes: tuple[str, ...] = ()
    default_lifetime_s: Count = 0
    version: str = ""

    def lifetime(self, asked: str | None) -> int:
        """Return the seconds that an entry surely lives without being read; 0 if nobody says.

        Args:
            asked: The lifetime that was asked for (`5m`, `1h`); None for the provider's default.
        """
        return _SECONDS.get(asked or "", self.default_lifetime_s)


class Beta(Struct, frozen=True, forbid_unknown_fields=True):
    """A beta flag of the wire, and what it is needed for.

    Attributes:
        name: The flag as sent.
        needed_for: `by-value` or `by-reference` (sent in every request of an epoch with that
            projection), `clear_at` (in every request of an epoch with scoped tails), or `block`
            (sent only with a request that holds update blocks).
    """

    name: str
    needed_for: Literal["by-value", "by-reference", "clear_at", "block"]


class Capabilities(Struct, frozen=True, forbid_unknown_fields=True):
    """What one model can be told on one endpoint.

    `definitions`, `removals`, `readd`, `redefine`, `placeholder` and `also` mean nothing where
    `tool_update` is None.

    Attributes:
        tool_update: How tool changes are told natively, or None.
        definitions: Whether an addition names a declared tool or carries the definition itself.
        removals: `block`; `omit` (declaration and additions are left out, the prefix breaks); or
            `text` (the definition stays, a notice says so, execution refuses).
        readd: How a removed name returns: a new `block`, `redeclare`d in the tool list, or `text`
            (by value: its definition stands there all the time, a name is defined once for ever).
        redefine: Whether a later definition replaces an earlier one in place.
        also: Weaker native forms that the endpoint takes as well.
        prompt_update: Whether a changed prompt can be appended to the history as a system message.
        tail: Where per-turn instructions stand unless something else is asked for.
        placeholder: Whether a deferred entry that is never offered stands behind the head's tools.
        reasoning_bound: Whether signed reasoning is only valid behind the exact prefix it was made
            with.
        keeps_reasoning: Whether reasoning of earlier turns stays in the context; otherwise the
            provider strips it at the next user message, and the prefix changes there.
        encrypted_reasoning: Whether the model gives its reasoning in encrypted form on request; a
            model that does not reason refuses to be asked.
        betas: Flags of the wire, in the order in which they are sent.
        signature_stand_in: What stands for the signature of a call that another route made; empty
            where the model asks for none.
        reasoning_stand_in: What stands for the reasoning of an answer with calls that has none,
            such as one of another route; empty where the model asks for none.
        first_tail_behind: Whether a moved tail stands behind the human message while that is the
            first message of all: some providers tell conversations apart by their first message.
        shows: Media types of files that the model takes in the results of calls.
    """

    tool_update: ToolUpdate | None = None
    definitions: Definitions = "by-reference"
    removals: Removals = "text"
    readd: Readd = "text"
    redefine: bool = False
    also: tuple[WeakerForm, ...] = ()
    prompt_update: bool = False
    tail: TailMode = "kept"
    placeholder: bool = False
    reasoning_bound: bool = False
    keeps_reasoning: bool = True
    encrypted_reasoning: bool = False
    betas: tuple[Beta, ...] = ()
    signature_stand_in: str = ""
    reasoning_stand_in: str = ""
    first_tail_behind: bool = False
    shows: tuple[str, ...] = ()


def untold(
    wire: Wire, update: ToolUpdate | None, definitions: Definitions, removals: Removals
) -> str:
    """Return why a wire has no way to tell of changes as said; empty if it has one.

    Args:
        wire: The wire API.
        update: How tool changes are told natively, or None: the others mean nothing then.
        definitions: How additions are told.
        removals: How removals are told.

    Raises:
        ConfigurationError: There is no such wire.
    """
    changes = wire_data(wire).changes
    if update is None or changes == "blocks":
        return ""
    if changes == "none":
        return f"the wire {wire} cannot be told of tool changes natively"
    if update != "addition-only" or definitions != "by-value" or removals == "block":
        return f"the wire {wire} takes additions by-value only, and no removals as blocks"
    return ""


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """An address, and how a request proves who sends it.

    Attributes:
        base_url: Address without a trailing slash, credentials, query or fragment; empty where the
            caller has to give one, and where it has a region or a project that the environment
            does not name.
        path: Path of the API behind base and version; `{model}` stands for the model's id.
        version: Version segment of the path.
        version_in_base: Whether a base URL with a path already holds the version, as OpenAI's
            clients have it; otherwise it is added unless it is there.
        auth: How the key travels; `aws` is a bearer token, or a signature made with access keys.
        service: Name that such a signature is made for.
        key_variables: Environment variables that may hold the key; the first that is set counts.
        key_optional: Whether a request may go out without a key.
        base_url_variables: Environment variables that may hold another base URL.
        region_variables: Environment variables that may hold the region.
        region_hosts: Hosts of regions whose address is built otherwise.
        project_variables: Environment variables that may hold the project.
        headers: Fixed headers.
        body_version: Version of the API that the body names, where the address names the model.
        vouched: Whether the route's capabilities hold at this address.
    """

    base_url: str
    path: str
    version: str = "/v1"
    version_in_base: bool = False
    auth: Literal["x-api-key", "x-goog-api-key", "api-key", "bearer", "aws", "none"] = "bearer"
    service: str = "bedrock"
    key_variables: tuple[str, ...] = ()
    key_optional: bool = False
    base_url_variables: tuple[str, ...] = ()
    region_variables: tuple[str, ...] = ()
    region_hosts: tuple[tuple[str, str], ...] = ()
    project_variables: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body_version: str = ""
    vouched: bool = True

    @property
    def url(self) -> str:
        """The address that requests are posted to; `Route.url` fills the model in.

        Raises:
            ConfigurationError: The provider has no address of its own and none was given, or its
                region is not known.
        """
        if not self.base_url:
            variables = (
                *self.base_url_variables,
                *self.region_variables,
                *self.project_variables,
            )
            where = " or ".join(("base_url (--base-url)", *variables))
            raise ConfigurationError(f"this route has no address of its own; give {where}")
        has_version = (
            urlsplit(self.base_url).path not in ("", "/")
            if self.version_in_base
            else self.base_url.endswith(self.version)
        )
        return self.base_url + ("" if has_version else self.version) + self.path

    @property
    def loopback(self) -> bool:
        """Whether the address is this machine's own."""
        return is_loopback(self.base_url)


class Route(Struct, frozen=True, forbid_unknown_fields=True):
    """One model at one endpoint, with all that is known about telling it things.

    Attributes:
        provider: The provider's name.
        model: The model's id, as sent.
        facts: Weaker forms that were asked for (`+FACT`), in the order given.
        wire: Name of the wire API.
        endpoint: Where it is.
        capabilities: What it can be told.
        cache: How it caches.
        schemas: What it takes of a tool's definition.
        shapes: Which shapes of a history it refuses.
        max_tokens: Output limit where the caller sets none; None leaves the field out.
        max_tokens_field: Name of that field on the wire.
        window: Tokens of prompt and output together that the model surely takes; 0 if that is not
            known.
        id_pattern: Regular expression that a whole call id must match.
        cache_key: Field of the body for a key that is the same in all conversations with one head;
            empty where none is taken.
        cache_key_header: Header for the same key.
        usage: Where the wire reports tokens, for people.
        source: Where the facts come from.
        checked: Day on which the source was read, `YYYY-MM-DD`.
        certainty: `documented` by the provider, `reported` by others, or `probed` by us.
    """

    provider: str
    model: str
    wire: Wire
    endpoint: Endpoint
    capabilities: Capabilities
    cache: CacheRules
    id_pattern: str
    source: str
    checked: str
    certainty: Certainty
    facts: tuple[str, ...] = ()
    schemas: SchemaRules = SchemaRules()
    shapes: ShapeRules = ShapeRules()
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    window: int = 0
    cache_key: str = ""
    cache_key_header: str = ""
    usage: str = ""

    @property
    def name(self) -> str:
        """`provider:model`: the identity that the log records."""
        return f"{self.provider}:{self.model}"

    @property
    def url(self) -> str:
        """The address that requests are posted to.

        Raises:
            ConfigurationError: As `Endpoint.url`.
        """
        return self.endpoint.url.replace("{model}", quote(self.model, safe=""))

    @property
    def full_name(self) -> str:
        """`provider:model+FACT...`: what `resolve` was given."""
        return "+".join((self.name, *self.facts))

    @property
    def block_betas(self) -> tuple[str, ...]:
        """Flags to send only with a request that holds update blocks (A12)."""
        return tuple(beta.name for beta in self.capabilities.betas if beta.needed_for == "block")


@lru_cache(maxsize=256)
def is_loopback(base_url: str) -> bool:
    """Return whether `base_url` names 127.0.0.0/8, ::1 or `localhost`.

    Names are never looked up, so another name that resolves to loopback does not count.
    """
    host = urlsplit(base_url).hostname or ""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
