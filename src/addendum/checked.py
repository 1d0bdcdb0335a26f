"""What a caller gives, checked where it is given: against its annotation, in one line.

    Approval(default='Deny'): must be 'allow', 'ask' or 'deny'

The annotation is the rule. A wrong word, a bare text where a list of names belongs (it would be
taken letter by letter), a number out of its bounds and a value of another type are told before
anything is done with them. Python's own mistakes (no such parameter) stay Python's.

    class Policy(Struct, frozen=True):
        action: Literal["allow", "ask", "deny"]

        def __post_init__(self) -> None:
            check_fields(self)

    @checks_arguments
    async def rewind(self, turns: AtLeastOne = 1) -> int: ...

What an annotation allows stands in `addendum.allowed`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from addendum.allowed import ANYTHING, Fault, Rule, either, one, rule_of, shown, word_rule
from addendum.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SHALLOW = Meta(extra={"shallow": True})
"""Of a collection: that it is one is checked, and nothing in it: it is made often, and by us."""

SECRET = Meta(extra={"secret": True})
"""Of a value: it is never shown, whatever is wrong with it."""

AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]
AtLeastNone: TypeAlias = Annotated[int, Meta(ge=0)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Wait: TypeAlias = Annotated[float, Meta(ge=0)]
"""Seconds, none at all among them."""
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
"""A text that says something: a name, a pattern."""
Location: TypeAlias = str | os.PathLike[str]

# -- the three ways to use it ---------------------------------------------------------------


def check_fields(value: Struct) -> None:
    """Check all fields of a frozen value that was just made; lists become tuples.

    Raises:
        ConfigurationError: One does not fit its annotation.
    """
    for name, rule in _field_rules(type(value)):
        given = getattr(value, name)
        fault = rule.wrong(given)
        if fault is not None:
            raise _wrong(type(value).__name__, name, fault)
        if rule.tidy is not None:
            tidied = rule.tidy(given)
            if tidied is not given:
                msgspec.structs.force_setattr(value, name, tidied)


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function check its arguments against its annotations before it does anything.

    An async function does so when it is awaited, every other when it is called. An annotation
    that only type checkers import is not checked.

    Args:
        function: A function or method.
    """
    rules = functools.cache(lambda: _argument_rules(function))
    signature = inspect.signature(function)
    where = function.__qualname__.removesuffix(".__init__")

    def check(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return  # The call itself says it in Python's words.
        known = rules()
        for name, value in given.items():
            rule = known.get(name)
            fault = None if rule is None else rule.wrong(value)
            if fault is not None:
                raise _wrong(where, name, fault)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(*args, **kwargs)
            return await function(*args, **kwargs)

        return cast("Callable[P, R]", later)

    @functools.wraps(function)
    def at_once(*args: P.args, **kwargs: P.kwargs) -> R:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return at_once


class Attribute(Generic[T]):
    """An attribute of an object that is checked whenever it is set.

    Args:
        annotation: What it may hold.
    """

    def __init__(self, annotation: Any) -> None:
        self._rule = rule_of(annotation)
        self._name = ""
        self._where = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._where, self._name = owner.__name__, name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return cast("T", self)
        return instance.__dict__[self._name]

    def __set__(self, instance: Any, value: T) -> None:
        fault = self._rule.wrong(value)
        if fault is not None:
            raise _wrong(self._where, self._name, fault)
        instance.__dict__[self._name] = value


def check_value(where: str, name: str, value: Any, annotation: Any) -> None:
    """Check one value.

    Args:
        where: What it is given to, for the message.
        name: What it is called there.
        value: The value.
        annotation: What it may be.

    Raises:
        ConfigurationError: It is something else.
    """
    fault = rule_of(annotation).wrong(value)
    if fault is not None:
        raise _wrong(where, name, fault)


def check_word(where: str, name: str, value: Any, words: Sequence[str]) -> None:
    """Check that a value is one of some words.

    Raises:
        ConfigurationError: It is another one.
    """
    fault = word_rule(words).wrong(value)
    if fault is not None:
        raise _wrong(where, name, fault)


def words(annotation: Any) -> str:
    """Return what an annotation allows, in words."""
    return either(rule_of(annotation).allowed)


def nearest(word: str, there: Iterable[str], like: float = 0.6) -> str:
    """Return what a wrong word may stand for, to be put behind a message; empty if nothing.

    Args:
        word: The word.
        there: The right ones.
        like: How like it one has to be, from 0 to 1.
    """
    folded = {each.casefold(): each for each in there}
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=like)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


# -- how it is done -------------------------------------------------------------------------


def _wrong(where: str, name: str, fault: Fault) -> ConfigurationError:
    if fault.secret:
        said = one(type(fault.value).__name__)
        return ConfigurationError(
            f"{where}({name}{fault.path}=...): must be {either(fault.allowed)}, not {said}"
        )
    hint = ""
    if isinstance(fault.value, str) and not fault.path and _takes_list(fault.allowed):
        hint = f", such as [{shown(fault.value)}]"
    return ConfigurationError(
        f"{where}({name}{fault.path}={shown(fault.value)}): must be {either(fault.allowed)}{hint}"
    )


def _takes_list(allowed: Sequence[str]) -> bool:
    return allowed[-1].startswith("a list of text")


@functools.cache
def _field_rules(kind: type[Struct]) -> tuple[tuple[str, Rule], ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    rules = ((name, rule_of(hints[name])) for name in kind.__struct_fields__)
    return tuple((name, rule) for name, rule in rules if rule is not ANYTHING)


def _argument_rules(function: Callable[..., Any]) -> Mapping[str, Rule]:
    found: dict[str, Rule] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = _hint(function, name)
        many = parameter.kind is parameter.VAR_POSITIONAL
        found[name] = rule_of(tuple[hint, ...] if many else hint)
    return {name: rule for name, rule in found.items() if rule is not ANYTHING}


def _hint(function: Callable[..., Any], name: str) -> Any:
    """Return a parameter's annotation; what only type checkers import is anything here."""
    alone = types.SimpleNamespace(__annotations__={name: function.__annotations__.get(name, Any)})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(alone, names, include_extras=True)[name]
    except NameError:
        return Any
