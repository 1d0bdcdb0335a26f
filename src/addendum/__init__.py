"""Change an agent's tools in the middle of a conversation, and keep the prompt cache."""

from addendum.agent.agent import Agent, Limits, Settings, ToolDispatch
from addendum.agent.session import Session
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, resolve_dispatched_tool_call
from addendum.tools.functions import ToolContext, tool
from addendum.tools.history import ToolHistory, project_tool_updates
from addendum.tools.mcp import ServerSpec
from addendum.version import __version__

__all__ = [
    "TOOL_DISPATCHER_NAME",
    "Agent",
    "Limits",
    "ServerSpec",
    "Session",
    "Settings",
    "ToolContext",
    "ToolDispatch",
    "ToolHistory",
    "__version__",
    "project_tool_updates",
    "resolve_dispatched_tool_call",
    "tool",
]
