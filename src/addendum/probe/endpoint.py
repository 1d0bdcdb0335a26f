"""Asks an endpoint what it really does when tools change: each change made, beside a control.

That an endpoint accepts a request proves nothing: many leave out in silence what they do not know.
So each request that tells of a change is sent once more with the change made unknowable, its type
or key replaced by one that no provider has. Where that control is refused, the endpoint reads such
blocks, and what it accepts it has understood. Where the control is accepted too, only tokens count:
a change that was understood makes the prompt longer than one that was dropped.

Each conversation has texts of its own, so that nothing of it was ever cached, and no request is
sent twice: a second attempt would read what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from addendum.cache.spending import Spending
from addendum.errors import ProviderRefused
from addendum.probe.conversation import (
    Check,
    What,
    judged,
    opened,
    refused,
)
from addendum.routes import Beta, Capabilities, Route
from addendum.routes.data import providers
from addendum.routes.probed import Facts
from addendum.routes.resolve import by_reference
from addendum.routes.wires import wire_data
from addendum.wire.apis import wire


class Form(Struct, frozen=True):
    """What one form of tool changes led to.

    Attributes:
        form: `by-value`, `by-reference` or `items`.
        caches: Whether a second message reads what the first one left.
        preamble: Whether the first change alters the hidden front of the prompt unless a deferred
            placeholder stands in the tool list from the first request on.
        checks: The changes.
    """

    form: str
    caches: bool | None
    preamble: bool
    checks: tuple[Check, ...]

    def check(self, what: What) -> Check | None:
        """Return what became of a change, or None if it was not tried."""
        return next((each for each in self.checks if each.what == what), None)


def forms(route: Route) -> tuple[tuple[str, Capabilities], ...]:
    """Return the forms of tool changes that a route's wire has, the strongest first."""
    rows = (
        row.capabilities
        for provider in providers().values()
        if provider.wire == route.wire
        for row in provider.rows
    )
    told = [each for each in (route.capabilities, *rows) if each.tool_update is not None]
    found = next((each for each in told if each.definitions == "by-value"), None)
    if found is None:
        return (("by-reference", told[0]),) if told else ()
    by_value = (wire(route.wire).by_value, found)
    if wire_data(route.wire).changes != "blocks":
        return (by_value,)
    return by_value, ("by-reference", by_reference(found))


async def probe(
    route: Route, spending: Spending, *, say: Callable[[str], None] = lambda _: None
) -> tuple[Form, ...]:
    """Ask a route's endpoint what it does in each form that its wire has.

    Args:
        route: The route.
        spending: Counts what it costs.
        say: Told what is tried next.

    Raises:
        ProviderError: The endpoint failed, or refused what has nothing to do with tool changes.
        LimitReached: It became too dear.
    """
    found: list[Form] = []
    for name, capabilities in forms(route):
        say(f"tool changes {name}")
        found.append(await _form(route, name, capabilities, spending))
    return tuple(found)


def facts(route: Route, found: Sequence[Form]) -> Facts | None:
    """Return what the results say of the endpoint; None if they decide nothing.

    A form counts if an addition was understood, could be called and left the cache as it was.
    """
    known = dict(forms(route))
    for form in found:
        add = form.check("add")
        if add is None or add.verdict != "taken" or not add.called or add.cache == "lost":
            continue
        has = known[form.form]
        block = has.removals == "block"
        removal = _holds(form.check("remove"))
        return Facts(
            "addition-only" if block and not removal else has.tool_update,
            has.definitions,
            "omit" if block and not removal else has.removals,
            has.readd if _holds(form.check("readd")) else "redeclare" if block else "text",
            has.redefine and _holds(form.check("redefine")),
            form.preamble,
            _betas(route.capabilities, has),
        )
    undecided = any(
        check.verdict == "unsure" or (check.verdict == "taken" and check.cache != "lost")
        for form in found
        if (check := form.check("add")) is not None
    )
    return None if undecided or not found else Facts(None)


def _betas(own: Capabilities, has: Capabilities) -> tuple[Beta, ...]:
    """Return the flags of a form: as the route's own data sends them, where it has that form."""
    same = own.tool_update is not None and own.definitions == has.definitions
    needed = (has.definitions, "block")
    return tuple(beta for beta in (own if same else has).betas if beta.needed_for in needed)


def _holds(check: Check | None) -> bool:
    """Say whether a change was understood, left the cache as it was, and the tool was called."""
    if check is None or check.verdict != "taken" or check.cache == "lost":
        return False
    return check.what == "remove" or bool(check.called)


# -- one form -------------------------------------------------------------------------------


async def _form(route: Route, name: str, has: Capabilities, spending: Spending) -> Form:
    bare = structs.replace(route, capabilities=_probing(route, has, placeholder=False))
    checks, caches = await _checks(bare, spending)
    lost = bool(checks) and checks[0].verdict == "taken" and checks[0].cache == "lost"
    preamble = False
    if lost:
        held = structs.replace(route, capabilities=_probing(route, has, placeholder=True))
        again, caches = await _checks(held, spending)
        preamble = bool(again) and again[0].verdict == "taken" and again[0].cache == "kept"
        checks = again if preamble else checks
    if name == "by-reference" and "defer" in wire(route.wire).unknowable:
        checks = [await _deferred(bare, spending), *checks]
    return Form(name, caches, preamble, tuple(checks))


def _probing(route: Route, has: Capabilities, *, placeholder: bool) -> Capabilities:
    """Return a form with all else as on the route, and nothing weaker to fall back to."""
    own = route.capabilities
    return structs.replace(
        has,
        also=(),
        placeholder=placeholder,
        prompt_update=False,
        tail="kept",
        reasoning_bound=own.reasoning_bound,
        keeps_reasoning=own.keeps_reasoning,
        encrypted_reasoning=own.encrypted_reasoning,
        signature_stand_in=own.signature_stand_in,
    )


async def _checks(route: Route, spending: Spending) -> tuple[list[Check], bool | None]:
    """Make the changes in one conversation; behind a refusal, the rest in another one."""
    checks: list[Check] = []
    caches: bool | None = None
    left: list[What] = ["redefine", "remove", "readd"]
    if not route.capabilities.redefine:
        left.remove("redefine")
    while True:
        async with opened(route, spending) as talk:
            caches = await talk.begin()
            add = await talk.check("add")
            if not checks:
                checks.append(add)
            if add.verdict != "taken":
                return checks, caches
            while left:
                what = left.pop(0)
                check = await talk.check(what)
                checks.append(check)
                if check.verdict == "refused":
                    if what == "remove":
                        left = []
                    break
        if not left:
            return checks, caches


async def _deferred(route: Route, spending: Spending) -> Check:
    """Find out whether a deferred entry that nothing refers to stays out of the prompt."""
    async with opened(route, spending, hidden=True) as talk:
        try:
            (first, *_) = await talk.say("Hello.")
        except ProviderRefused as error:
            return refused("defer", error)
        if talk.downgraded:
            return Check("defer", "refused", said=talk.downgraded)
        control = await talk.control("defer", 0)
        # The control shows its definition; the real request should not.
        return judged("defer", first.usage, control)
