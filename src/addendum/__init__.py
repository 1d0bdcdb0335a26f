"""Change an agent's tools in the middle of a conversation, and keep the prompt cache.

The names below are imported when they are first used: `addendum --help` needs none of them, and
the agent with its HTTP client takes longer to import than the rest of the program.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from addendum.version import __version__

if TYPE_CHECKING:
    from addendum.agent.agent import Agent
    from addendum.agent.calls.approval import Approval, Decision, Pending, Policy
    from addendum.agent.calls.hooks import AddContext, Ask, Change, Deny, Hook, HookCall, Replace
    from addendum.agent.context.keeping import KeepAlive
    from addendum.agent.context.switch_cost import SwitchCost
    from addendum.agent.context.window import Compaction
    from addendum.agent.opening import Opening
    from addendum.agent.prompts import ServerPrompt
    from addendum.agent.results import (
        Notice,
        ReasoningPiece,
        RequestDone,
        RequestFigures,
        StreamEvent,
        TextPiece,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnDone,
        TurnResult,
    )
    from addendum.agent.session import Session
    from addendum.agent.setup import Limits, Settings, ToolDispatch
    from addendum.agent.streaming import TurnStream
    from addendum.agent.subagents import subagent
    from addendum.errors import (
        AddendumError,
        AppendRefused,
        ConfigurationError,
        Conflict,
        ContentError,
        LimitReached,
        LogError,
        MissingCredential,
        MissingExtra,
        ProviderBusy,
        ProviderError,
        ProviderRefused,
        SessionBusy,
        SessionMissing,
        StoreError,
        StoreTooNew,
        StreamBroken,
        UnknownEvent,
        UnknownRoute,
        UnsupportedContent,
    )
    from addendum.gateway.drive import Gateway, GatewayExchange
    from addendum.gateway.transport import (
        AddendumTransport,
        AsyncAddendumTransport,
        async_http_client,
        http_client,
    )
    from addendum.log.approvals import ToolRedefined
    from addendum.log.requests import CacheBreak
    from addendum.log.store import Store
    from addendum.log.subagents import SubagentEnded
    from addendum.log.values import Call, Media, ToolSchema, Usage
    from addendum.routes import Route
    from addendum.stores.nodes import NodeStore
    from addendum.tools.catalogue import Pin, PinnedTool
    from addendum.tools.dispatcher import (
        TOOL_DISPATCHER_NAME,
        NotDispatched,
        Refused,
        Resolved,
        resolve_dispatched_tool_call,
    )
    from addendum.tools.entries import Hints, ToolEntry
    from addendum.tools.functions import FunctionTool, ToolContext, tool
    from addendum.tools.history import ToolHistory, ToolUpdate, project_tool_updates
    from addendum.tools.mcp.offers import PromptArgument, RemotePrompt, RemoteResource
    from addendum.tools.mcp.pool import ServerPool
    from addendum.tools.mcp.values import RemoteTool, ServerSpec, ServerState, Timings
    from addendum.tools.resources import RESOURCE_TOOLS
    from addendum.tools.servers import Outcome

_HOMES = {
    "AddContext": "addendum.agent.calls.hooks",
    "AddendumError": "addendum.errors",
    "AddendumTransport": "addendum.gateway.transport",
    "Agent": "addendum.agent.agent",
    "AppendRefused": "addendum.errors",
    "Approval": "addendum.agent.calls.approval",
    "Ask": "addendum.agent.calls.hooks",
    "CacheBreak": "addendum.log.requests",
    "AsyncAddendumTransport": "addendum.gateway.transport",
    "Call": "addendum.log.values",
    "Change": "addendum.agent.calls.hooks",
    "Compaction": "addendum.agent.context.window",
    "ConfigurationError": "addendum.errors",
    "Conflict": "addendum.errors",
    "ContentError": "addendum.errors",
    "Decision": "addendum.agent.calls.approval",
    "Deny": "addendum.agent.calls.hooks",
    "ToolEntry": "addendum.tools.entries",
    "GatewayExchange": "addendum.gateway.drive",
    "FunctionTool": "addendum.tools.functions",
    "Gateway": "addendum.gateway.drive",
    "Hints": "addendum.tools.entries",
    "Hook": "addendum.agent.calls.hooks",
    "HookCall": "addendum.agent.calls.hooks",
    "KeepAlive": "addendum.agent.context.keeping",
    "LimitReached": "addendum.errors",
    "Limits": "addendum.agent.setup",
    "LogError": "addendum.errors",
    "Media": "addendum.log.values",
    "MissingCredential": "addendum.errors",
    "MissingExtra": "addendum.errors",
    "NotDispatched": "addendum.tools.dispatcher",
    "NodeStore": "addendum.stores.nodes",
    "Notice": "addendum.agent.results",
    "Opening": "addendum.agent.opening",
    "Outcome": "addendum.tools.servers",
    "Pending": "addendum.agent.calls.approval",
    "Pin": "addendum.tools.catalogue",
    "PinnedTool": "addendum.tools.catalogue",
    "Policy": "addendum.agent.calls.approval",
    "PromptArgument": "addendum.tools.mcp.offers",
    "ProviderBusy": "addendum.errors",
    "ProviderError": "addendum.errors",
    "ProviderRefused": "addendum.errors",
    "RESOURCE_TOOLS": "addendum.tools.resources",
    "ReasoningPiece": "addendum.agent.results",
    "Refused": "addendum.tools.dispatcher",
    "RemotePrompt": "addendum.tools.mcp.offers",
    "RemoteResource": "addendum.tools.mcp.offers",
    "RemoteTool": "addendum.tools.mcp.values",
    "Replace": "addendum.agent.calls.hooks",
    "RequestDone": "addendum.agent.results",
    "RequestFigures": "addendum.agent.results",
    "Resolved": "addendum.tools.dispatcher",
    "Route": "addendum.routes",
    "ServerPool": "addendum.tools.mcp.pool",
    "ServerPrompt": "addendum.agent.prompts",
    "ServerSpec": "addendum.tools.mcp.values",
    "ServerState": "addendum.tools.mcp.values",
    "Session": "addendum.agent.session",
    "SessionBusy": "addendum.errors",
    "SessionMissing": "addendum.errors",
    "Settings": "addendum.agent.setup",
    "Store": "addendum.log.store",
    "StoreError": "addendum.errors",
    "StoreTooNew": "addendum.errors",
    "StreamBroken": "addendum.errors",
    "StreamEvent": "addendum.agent.results",
    "SubagentEnded": "addendum.log.subagents",
    "SwitchCost": "addendum.agent.context.switch_cost",
    "TOOL_DISPATCHER_NAME": "addendum.tools.dispatcher",
    "TextPiece": "addendum.agent.results",
    "Timings": "addendum.tools.mcp.values",
    "ToolContext": "addendum.tools.functions",
    "ToolDispatch": "addendum.agent.setup",
    "ToolFinished": "addendum.agent.results",
    "ToolHistory": "addendum.tools.history",
    "ToolProgress": "addendum.agent.results",
    "ToolRedefined": "addendum.log.approvals",
    "ToolSchema": "addendum.log.values",
    "ToolStarted": "addendum.agent.results",
    "ToolUpdate": "addendum.tools.history",
    "TurnDone": "addendum.agent.results",
    "TurnResult": "addendum.agent.results",
    "TurnStream": "addendum.agent.streaming",
    "UnknownEvent": "addendum.errors",
    "UnknownRoute": "addendum.errors",
    "UnsupportedContent": "addendum.errors",
    "Usage": "addendum.log.values",
    "async_http_client": "addendum.gateway.transport",
    "http_client": "addendum.gateway.transport",
    "project_tool_updates": "addendum.tools.history",
    "resolve_dispatched_tool_call": "addendum.tools.dispatcher",
    "subagent": "addendum.agent.subagents",
    "tool": "addendum.tools.functions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'addendum' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "RESOURCE_TOOLS",
    "TOOL_DISPATCHER_NAME",
    "AddContext",
    "AddendumError",
    "AddendumTransport",
    "Agent",
    "AppendRefused",
    "Approval",
    "Ask",
    "AsyncAddendumTransport",
    "CacheBreak",
    "Call",
    "Change",
    "Compaction",
    "ConfigurationError",
    "Conflict",
    "ContentError",
    "Decision",
    "Deny",
    "FunctionTool",
    "Gateway",
    "GatewayExchange",
    "Hints",
    "Hook",
    "HookCall",
    "KeepAlive",
    "LimitReached",
    "Limits",
    "LogError",
    "Media",
    "MissingCredential",
    "MissingExtra",
    "NodeStore",
    "NotDispatched",
    "Notice",
    "Opening",
    "Outcome",
    "Pending",
    "Pin",
    "PinnedTool",
    "Policy",
    "PromptArgument",
    "ProviderBusy",
    "ProviderError",
    "ProviderRefused",
    "ReasoningPiece",
    "Refused",
    "RemotePrompt",
    "RemoteResource",
    "RemoteTool",
    "Replace",
    "RequestDone",
    "RequestFigures",
    "Resolved",
    "Route",
    "ServerPool",
    "ServerPrompt",
    "ServerSpec",
    "ServerState",
    "Session",
    "SessionBusy",
    "SessionMissing",
    "Settings",
    "Store",
    "StoreError",
    "StoreTooNew",
    "StreamBroken",
    "StreamEvent",
    "SubagentEnded",
    "SwitchCost",
    "TextPiece",
    "Timings",
    "ToolContext",
    "ToolDispatch",
    "ToolEntry",
    "ToolFinished",
    "ToolHistory",
    "ToolProgress",
    "ToolRedefined",
    "ToolSchema",
    "ToolStarted",
    "ToolUpdate",
    "TurnDone",
    "TurnResult",
    "TurnStream",
    "UnknownEvent",
    "UnknownRoute",
    "UnsupportedContent",
    "Usage",
    "__version__",
    "async_http_client",
    "http_client",
    "project_tool_updates",
    "resolve_dispatched_tool_call",
    "subagent",
    "tool",
]
