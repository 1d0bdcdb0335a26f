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
    from addendum.agent.context.window import Compaction
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
    from addendum.errors import AddendumError
    from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, resolve_dispatched_tool_call
    from addendum.tools.functions import ToolContext, tool
    from addendum.tools.history import ToolHistory, project_tool_updates
    from addendum.tools.mcp import ServerSpec
    from addendum.tools.resources import RESOURCE_TOOLS

_HOMES = {
    "AddContext": "addendum.agent.calls.hooks",
    "AddendumError": "addendum.errors",
    "Agent": "addendum.agent.agent",
    "Approval": "addendum.agent.calls.approval",
    "Ask": "addendum.agent.calls.hooks",
    "Change": "addendum.agent.calls.hooks",
    "Compaction": "addendum.agent.context.window",
    "Decision": "addendum.agent.calls.approval",
    "Deny": "addendum.agent.calls.hooks",
    "Hook": "addendum.agent.calls.hooks",
    "HookCall": "addendum.agent.calls.hooks",
    "Limits": "addendum.agent.setup",
    "Notice": "addendum.agent.results",
    "Pending": "addendum.agent.calls.approval",
    "Policy": "addendum.agent.calls.approval",
    "RESOURCE_TOOLS": "addendum.tools.resources",
    "ReasoningPiece": "addendum.agent.results",
    "Replace": "addendum.agent.calls.hooks",
    "RequestDone": "addendum.agent.results",
    "RequestFigures": "addendum.agent.results",
    "ServerSpec": "addendum.tools.mcp",
    "Session": "addendum.agent.session",
    "Settings": "addendum.agent.setup",
    "StreamEvent": "addendum.agent.results",
    "TOOL_DISPATCHER_NAME": "addendum.tools.dispatcher",
    "TextPiece": "addendum.agent.results",
    "ToolContext": "addendum.tools.functions",
    "ToolDispatch": "addendum.agent.setup",
    "ToolFinished": "addendum.agent.results",
    "ToolHistory": "addendum.tools.history",
    "ToolProgress": "addendum.agent.results",
    "ToolStarted": "addendum.agent.results",
    "TurnDone": "addendum.agent.results",
    "TurnResult": "addendum.agent.results",
    "TurnStream": "addendum.agent.streaming",
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
    "Agent",
    "Approval",
    "Ask",
    "Change",
    "Compaction",
    "Decision",
    "Deny",
    "Hook",
    "HookCall",
    "Limits",
    "Notice",
    "Pending",
    "Policy",
    "ReasoningPiece",
    "Replace",
    "RequestDone",
    "RequestFigures",
    "ServerSpec",
    "Session",
    "Settings",
    "StreamEvent",
    "TextPiece",
    "ToolContext",
    "ToolDispatch",
    "ToolFinished",
    "ToolHistory",
    "ToolProgress",
    "ToolStarted",
    "TurnDone",
    "TurnResult",
    "TurnStream",
    "__version__",
    "project_tool_updates",
    "resolve_dispatched_tool_call",
    "subagent",
    "tool",
]
