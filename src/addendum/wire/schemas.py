"""A tool's definition as an endpoint takes it. The tool's own still decides every call.

What an endpoint refuses is data (`SchemaRules`). A definition that breaks none of its rules is sent
as it is, to the byte. Another is mended so that the model is told the same; where that cannot be,
it is told less, and what it is told less of stands in `Screened.losses`.

=====================  =========================================================================
rule broken            sent in its place
=====================  =========================================================================
no valid schema        what was meant (`tools.schema_slips`), without what is still wrong
no object at the top   an object
`at_top`               the branches of a union joined: their properties, what all of them require
`properties`, `items`  an empty object
`typed`                the type that its values and keywords tell, else a union of all types
`type_beside_unions`   the type in each branch
`keys`                 other keys; the arguments of a call get the tool's own back
`refs`                 what is referred to; what contains itself is shown once
`patterns`             the pattern in the description
`description`          its rest in the description of the parameters
`depth`, `size`        the deepest parts with no more than their type and description
=====================  =========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

import jsonschema_rs
import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.log.values import ToolSchema
from addendum.routes.schemas import Refs, SchemaRules
from addendum.tools.references import Json, Schema
from addendum.tools.schema_slips import LISTED, NAMED, SINGLE, in_this_draft, over_parts, parts_of
from addendum.tools.validation import is_schema
from addendum.wire.schema_parts import Parts, described, of_an_object, table, tables
from addendum.wire.schema_references import SHALLOW, all_lead_somewhere, referring

UNIONS = ("oneOf", "anyOf", "allOf")
CHOICES = (*UNIONS, "enum", "not")

_NOTHING = Raw(b'{"type":"object"}')
_DEEP = frozenset({*NAMED, *SINGLE, *LISTED, "required", "dependentRequired", "dependencies"})
_JOINED = frozenset({"type", "title", "description", "properties", "required"})
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")
_STEM = 55
_members = msgspec.json.Decoder(dict[str, Raw])

Keys: TypeAlias = Mapping[str, str]


class Screened(Struct, frozen=True):
    """A definition as it is sent.

    Attributes:
        tool: What is sent; the tool's own definition where nothing had to change.
        keys: The tool's own keys by those that are sent in their place.
        losses: What the model is not told of, each in a few words.
        cut: Whether parts are left out for their number or depth.
    """

    tool: ToolSchema
    keys: Keys
    losses: tuple[str, ...] = ()
    cut: bool = False

    def own_arguments(self, arguments: str) -> str:
        """Return a call's argument text with the tool's own keys; itself if none was renamed.

        Args:
            arguments: JSON text as the model wrote it.
        """
        if not self.keys:
            return arguments
        try:
            given = _members.decode(arguments)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return arguments
        own: dict[str, Raw] = {}
        for key, part in given.items():
            name = self.keys.get(key, key)
            # A model that knows the tool's own key as well meant that one.
            own[key if name in given else name] = part
        return arguments if own.keys() == given.keys() else encoding.encode(own).decode()


def relieved(schema: Raw, refused: Collection[str]) -> Raw:
    """Return a schema that is an object's, without what may not stand at its top.

    This is what renderings up to 1 send. One that has to lose nothing is given back to the byte.

    Args:
        schema: JSON text.
        refused: Keywords that are left out at the top.
    """
    raw = bytes(schema)
    if raw.startswith(b'{"type":"object"') and not any(word.encode() in raw for word in refused):
        return schema
    decoded = encoding.decode(raw)
    if not isinstance(decoded, dict):
        return _NOTHING
    value = cast("Schema", decoded)
    if value.get("type") == "object" and not any(word in value for word in refused):
        return schema
    kept = {name: part for name, part in value.items() if name not in refused}
    return Raw(encoding.encode({**kept, "type": "object"}))


def screened(tool: ToolSchema, rules: SchemaRules) -> Screened:
    """Return a definition as an endpoint takes it.

    Args:
        tool: The tool's own definition.
        rules: What the endpoint takes.
    """
    found = _screened(tool.description, bytes(tool.parameters), rules)
    if found.tool.description == tool.description and found.tool.parameters == tool.parameters:
        return msgspec.structs.replace(found, tool=tool)
    made = msgspec.structs.replace(
        tool, description=found.tool.description, parameters=found.tool.parameters
    )
    return msgspec.structs.replace(found, tool=made)


@lru_cache(maxsize=4096)
def _screened(description: str, parameters: bytes, rules: SchemaRules) -> Screened:
    screen = _Screen(rules)
    try:
        given: Json = encoding.decode(parameters)
    except ContentError:
        given = None
    try:
        value = screen.schema(given)
    except RecursionError:
        screen, value = _Screen(rules), of_an_object(rules)
        screen.losses["its parameters, which are nested too deep"] = None
    text, rest = _divided(description.replace("\0", ""), rules.description)
    if rest:
        own = value.get("description")
        value = {**value, "description": f"{rest}\n\n{own}" if isinstance(own, str) else rest}
    same = value == given and encoding.mend_surrogates(parameters) == parameters
    raw = parameters if same else encoding.encode(value)
    made = ToolSchema("", text, Raw(raw))
    return Screened(made, screen.keys, tuple(screen.losses), screen.cut)


class _Screen:
    """Mends one schema.

    Attributes:
        keys: As in `Screened`.
        losses: As in `Screened`, each once.
        cut: As in `Screened`.
    """

    def __init__(self, rules: SchemaRules) -> None:
        self._rules = rules
        self.cut = False
        self.keys: dict[str, str] = {}
        self.losses: dict[str, None] = {}

    def schema(self, given: Json) -> Schema:
        """Return the schema to send."""
        valid = self._valid(given)
        made = self._made(valid, self._rules.refs)
        if self._rules.refs != "none" and not all_lead_somewhere(made):
            # What they named was mended itself.
            made = self._made(valid, "none")
        return made

    def _made(self, value: Schema, refs: Refs) -> Schema:
        rules = self._rules
        at_top = [value[word] for word in rules.at_top if word in value]
        if b'"$ref"' in encoding.encode(at_top):
            # Branches that are joined are wanted themselves.
            refs = "none"
        value = self._joined(referring(value, refs, self.losses))
        deepest = _levels(value)
        depth = min(deepest, rules.depth or deepest)
        made = self._finished(value if depth == deepest else _shallow(value, depth))
        while rules.size and len(encoding.encode(made)) > rules.size and depth:
            depth -= 1
            made = self._finished(_shallow(value, depth))
        if depth < deepest:
            self.cut = True
            self.losses[f"what lies deeper than {depth} levels of its parameters"] = None
        return made

    def _finished(self, value: Schema) -> Schema:
        self.keys.clear()
        return self._named(Parts(self._rules).mended(of_an_object(self._rules, value)))

    # -- a schema at all --------------------------------------------------------------------

    def _valid(self, given: Json) -> Schema:
        """Return a valid schema of an object."""
        if not isinstance(given, dict):
            if given not in (None, True):
                self.losses["its parameters, which are no schema"] = None
            return {}
        value = cast("Schema", _without_nul(given))
        if not is_schema(value) or b'"nullable"' in encoding.encode(value):
            value = cast("Schema", in_this_draft(value))
        if not is_schema(value):
            value = self._pruned(value)
        if not _allows_object(value.get("type")):
            self.losses["its parameters, which are no object's"] = None
            value = {name: value[name] for name in SHALLOW[1:] if name in value}
        return value

    def _pruned(self, value: Schema) -> Schema:
        """Leave out what is wrong, keyword by keyword."""
        copy: Json = encoding.decode(encoding.encode(value))
        copy.pop("$schema", None)
        while True:
            try:
                jsonschema_rs.meta.validate(copy)
            except jsonschema_rs.ValidationError as error:
                if not error.instance_path:
                    return {}
                self.losses[f"`{_taken_out(copy, error.instance_path)}`, which is wrong"] = None
            else:
                return copy

    # -- the top ----------------------------------------------------------------------------

    def _joined(self, value: Schema) -> Schema:
        """Leave out what may not stand at the top; keep what its branches say of properties."""
        for word in self._rules.at_top:
            if word not in value:
                continue
            branches = tables(value[word]) if word in UNIONS else []
            value = {name: part for name, part in value.items() if name != word}
            known = table(value.get("properties"))
            forms: dict[str, list[Json]] = {}
            for branch in branches:
                for name, part in table(branch.get("properties")).items():
                    if name not in known and part not in forms.setdefault(name, []):
                        forms[name].append(part)
            if forms:
                joined = {
                    name: parts[0] if len(parts) == 1 else {"anyOf": parts}
                    for name, parts in forms.items()
                }
                value = {**value, "properties": {**known, **joined}}
            needed = [_strings(branch.get("required")) for branch in branches]
            wanted = dict.fromkeys(_strings(value.get("required")))
            for name in dict.fromkeys(name for names in needed for name in names):
                if word == "allOf" or all(name in names for names in needed):
                    wanted[name] = None
            if wanted:
                value = {**value, "required": list(wanted)}
            if word != "allOf" or any(branch.keys() - _JOINED for branch in branches):
                self.losses[f"`{word}` at the top"] = None
        return value

    # -- keys -------------------------------------------------------------------------------

    def _named(self, value: Schema) -> Schema:
        """Rename the keys that the endpoint refuses."""
        properties = table(value.get("properties"))
        pattern = re.compile(self._rules.keys or r"[^\x00-\x1f\x7f]*")
        sent: dict[str, str] = {}
        taken = {key for key in properties if pattern.fullmatch(key)}
        for key in properties:
            if key not in taken:
                name = _good_key(key, pattern, taken | sent.keys())
                sent[key], self.keys[name] = name, key
                taken.add(name)
        if not sent:
            return value

        def names(listed: Json) -> Json:
            return [sent.get(each, each) for each in cast("list[Json]", listed)]

        parts = {
            sent.get(key, key): _calling(part, key) if key in sent else part
            for key, part in properties.items()
        }
        # It would speak of the tool's own keys.
        kept = {name: part for name, part in value.items() if name != "propertyNames"}
        value = {**kept, "properties": parts}
        if "required" in value:
            value["required"] = names(value["required"])
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            if keyword in value:
                value[keyword] = {
                    sent.get(key, key): names(part) if isinstance(part, list) else part
                    for key, part in table(value[keyword]).items()
                }
        return value


def _allows_object(kind: Json) -> bool:
    return kind is None or "object" in (
        cast("list[Json]", kind) if isinstance(kind, list) else [kind]
    )


def _calling(part: Json, key: str) -> Schema:
    """Return a part that says by which key the tool knows it."""
    value = table(part)
    name = encoding.encode(key[:200]).decode()
    return {
        **value,
        "description": described(value.get("description"), f"Stands for the key {name}."),
    }


def _good_key(key: str, pattern: re.Pattern[str], taken: Collection[str]) -> str:
    """Return a key like one that the endpoint refuses."""
    name = _FOREIGN.sub("_", key).strip("_")
    if name and pattern.fullmatch(name) and name not in taken:
        return name
    seed = key
    while True:
        unique = f"{name[:_STEM] or 'key'}_{encoding.digest(seed)[:8]}"
        if unique not in taken:
            return unique
        seed += "\n"


def _divided(text: str, limit: int) -> tuple[str, str]:
    """Return a text up to a limit, and its rest."""
    if not limit or len(text) <= limit:
        return text, ""
    cut = text.rfind(" ", limit // 2, limit - 1)
    cut = limit - 2 if cut < 0 else cut
    return f"{text[:cut].rstrip()} …", f"… {text[cut:].strip()}"


def _levels(schema: Schema) -> int:
    """Return how many schemas stand inside each other."""
    below = (cast("Schema", part) for part in parts_of(schema) if isinstance(part, dict))
    return 1 + max(map(_levels, below), default=0)


def _shallow(schema: Schema, levels: int) -> Schema:
    """Return a schema without what lies deeper than so many levels; nothing for none."""
    if not levels:
        return {}
    if levels == 1:
        return {name: part for name, part in schema.items() if name not in _DEEP}

    def below(part: Json) -> Json:
        return _shallow(cast("Schema", part), levels - 1) if isinstance(part, dict) else part

    return over_parts(schema, below)


def _taken_out(value: Schema, path: Sequence[str | int]) -> str:
    """Take the innermost keyword on a path out of a schema; return where it stood."""
    nodes: list[Json] = [value]
    for step in path:
        nodes.append(nodes[-1][step])
    at = max(place for place, step in enumerate(path) if isinstance(step, str))
    del nodes[at][path[at]]
    return one_line("/".join(map(str, path[: at + 1])), 80)


def _without_nul(value: Json) -> Json:
    """Return JSON whose texts hold no NUL, which many stores cannot keep."""
    if isinstance(value, str):
        return value.replace("\0", "") if "\0" in value else value
    if isinstance(value, dict):
        return {name: _without_nul(part) for name, part in cast("Schema", value).items()}
    if isinstance(value, list):
        return [_without_nul(part) for part in cast("list[Json]", value)]
    return value


def _strings(value: Json) -> list[str]:
    listed = cast("list[Json]", value) if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, str)]
