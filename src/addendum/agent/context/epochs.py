"""Which epoch the next request belongs to: one that the log has, or a new one."""

from __future__ import annotations

from msgspec import structs

from addendum.agent.context.lifetime import certainly_cold, chosen_lifetime
from addendum.agent.context.sent import RENDERING
from addendum.agent.runtime import Runtime
from addendum.log.events import RequestContext, RequestHeader
from addendum.routes import choose_projection, context, too_many


def coming(run: Runtime) -> RequestContext:
    """Return what the coming request renders with.

    An epoch that this route has in the log goes on as it was recorded, unless the agent asks for
    something else by name.
    """
    chosen = _chosen(run)
    withheld = _withheld(run, chosen)
    return chosen if chosen.withheld == withheld else structs.replace(chosen, withheld=withheld)


def _chosen(run: Runtime) -> RequestContext:
    setup, route, sent = run.setup, run.route, run.state.sent
    recorded = sent.recorded(route.name)
    rejected = sent.rejected(route) | run.downgrades.known(route)
    tools = len(run.registry.snapshot().active)
    asked = {
        "projection": setup.tool_changes != "auto"
        or bool(route.facts)
        # What can meet changes now, or has more tools than one list may hold, needs no rebinding.
        or (
            recorded is not None
            and recorded.projection == "rebind"
            and (setup.can_change or run.surprised or too_many(route, tools, rejected))
        ),
        "definitions": bool(route.facts),
        "tail": setup.tail != "auto",
        "caching": recorded is not None and recorded.caching != setup.caching,
        "ttl": setup.ttl is not None,
    }
    ttl = None if setup.ttl == "auto" else setup.ttl
    if setup.ttl == "auto":
        # Only what is not cached can be cached for another time at no cost.
        ttl = None if recorded is None else recorded.ttl
        idle = run.idle()
        if recorded is None or (idle is not None and certainly_cold(route, recorded, idle)):
            ttl = chosen_lifetime(run.log.events, route)
    if recorded is not None and not any(asked.values()):
        return recorded
    projection = choose_projection(
        route,
        setup.tool_changes,
        has_servers=bool(setup.servers),
        has_deferred=any(tool.schema.defer_loading for tool in setup.tools),
        # An addition by hand costs nothing on a native route.
        tool_dispatch=setup.tool_dispatch or (run.surprised and not route.capabilities.tool_update),
        tools=tools,
        rejected=rejected,
    )
    fresh = context(
        route,
        projection,
        tail=setup.tail,
        caching=setup.caching,
        ttl=ttl,
        rendering=RENDERING,
        rejected=rejected,
    )
    if recorded is None or any(
        on and getattr(recorded, name) != getattr(fresh, name) for name, on in asked.items()
    ):
        return fresh
    return recorded


def _withheld(run: Runtime, chosen: RequestContext) -> tuple[str, ...]:
    """Return the definitions that the coming request leaves out.

    Those that its endpoint refused; and if its last request was refused, whatever the reason, all
    that was switched off since one was answered: switching off is a way out.
    """
    route, sent = run.route, run.state.sent
    refused = sent.left_out(route) | run.downgrades.withheld(route)
    since = sent.refused_since(route.name)
    if not (refused or chosen.withheld or since is not None):
        return ()
    active = {tool.definition() for tool in run.registry.snapshot().active}
    told = {seq: _definitions(header) for seq, header in run.log.state.headers.items()}
    everything = active.union(*told.values())
    left_out = (refused & everything) | (set(chosen.withheld) - active)
    if since is not None:
        # In force when one was answered, and all behind it.
        before = [seq for seq in told if seq <= since][-1:]
        for seq in (*before, *(seq for seq in told if seq > since)):
            left_out |= told[seq] - active
    return tuple(sorted(left_out))


def _definitions(header: RequestHeader) -> set[str]:
    return {tool.definition() for tool in header.header.tools}


def outside_turns(run: Runtime) -> RequestContext:
    """Log what a request that is no turn's is made of, and return what it renders with.

    It changes no tool and no setting of the last header, whose prefix it reads. But it goes to the
    session's model: where that is another one, there is no such prefix, and a header says so.
    """
    log, config = run.log, run.config()
    last = log.header
    if last is not None:
        was = last.header.config
        if (was.provider, was.model) != (config.provider, config.model):
            log.append(RequestHeader(structs.replace(last.header, config=config), "change"))
    context = coming(run)
    run.requests.log_context(context)
    return context
