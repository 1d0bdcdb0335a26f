"""The pool of MCP servers under the name it had before `addendum.tools.mcp` was a package.

Programs that share a pool between agents import it from here; new ones take it from `addendum`.
"""

from __future__ import annotations

from addendum.tools.mcp.pool import ServerPool

__all__ = ["ServerPool"]
