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

What is read from bounds is what `msgspec.Meta` has: `gt`, `ge`, `lt`, `le`, `min_length`, and
`description` in place of the words that are made of the type. Whole numbers are at most `MOST`,
and floating ones finite, whatever the bounds. Booleans are no numbers.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import os
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from addendum.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST = 2**53 - 1
"""The largest whole number that is taken: every JSON reader has it exactly."""

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

_SHOWN = 80
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _SHOWN
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = 3
_short.maxlevel = 2


class Fault(NamedTuple):
    """What is wrong with a value.

    Attributes:
        path: Where in it, such as `[2]`; empty if it is the value itself.
        value: What stands there.
        allowed: What may stand there, each way of it.
        secret: Whether the value may not be shown.
    """

    path: str
    value: Any
    allowed: tuple[str, ...]
    secret: bool = False


class Rule(NamedTuple):
    """What an annotation allows.

    Attributes:
        allowed: It in words, each way of it.
        fault: Returns what is wrong with a value, or None.
        tidy: Returns a value with its lists as the tuples that the annotation names.
    """

    allowed: tuple[str, ...]
    fault: Callable[[Any], Fault | None]
    tidy: Callable[[Any], Any] | None = None


# -- the three ways to use it ---------------------------------------------------------------


def check_fields(value: Struct) -> None:
    """Check all fields of a frozen value that was just made; lists become tuples.

    Raises:
        ConfigurationError: One does not fit its annotation.
    """
    for name, rule in _field_rules(type(value)):
        given = getattr(value, name)
        fault = rule.fault(given)
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
            fault = None if rule is None else rule.fault(value)
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
        fault = self._rule.fault(value)
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
    fault = rule_of(annotation).fault(value)
    if fault is not None:
        raise _wrong(where, name, fault)


def check_word(where: str, name: str, value: Any, words: Sequence[str]) -> None:
    """Check that a value is one of some words.

    Raises:
        ConfigurationError: It is another one.
    """
    fault = _literal(words).fault(value)
    if fault is not None:
        raise _wrong(where, name, fault)


def words(annotation: Any) -> str:
    """Return what an annotation allows, in words."""
    return _or(rule_of(annotation).allowed)


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


def shown(value: Any) -> str:
    """Return a value as a message names it: short, on one line."""
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return f"the function {value.__name__}"
    try:
        text = " ".join(_short.repr(value).split())
    except Exception:  # a number of too many digits, or foreign code
        text = f"a {type(value).__name__}"
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN - 1]}…"


# -- words ----------------------------------------------------------------------------------


def _wrong(where: str, name: str, fault: Fault) -> ConfigurationError:
    if fault.secret:
        said = _one(type(fault.value).__name__)
        return ConfigurationError(
            f"{where}({name}{fault.path}=...): must be {_or(fault.allowed)}, not {said}"
        )
    hint = ""
    if isinstance(fault.value, str) and not fault.path and _takes_list(fault.allowed):
        hint = f", such as [{shown(fault.value)}]"
    return ConfigurationError(
        f"{where}({name}{fault.path}={shown(fault.value)}): must be {_or(fault.allowed)}{hint}"
    )


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _takes_list(allowed: Sequence[str]) -> bool:
    return allowed[-1].startswith("a list of text")


def _or(words: Sequence[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def _bounds(meta: Meta | None) -> str:
    if meta is None:
        return ""
    least = f"{meta.ge}" if meta.ge is not None else None
    most = f"{meta.le}" if meta.le is not None else None
    if least is not None and most is not None:
        return f" from {least} to {most}"
    parts = [
        f" above {meta.gt}" if meta.gt is not None else "",
        f" of {least} or more" if least is not None else "",
        f" below {meta.lt}" if meta.lt is not None else "",
        f" of {most} or less" if most is not None else "",
    ]
    return " and".join(part for part in parts if part)


# -- rules ----------------------------------------------------------------------------------


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


def _nothing(value: Any) -> Fault | None:
    return None


ANYTHING = Rule(("anything",), _nothing)


def rule_of(annotation: Any, meta: Meta | None = None) -> Rule:
    """Return the rule that an annotation stands for.

    Args:
        annotation: A type as `typing.get_type_hints` gives it. What no rule is known for, such as
            a protocol or a type variable, allows anything.
        meta: Bounds that stand around it.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        bounds = [each for each in arguments[1:] if isinstance(each, Meta)]
        return _described(rule_of(arguments[0], bounds[0] if bounds else meta), bounds)
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union([rule_of(each, meta) for each in arguments])
    if annotation is None or annotation is types.NoneType:
        return _of_kind("None", lambda value: value is None)
    if annotation is bool:
        return _of_kind("True or False", lambda value: isinstance(value, bool))
    if annotation in (int, float):
        return _number(annotation, meta)
    if annotation is str:
        return _text(meta)
    if origin is Callable or annotation is Callable:
        return _of_kind("a function", callable)
    if origin is type:
        return _of_kind("a class", _is_class)
    if origin is tuple and arguments[1:] != (...,):
        return _pair([rule_of(each) for each in arguments])
    if isinstance(annotation, TypeVar) and annotation.__bound__ is not None:
        return rule_of(annotation.__bound__)
    if not isinstance(origin or annotation, type):
        return ANYTHING
    kind = cast("type[Any]", origin or annotation)
    if issubclass(kind, Mapping):
        names, members = arguments or (Any, Any)
        return _mapping(rule_of(names), rule_of(members), meta)
    if kind is Iterable or (issubclass(kind, Collection) and kind not in (str, bytes)):
        return _collection(
            cast("type", kind), rule_of(arguments[0]) if arguments else ANYTHING, meta
        )
    return _instance(kind)


def _described(rule: Rule, metas: Sequence[Meta]) -> Rule:
    """Return a rule in the words of its annotation, or one that shows no value."""
    words = next((meta.description for meta in metas if meta.description), None)
    secret = any((meta.extra or {}).get("secret") for meta in metas)
    if words is None and not secret:
        return rule

    def fault(value: Any) -> Fault | None:
        wrong = rule.fault(value)
        if wrong is None:
            return None
        allowed = wrong.allowed if words is None else (words,)
        return Fault(wrong.path, wrong.value, allowed, secret or wrong.secret)

    return Rule(rule.allowed if words is None else (words,), fault, rule.tidy)


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _of_kind(words: str, fits: Callable[[Any], bool]) -> Rule:
    allowed = (words,)

    def fault(value: Any) -> Fault | None:
        return None if fits(value) else Fault("", value, allowed)

    return Rule(allowed, fault)


def _literal(choices: Sequence[Any]) -> Rule:
    allowed = tuple(repr(each) for each in choices)

    def fault(value: Any) -> Fault | None:
        for each in choices:
            if value == each and isinstance(value, type(each)):
                return None
        return Fault("", value, allowed)

    return Rule(allowed, fault)


def _union(rules: Sequence[Rule]) -> Rule:
    if ANYTHING in rules:
        return ANYTHING
    # What stands for nothing is named last.
    ordered = sorted(rules, key=lambda rule: rule.allowed == ("None",))
    allowed = tuple(words for rule in ordered for words in rule.allowed)
    may_be_none = allowed[-1] == "None"
    alone = ordered[0] if may_be_none and len(ordered) == 2 else None

    def fault(value: Any) -> Fault | None:
        if value is None and may_be_none:
            return None
        if alone is not None:
            wrong = alone.fault(value)
            if wrong is None or wrong.path:
                return wrong
            return wrong._replace(allowed=(*wrong.allowed, "None"))
        inner: Fault | None = None
        for rule in rules:
            wrong = rule.fault(value)
            if wrong is None:
                return None
            if wrong.path:
                inner = wrong
        # A list of which one member is wrong was meant as a list.
        return inner or Fault("", value, allowed)

    def tidy(value: Any) -> Any:
        for rule in rules:
            if rule.tidy is not None and rule.fault(value) is None:
                return rule.tidy(value)
        return value

    return Rule(allowed, fault, tidy if any(rule.tidy for rule in rules) else None)


def _number(kind: type[int] | type[float], meta: Meta | None) -> Rule:
    what = "a whole number" if kind is int else "a number"
    rule = meta or Meta()
    types_taken = int if kind is int else (int, float)

    def fits(value: Any) -> bool:
        return (
            isinstance(value, types_taken)
            and not isinstance(value, bool)
            and (kind is int or math.isfinite(value))
            and abs(value) <= MOST
            and (rule.gt is None or value > rule.gt)
            and (rule.ge is None or value >= rule.ge)
            and (rule.lt is None or value < rule.lt)
            and (rule.le is None or value <= rule.le)
        )

    def allowed(value: Any) -> tuple[str, ...]:
        is_number = isinstance(value, types_taken) and not isinstance(value, bool)
        huge = is_number and math.isfinite(value) and abs(value) > MOST
        return (f"{what}{_bounds(meta)}{f' and at most {MOST:,}' if huge else ''}",)

    def fault(value: Any) -> Fault | None:
        return None if fits(value) else Fault("", value, allowed(value))

    return Rule((f"{what}{_bounds(meta)}",), fault)


def _text(meta: Meta | None) -> Rule:
    least = 0 if meta is None else meta.min_length or 0
    words = "text" if not least else "text that is not empty"
    return _of_kind(words, lambda value: isinstance(value, str) and len(value) >= least)


def _instance(kind: type) -> Rule:
    if kind is object or kind.__name__ == "Any":
        return ANYTHING
    if getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False):
        return ANYTHING
    name = kind.__name__
    words = f"{name}(...)" if issubclass(kind, Struct) else _one(name)
    if kind is os.PathLike:
        words = "a path"

    def fits(value: Any) -> bool:
        return isinstance(value, kind)

    return _of_kind(words, fits)


def _collection(kind: type, member: Rule, meta: Meta | None) -> Rule:
    least = 0 if meta is None else meta.min_length or 0
    shallow = meta is not None and bool((meta.extra or {}).get("shallow"))
    many = "text" if member.allowed[0].startswith("text") else _or(member.allowed)
    allowed = (f"a list of {many}" if member is not ANYTHING else "a list",)
    if least:
        allowed = (f"{allowed[0]} that is not empty",)
    taken: tuple[type, ...] = (list, tuple) if kind is tuple else (kind,)

    def fault(value: Any) -> Fault | None:
        if (
            not isinstance(value, taken)
            or isinstance(value, str | bytes | bytearray | Mapping)
            or (least and len(value) < least)
        ):
            return Fault("", value, allowed)
        if shallow or member is ANYTHING or not isinstance(value, Collection):
            return None
        for place, each in enumerate(cast("Collection[Any]", value)):
            wrong = member.fault(each)
            if wrong is not None:
                return wrong._replace(path=f"[{place}]{wrong.path}")
        return None

    def tidy(value: Any) -> Any:
        if member.tidy is None:
            return value if type(value) is tuple else tuple(value)
        return tuple(member.tidy(each) for each in value)

    return Rule(allowed, fault, tidy if kind is tuple else None)


def _pair(members: Sequence[Rule]) -> Rule:
    allowed = (f"({', '.join(_or(member.allowed) for member in members)})",)

    def fault(value: Any) -> Fault | None:
        if not isinstance(value, list | tuple):
            return Fault("", value, allowed)
        parts = cast("Sequence[Any]", value)
        if len(parts) != len(members):
            return Fault("", value, allowed)
        for place, member in enumerate(members):
            wrong = member.fault(parts[place])
            if wrong is not None:
                return wrong._replace(path=f"[{place}]{wrong.path}")
        return None

    def tidy(value: Any) -> Any:
        return tuple(value)

    return Rule(allowed, fault, tidy)


def _mapping(key: Rule, member: Rule, meta: Meta | None) -> Rule:
    shallow = meta is not None and bool((meta.extra or {}).get("shallow"))
    allowed = ("a dict" if member is ANYTHING else f"a dict of {_or(member.allowed)}",)

    def fault(value: Any) -> Fault | None:
        if not isinstance(value, Mapping):
            return Fault("", value, allowed)
        if shallow:
            return None
        for name, each in cast("Mapping[Any, Any]", value).items():
            wrong = key.fault(name)
            if wrong is not None:
                return wrong._replace(path=f"[key]{wrong.path}")
            wrong = member.fault(each)
            if wrong is not None:
                return wrong._replace(path=f"[{shown(name)}]{wrong.path}")
        return None

    return Rule(allowed, fault)
