"""What an annotation allows: a rule for each, which says of a value what is wrong with it.

Bounds are read from `msgspec.Meta`: `gt`, `ge`, `lt`, `le`, `min_length`, and `description` in
place of the words that are made of the type; of its `extra`, `shallow` and `secret`. Whole numbers
are at most `MOST`, and floating ones finite, whatever the bounds. Booleans are no numbers.
"""

from __future__ import annotations

import math
import os
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

from msgspec import Meta, Struct

MOST = 2**53 - 1
"""The largest whole number that is taken: every JSON reader has it exactly."""

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

    def wrong(self, value: Any) -> Fault | None:
        """Return what is wrong with a value, also with one that cannot be looked at."""
        try:
            return self.fault(value)
        except Exception:  # foreign code: a list or a number that somebody made otherwise
            return Fault("", value, self.allowed)


# -- words ----------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """Return a value as a message names it: short, on one line."""
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return f"the function {value.__name__}"
    try:
        text = " ".join(_short.repr(value).split())
    except Exception:  # a number of too many digits, or foreign code
        text = f"a {type(value).__name__}"
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN - 1]}…"


def one(name: str) -> str:
    """Return a name of a type with its article."""
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def either(words: Sequence[str]) -> str:
    """Return several ways of something as one phrase."""
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
        return word_rule(arguments)
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
        wrong = rule.wrong(value)
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


def word_rule(choices: Sequence[Any]) -> Rule:
    """Return the rule that a value is one of some."""
    allowed = tuple(repr(each) for each in choices)

    def fault(value: Any) -> Fault | None:
        for each in choices:
            if isinstance(value, type(each)) and value == each:
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
            and abs(value) <= MOST  # so no NaN, and nothing infinite
            and (rule.gt is None or value > rule.gt)
            and (rule.ge is None or value >= rule.ge)
            and (rule.lt is None or value < rule.lt)
            and (rule.le is None or value <= rule.le)
        )

    def allowed(value: Any) -> tuple[str, ...]:
        is_number = isinstance(value, types_taken) and not isinstance(value, bool)
        huge = is_number and MOST < abs(value) != math.inf
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
    words = f"{name}(...)" if issubclass(kind, Struct) else one(name)
    if kind is os.PathLike:
        words = "a path"

    def fits(value: Any) -> bool:
        return isinstance(value, kind)

    return _of_kind(words, fits)


def _collection(kind: type, member: Rule, meta: Meta | None) -> Rule:
    least = 0 if meta is None else meta.min_length or 0
    shallow = meta is not None and bool((meta.extra or {}).get("shallow"))
    many = "text" if member.allowed[0].startswith("text") else either(member.allowed)
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
            return tuple(cast("Iterable[Any]", value))  # the same object, if it is one
        return tuple(member.tidy(each) for each in value)

    return Rule(allowed, fault, tidy if kind is tuple else None)


def _pair(members: Sequence[Rule]) -> Rule:
    allowed = (f"({', '.join(either(member.allowed) for member in members)})",)

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
    allowed = ("a dict" if member is ANYTHING else f"a dict of {either(member.allowed)}",)

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
