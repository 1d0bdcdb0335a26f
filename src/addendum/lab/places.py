"""YAML with places: every value knows where it stands, so that a mistake is told in one line.

The values are read as they are asked for, strictly: a text has to be a text. YAML 1.1 takes
unquoted `on`, `no` and dates for something else; that is said instead of guessed.

A file may name values of its own (`variables`); `$NAME` then stands for one of them, with its
type where it is the whole value, and as text inside a longer one. `$n` counts within a `repeat`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from addendum.encoding import clean
from addendum.errors import ConfigurationError
from addendum.paths import read_text, shown

Value: TypeAlias = str | int | float | bool | None

MAX_FILE = 1024 * 1024
"""Bytes that a file may have."""

MAX_VALUES = 100_000
"""Values that may be read from one file, those of its aliases and repeats counted each time."""

MAX_LEVELS = 50
"""Levels of lists and objects that a file may have."""

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_PREFIX = "tag:yaml.org,2002:"
_PLAIN = {"null", "bool", "int", "float", "str"}
_MISREAD = {"bool": "true or false", "timestamp": "a date", "null": "nothing"}


class Budget:
    """How many values may still be read from a file."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def spend(self, place: Place) -> None:
        """Count one value.

        Raises:
            ConfigurationError: There were too many.
        """
        self._left -= 1
        if self._left < 0:
            raise place.wrong(f"the file has more than {MAX_VALUES:,} values; make it smaller")


class Place:
    """One value of a file, and where it stands.

    Attributes:
        path: The keys that lead to it, such as `steps[3].user`.
    """

    def __init__(
        self,
        file: str,
        path: str,
        node: Node,
        variables: Mapping[str, Value],
        budget: Budget,
        level: int = 0,
    ) -> None:
        self.path = path
        self._file = file
        self._node = node
        self._variables = variables
        self._budget = budget
        self._level = level
        budget.spend(self)
        if level > MAX_LEVELS:
            raise self.wrong(f"it is nested deeper than {MAX_LEVELS} levels")

    # -- errors -----------------------------------------------------------------------------

    def wrong(self, why: str) -> ConfigurationError:
        """Return the error that this value is `why`, with file, line and path."""
        mark = cast(Any, self._node.start_mark)
        place = self._file if mark is None else f"{self._file}:{mark.line + 1}"
        where = f" {self.path}:" if self.path else ""
        return ConfigurationError(f"{place}:{where} {why}")

    def _instead(self, wanted: str) -> ConfigurationError:
        kind = self._kind()
        shown = _short(self._node.value) if isinstance(self._node, ScalarNode) else ""
        if wanted == "text" and kind in ("bool", "timestamp") and shown:
            return self.wrong(
                f"YAML takes {shown} for {_MISREAD[kind]}; for the text write it in quotes"
            )
        names = {"map": "an object", "seq": "a list", "str": "text", "null": "nothing"}
        return self.wrong(f"must be {wanted}, not {names.get(kind, shown or kind)}")

    # -- kinds ------------------------------------------------------------------------------

    def _kind(self) -> str:
        if isinstance(self._node, MappingNode):
            return "map"
        if isinstance(self._node, SequenceNode):
            return "seq"
        value = self._named()
        if value is not _NONE:
            for kind, types in (("null", type(None)), ("bool", bool), ("int", int), ("str", str)):
                if isinstance(value, types):
                    return kind
            return "float"
        return self._node.tag.removeprefix(_PREFIX)

    def _named(self) -> Any:
        """Return the variable that this scalar is as a whole, or `_NONE`."""
        node = self._node
        if isinstance(node, ScalarNode):
            found = _VARIABLE.fullmatch(node.value)
            if found and found[1] in self._variables:
                return self._variables[found[1]]
        return _NONE

    @property
    def is_object(self) -> bool:
        """Whether it is an object."""
        return self._kind() == "map"

    @property
    def is_null(self) -> bool:
        """Whether it is nothing (`null`, or left empty)."""
        return self._kind() == "null"

    # -- values -----------------------------------------------------------------------------

    def fields(
        self, required: Collection[str] = (), optional: Collection[str] = ()
    ) -> dict[str, Place]:
        """Return an object's values by key.

        Args:
            required: Keys that have to be there.
            optional: Further keys that may be.

        Raises:
            ConfigurationError: It is no object, a key is missing, unknown or there twice.
        """
        found = self.entries()
        for name, place in found.items():
            if name not in required and name not in optional:
                known = ", ".join([*required, *optional])
                raise place.wrong(f"there is no field {_short(name)} here; there are: {known}")
        for name in required:
            if name not in found:
                raise self.wrong(f"the field {name!r} is missing")
        return found

    def entries(self) -> dict[str, Place]:
        """Return an object's values by key, whatever the keys.

        Raises:
            ConfigurationError: It is no object, or a key is no text or there twice.
        """
        node = self._node
        if not isinstance(node, MappingNode):
            raise self._instead("an object")
        found: dict[str, Place] = {}
        for key, value in node.value:
            at = Place(self._file, self.path, key, {}, self._budget)
            name = at.text()
            path = f"{self.path}.{name}" if self.path else name
            if name in found:
                raise at.wrong(f"the field {_short(name)} is there twice")
            found[name] = self._inner(path, value, self._variables)
        return found

    def items(self) -> list[Place]:
        """Return a list's values.

        Raises:
            ConfigurationError: It is no list.
        """
        node = self._node
        if not isinstance(node, SequenceNode):
            raise self._instead("a list")
        return [
            self._inner(f"{self.path}[{at}]", each, self._variables)
            for at, each in enumerate(node.value)
        ]

    def repeated(self, most: int) -> Iterator[tuple[int, Place]]:
        """Return the value once, or as often as its field `repeat` says, with `$n` counting.

        Args:
            most: How often at most.

        Raises:
            ConfigurationError: `repeat` is no number.
        """
        node = self._node
        times: Place | None = None
        if isinstance(node, MappingNode):
            times = self.entries().get("repeat")
        if times is None:
            yield 0, self
            return
        for n in range(1, times.integer(0, most) + 1):
            yield n, self._inner(self.path, node, {**self._variables, "n": n})

    def _inner(self, path: str, node: Node, variables: Mapping[str, Value]) -> Place:
        return Place(self._file, path, node, variables, self._budget, self._level + 1)

    def text(self) -> str:
        """Return a text, variables in it filled in.

        Raises:
            ConfigurationError: It is none.
        """
        if self._kind() != "str":
            raise self._instead("text")
        value = self._named()
        if value is not _NONE:
            return str(value)

        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            return str(self._variables[name]) if name in self._variables else match.group()

        return clean(_VARIABLE.sub(fill, cast(ScalarNode, self._node).value))

    def flag(self) -> bool:
        """Return true or false.

        Raises:
            ConfigurationError: It is neither, or spelled in a way that only YAML 1.1 reads so.
        """
        value = self._named()
        if isinstance(value, bool):
            return value
        node = self._node
        if self._kind() == "bool" and cast(ScalarNode, node).value.lower() in ("true", "false"):
            return cast(ScalarNode, node).value.lower() == "true"
        raise self._instead("true or false")

    def integer(self, least: int, most: int) -> int:
        """Return a whole number.

        Raises:
            ConfigurationError: It is none, or out of range.
        """
        value = self.scalar() if self._kind() == "int" else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._instead(f"a whole number from {least:,} to {most:,}")
        if not least <= value <= most:
            raise self.wrong(f"must be from {least:,} to {most:,}, not {value:,}")
        return value

    def scalar(self) -> Value:
        """Return a single value of any kind.

        Raises:
            ConfigurationError: It is a list, an object, or something that JSON has not.
        """
        value = self._named()
        if value is not _NONE:
            return value
        kind, node = self._kind(), self._node
        if not isinstance(node, ScalarNode) or kind not in _PLAIN:
            raise self._instead("text" if kind == "timestamp" else "a single value")
        if kind == "str":
            return self.text()
        if kind == "bool":
            return self.flag()
        construct = cast(Callable[[Node], Value], cast(Any, SafeConstructor()).construct_object)
        try:
            made = construct(node)
        except (ConstructorError, ValueError) as error:
            raise self.wrong(f"cannot be read as {kind}; write it in quotes") from error
        if isinstance(made, float) and not abs(made) < float("inf"):
            raise self.wrong("is a number that JSON does not have")
        return made

    def json(self) -> Any:
        """Return it as JSON-like data.

        Raises:
            ConfigurationError: Something in it is no JSON.
        """
        if isinstance(self._node, MappingNode):
            return {name: place.json() for name, place in self.entries().items()}
        if isinstance(self._node, SequenceNode):
            return [place.json() for place in self.items()]
        return self.scalar()


_NONE: Any = object()


def read_yaml(path: Path, values: Mapping[str, Value]) -> Place:
    """Return the root of a file.

    Args:
        path: The file.
        values: Values for the file's `variables`, in place of its own.

    Raises:
        ConfigurationError: It cannot be read, is no YAML, or has no such variable.
    """
    file = shown(path)
    text = read_text(path, limit=MAX_FILE, advice="name a scenario file")
    try:
        compose = cast(Callable[..., Node | None], cast(Any, yaml).compose)
        node = compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(_syntax(file, error)) from None
    if node is None:
        raise ConfigurationError(f"{file} is empty; write a scenario")
    root = Place(file, "", node, {}, Budget())
    own: dict[str, Value] = {}
    declared = root.entries().get("variables") if root.is_object else None
    if declared is not None:
        own = {name: place.scalar() for name, place in declared.entries().items()}
    for name in values:
        if name not in own:
            there = ", ".join(own) or "none"
            raise ConfigurationError(f"{file} has no variable {name!r}; there are: {there}")
    return Place(file, "", node, {**own, **values}, Budget())


def _syntax(file: str, error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line + 1
        return f"{file}:{line}: no valid YAML: {error.problem or error.context}; correct it"
    return f"{file}: no valid YAML: {' '.join(str(error).split())[:200]}; correct it"


def _short(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def given_values(pairs: Iterable[str]) -> dict[str, Value]:
    """Return values for a file's variables from texts such as `tools=60`.

    Args:
        pairs: `NAME=VALUE` each; the value is read as YAML would, so `60` is a number.

    Raises:
        ConfigurationError: One is no such pair.
    """
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(f"${name}"):
            raise ConfigurationError(f"{_short(pair)} is no NAME=VALUE; write such as tools=60")
        node = ScalarNode(_resolved(value), value)
        found[name] = Place("--set", name, node, {}, Budget()).scalar()
    return found


def _resolved(value: str) -> str:
    resolver = cast(Any, yaml.SafeLoader(""))
    return str(resolver.resolve(ScalarNode, value, (True, False)))
