"""Check arguments against a tool's parameter schema.

A schema comes from outside, so it may be wrong, hostile or both. Nothing is ever fetched: a
reference must lead into the schema itself. Patterns run on a linear-time engine; one that needs
look-around gets a backtracking engine with a limit. Before a check that could explode, the pairs
of (subschema, part of the value) that it may visit are counted, up to a limit.

Everything that makes a schema unusable ends in `SchemaUnusable`; everything that is wrong with
the arguments ends in `Problem`s. The draft is the one `$schema` names, else 2020-12; `format`
says something about a value and refuses none; unknown keywords are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias, cast

import jsonschema_rs
from jsonschema_rs import FancyRegexOptions, RegexOptions, ValidationError
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec import Raw, Struct

from addendum import encoding
from addendum.errors import ContentError
from addendum.lines import shortened
from addendum.tools.coercion import coerce, pointer
from addendum.tools.references import Json, References, Schema, SchemaUnusable, inner_base
from addendum.tools.schema_slips import in_this_draft, mended

__all__ = [
    "Checked",
    "Problem",
    "SchemaUnusable",
    "Validator",
    "coerce",
    "is_schema",
    "validator_for",
]

MAX_PROBLEMS = 10
"""Problems that one check reports."""

MAX_SCHEMA = 256 * 1024
"""Bytes that a parameter schema may have."""

MAX_WORK = 300_000
"""Pairs of (subschema, part of the value) that one check may visit."""

MAX_STEPS = 2_000
"""Subschemas on one path through schema and value; more means a reference that never ends."""

_REASON = 200
"""Characters of what is told of a problem."""

_TOLD_WORK = 5_000  # beyond it problems are not told one by one: telling copies every part
_TOLD_BYTES = 64 * 1024 * 1024
_BACKTRACKS = 100_000

_DRAFTS: dict[str, type[jsonschema_rs.Validator]] = {
    "json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}
_ANYTHING = frozenset({b"", b"null", b"true", b"{}"})

_View: TypeAlias = tuple[Json, Json, Json, int]


class Problem(Struct, frozen=True):
    """One thing that is wrong with arguments.

    Attributes:
        path: JSON pointer to the part concerned; empty for the arguments as a whole.
        reason: What is wrong, without the value itself.
    """

    path: str
    reason: str


class Checked(NamedTuple):
    """Arguments after a check.

    Attributes:
        value: The arguments, repaired where that could be done without loss.
        changed: JSON pointers to the repaired places.
        problems: What is still wrong; empty if the arguments may be used.
    """

    value: Json
    changed: tuple[str, ...]
    problems: tuple[Problem, ...]


class Validator:
    """A compiled parameter schema.

    Get one from `validator_for`, which compiles each schema once.
    """

    __slots__ = ("_compiled", "_patterns", "_references", "_schema")

    def __init__(self, parameters: bytes) -> None:
        """Compile a schema; one that cannot be compiled is read as it was meant.

        Args:
            parameters: JSON text; empty, `null`, `true` and `{}` accept any object.

        Raises:
            SchemaUnusable: It is no schema, leads outside itself, or is beyond a limit.
        """
        self._schema: Json = None
        self._compiled: jsonschema_rs.Validator | None = None
        self._references = References(None)
        self._patterns = b'"pattern' in parameters
        if parameters.strip() in _ANYTHING:
            return
        try:
            schema: Json = encoding.decode(parameters, limit=MAX_SCHEMA)
        except ContentError as error:
            raise SchemaUnusable(str(error)) from error
        if not isinstance(schema, dict | bool):
            raise SchemaUnusable("the schema is neither an object nor a boolean")
        # OpenAPI's word, which no draft knows.
        self._schema = mended(schema) if b'"nullable"' in parameters else schema
        self._references = References(self._schema)
        try:
            self._compiled = _compile(self._schema)
        except SchemaUnusable:
            meant = in_this_draft(self._schema)
            if meant is self._schema:
                raise
            self._schema, self._references = meant, References(meant)
            self._compiled = _compile(meant)

    def validate(self, arguments: bytes | str | Json) -> tuple[Problem, ...]:
        """Return what is wrong with arguments, at most `MAX_PROBLEMS`.

        Args:
            arguments: A decoded object, or JSON text.

        Raises:
            SchemaUnusable: The schema cannot be applied to these arguments.
        """
        if isinstance(arguments, bytes | str):
            try:
                arguments = encoding.decode(arguments)
            except ContentError as error:
                return (Problem("", str(error)),)
        if not isinstance(arguments, dict):
            return (Problem("", f"must be an object, not {_kind(arguments)}"),)
        if self._compiled is None:
            return ()
        value = cast("Schema", arguments)
        if not self._simple(value):
            self._work(value, MAX_WORK)
        try:
            if self._compiled.is_valid(value):
                return ()
            return self._told(self._compiled, value)
        except SchemaUnusable:
            raise
        except ValueError as error:
            return (Problem("", shortened(f"cannot be checked: {error}", _REASON)),)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the validator is no Exception
            raise SchemaUnusable(shortened(f"the validator failed: {error}", _REASON)) from error

    def check(self, arguments: Json) -> Checked:
        """Check a decoded value; where it is wrong, repair what can be repaired and check again.

        A value that is valid as it stands is returned untouched.

        Raises:
            SchemaUnusable: The schema cannot be applied to these arguments.
        """
        problems = self.validate(arguments)
        if not problems or self._compiled is None:
            return Checked(arguments, (), problems)
        value, changed = coerce(self._schema, arguments, references=self._references)
        return Checked(value, changed, self.validate(value) if changed else problems)

    def _simple(self, value: Schema) -> bool:
        """Whether the work is bounded without counting: no references, small schema and value."""
        if self._references.present or self._patterns:
            return False
        return self._references.nodes * _size(value, MAX_WORK) <= MAX_WORK

    def _work(self, value: Json, limit: int) -> int:
        """Count what a validator may visit; patterns count by the text they run over.

        Raises:
            SchemaUnusable: It is over `limit`, or a reference never ends.
        """
        stack: list[_View] = [(self._schema, self._schema, value, 0)]
        done = 0
        while stack:
            schema, base, part, steps = stack.pop()
            done += 1
            if done > limit:
                raise SchemaUnusable("checking these arguments would take too much work")
            if not isinstance(schema, dict):
                continue
            if steps > MAX_STEPS:
                raise SchemaUnusable("a reference in the schema leads back to itself without end")
            found = cast("Schema", schema)
            base = inner_base(found, base)
            done += len(found.get("enum") or ()) // 16
            if isinstance(part, str) and "pattern" in found:
                done += len(part) // 100
            steps += 1
            if isinstance(reference := found.get("$ref"), str):
                stack.append((*self._references.resolve(reference, base), part, steps))
            for child, below in _applied(found, part):
                stack.append((child, base, below, steps))
            if isinstance(part, dict) and isinstance(found.get("patternProperties"), dict):
                names = sum(len(name) for name in cast("Schema", part))
                done += names * len(found["patternProperties"]) // 100
        return done

    def _told(self, compiled: jsonschema_rs.Validator, value: Schema) -> tuple[Problem, ...]:
        try:
            work = self._work(value, _TOLD_WORK)
        except SchemaUnusable:
            work = _TOLD_BYTES
        if work * len(encoding.encode(value)) > _TOLD_BYTES:
            return (Problem("", "do not match the schema, and are too large to say where"),)
        problems = {found for error in compiled.iter_errors(value) for found in _problems(error)}
        return tuple(sorted(problems, key=lambda found: (found.path, found.reason))[:MAX_PROBLEMS])


def is_schema(schema: Json) -> bool:
    """Say whether a value is a schema of draft 2020-12, whatever draft it names."""
    if isinstance(schema, dict):
        schema = {k: part for k, part in cast("Schema", schema).items() if k != "$schema"}
    return jsonschema_rs.meta.is_valid(schema)


def validator_for(parameters: Raw | bytes) -> Validator:
    """Return the validator of a parameter schema, compiled once for the same bytes.

    Raises:
        SchemaUnusable: As `Validator`.
    """
    validator = _validator(bytes(parameters))
    if isinstance(validator, Validator):
        return validator
    raise SchemaUnusable(validator)


@lru_cache(maxsize=512)
def _validator(parameters: bytes) -> Validator | str:
    # A schema that failed would fail again: the reason is kept as well.
    try:
        return Validator(parameters)
    except SchemaUnusable as error:
        return str(error)


def _compile(schema: Schema | bool) -> jsonschema_rs.Validator:
    draft: type[jsonschema_rs.Validator] = jsonschema_rs.Draft202012Validator
    if isinstance(schema, dict) and "$schema" in schema:
        name = str(schema["$schema"]).partition("://")[2].removesuffix("#")
        draft = _DRAFTS.get(name, draft)
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    reason = ""
    for patterns in (RegexOptions(), FancyRegexOptions(backtrack_limit=_BACKTRACKS)):
        try:
            return draft(
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=patterns,
                mask="the value",
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the compiler is no Exception
            reason = str(error).partition("\n")[0]
            if isinstance(error, ValidationError) and error.instance_path:
                reason = f"wrong at {pointer(error.instance_path)}: {reason}"
    raise SchemaUnusable(shortened(reason, _REASON))


def _applied(schema: Schema, part: Json) -> Iterator[tuple[Json, Json]]:
    """Yield each subschema that may be applied, with the part of the value it is applied to."""
    # What is unevaluated is found by evaluating all else once more.
    again = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
    for _ in range(2 if again else 1):
        for keyword in ("allOf", "anyOf", "oneOf"):
            for child in _list(schema.get(keyword)):
                yield child, part
        for keyword in ("not", "if", "then", "else"):
            if keyword in schema:
                yield schema[keyword], part
        for keyword in ("dependentSchemas", "dependencies"):
            for child in _dict(schema.get(keyword)).values():
                yield child, part
    if isinstance(part, dict):
        value = cast("Schema", part)
        properties = _dict(schema.get("properties"))
        for name in value.keys() & properties.keys():
            yield properties[name], value[name]
        for child in _dict(schema.get("patternProperties")).values():
            for item in value.values():
                yield child, item
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if isinstance(schema.get(keyword), dict):
                for name in value.keys() - properties.keys():
                    yield schema[keyword], value[name]
        if isinstance(schema.get("propertyNames"), dict):
            for name in value:
                yield schema["propertyNames"], name
    elif isinstance(part, list):
        items = cast("list[Json]", part)
        yield from zip(_list(schema.get("prefixItems")), items, strict=False)
        yield from zip(_list(schema.get("items")), items, strict=False)
        for keyword in ("items", "additionalItems", "contains", "unevaluatedItems"):
            if isinstance(schema.get(keyword), dict):
                for item in items:
                    yield schema[keyword], item


def _list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def _dict(value: Json) -> Schema:
    return cast("Schema", value) if isinstance(value, dict) else {}


def _size(value: Json, limit: int) -> int:
    """Count the JSON values in `value`, or stop just over `limit`."""
    count = 0
    stack: list[Json] = [value]
    while stack and count <= limit:
        node = stack.pop()
        count += 1
        if isinstance(node, dict):
            stack.extend(cast("Schema", node).values())
        elif isinstance(node, list):
            stack.extend(cast("list[Json]", node))
    return count


def _problems(error: ValidationError) -> list[Problem]:
    """Say what is wrong in our words: with a union, what is wrong in the one branch that fits."""
    match error.kind:
        case Kind.BacktrackLimitExceeded() | Kind.RegexEngineFailure():
            raise SchemaUnusable("a pattern takes too long on these arguments")
        case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
            fitting = [branch for branch in context if not _wrong_kind(branch, error)]
            if len(fitting) == 1:
                return [found for inner in fitting[0] for found in _problems(inner)]
            types = {kind for branch in context for kind in _types(branch, error)}
            if not fitting and types:
                reason = f"must be {' or '.join(sorted(types))}, not {_kind(error.instance)}"
            else:
                reason = f"fits none of the {len(context)} forms allowed here"
        case Kind.OneOfMultipleValid():
            reason = "fits more than one form where exactly one is allowed"
        case Kind.Type(types=types):
            reason = f"must be {' or '.join(sorted(types))}, not {_kind(error.instance)}"
        case Kind.Required(property=name):
            reason = f"needs {_quoted([name])}"
        case (
            Kind.AdditionalProperties(unexpected=names)
            | Kind.UnevaluatedProperties(unexpected=names)
        ):
            reason = f"does not take {_quoted(names)}"
        case Kind.FalseSchema():
            last = error.schema_path[-1] if error.schema_path else ""
            reason = "takes no other keys" if last == "additionalProperties" else "is not allowed"
        case Kind.Enum(options=options):
            reason = f"must be one of {_quoted(options)}"
        case Kind.Constant(expected_value=expected):
            reason = f"must be {_quoted([expected])}"
        case _:
            reason = shortened(error.message, _REASON)
    return [Problem(shortened(pointer(error.instance_path), _REASON), reason)]


def _wrong_kind(branch: list[ValidationError], union: ValidationError) -> bool:
    return any(
        isinstance(inner.kind, Kind.Type | Kind.Constant | Kind.Enum)
        and inner.instance_path == union.instance_path
        for inner in branch
    )


def _types(branch: list[ValidationError], union: ValidationError) -> list[str]:
    return [
        kind
        for inner in branch
        if isinstance(inner.kind, Kind.Type) and inner.instance_path == union.instance_path
        for kind in inner.kind.types
    ]


def _quoted(values: list[Json]) -> str:
    return shortened(", ".join(encoding.encode(value).decode() for value in values[:20]), 300)


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"
