"""What is said in delimited user-role text, and the escape that keeps it from being forged.

The blocks that are ours: tool updates (on routes without native ones), an MCP server's own
instructions, a turn's instructions, what hooks add, summaries and the request for one. Everything
else that reaches the model has the delimiters escaped, from the first request on; the log keeps
the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Raw

from addendum import encoding
from addendum.log.values import ToolSchema

BUDGET = 32_000
"""Bytes of definitions that one announcement may hold; names only beyond it."""

_NAMES = (
    "(tool_update|server_instructions|turn_instructions|conversation_summary|compaction_request"
    "|added_context)(?![A-Za-z0-9_])"
)
_PLAIN = re.compile(rf"<(/?)(_*){_NAMES}")
_JSON = re.compile(rf"(<|\\u003[cC])(/?|\\/)(_*){_NAMES}")
_ESCAPED = re.compile(rf"<(/?)_(_*){_NAMES}")


def escape(text: str) -> str:
    """Return `text` with our delimiters made harmless: `<tool_update` becomes `<_tool_update`."""
    return _PLAIN.sub(r"<\1_\2\3", text) if _suspect(text) else text


def unescape(text: str) -> str:
    """Undo `escape`."""
    return _ESCAPED.sub(r"<\1\2\3", text)


def escape_json(text: str) -> str:
    """As `escape`, for JSON text, where `<` and `/` may be written as escapes."""
    return _JSON.sub(r"\1\2_\3\4", text) if _suspect(text) else text


def _suspect(text: str) -> bool:
    return (
        "tool_update" in text
        or "_instructions" in text
        or "conversation_" in text
        or "compaction_" in text
        or "added_context" in text
    )


def tool_update(
    added: Iterable[ToolSchema] = (),
    changed: Iterable[ToolSchema] = (),
    again: Iterable[str] = (),
    restored: Iterable[str] = (),
    removed: Iterable[str] = (),
    *,
    dispatcher: str,
    budget: int = BUDGET,
) -> str:
    """Render a change of tools.

    Args:
        added: Tools that can be called now, through the dispatcher.
        changed: Tools whose definition was replaced; to be called through the dispatcher.
        again: Names that can be called through the dispatcher again, by the definition that an
            earlier announcement gave.
        restored: Declared tools that can be called again by their name.
        removed: Names that can no longer be called.
        dispatcher: Name of the tool to call them with.
        budget: Bytes of definitions that it may hold; names only beyond it.
    """
    left = budget
    body: dict[str, object] = {}
    more: list[str] = []
    for title, tools in (("added", added), ("changed", changed)):
        listed: list[object] = []
        for tool in tools:
            size = len(tool.description.encode()) + len(bytes(tool.parameters))
            if size <= left:
                left -= size
                listed.append(
                    {
                        "name": tool.name,
                        "description": escape(tool.description),
                        "parameters": Raw(escape_json(bytes(tool.parameters).decode()).encode()),
                    }
                )
            else:
                more.append(tool.name)
        if listed:
            body[title] = listed
    if more:
        body["added_names"] = more
        body["definitions"] = "ask tool_search for them"
    if known := list(again):
        body["added_again"] = known
    if body:
        body["use"] = dispatcher
    if back := list(restored):
        body["restored"] = back
    if gone := list(removed):
        body["removed"] = gone
    return f"<tool_update>{encoding.encode(body).decode()}</tool_update>"


def tool_notice(added: bool, off: Iterable[str], back: Iterable[str] = ()) -> str:
    """Render what a developer message says of a change where removals are told in text.

    It holds names only: no text of a third party gets the role's authority.

    Args:
        added: Whether definitions stand in front of it.
        off: Every name that is defined and cannot be called now.
        back: Names that were off and can be called again, by the definition they had.
    """
    said = ["The tools defined just now are added to those defined before."] if added else []
    if names := ", ".join(back):
        said.append(f"Available again: {names}.")
    if names := ", ".join(off):
        said.append(f"Not available now, do not call: {names}.")
    return " ".join([*said, "All others stay available."])


def server_instructions(server: str, text: str) -> str:
    """Render what an MCP server says about its use."""
    name = escape(server).replace('"', "'")
    return f'<server_instructions server="{name}">\n{escape(text)}\n</server_instructions>'


def added_context(source: str, text: str) -> str:
    """Render what a hook added to the results of a round.

    Args:
        source: The tool whose call it belongs to.
        text: What it added.
    """
    name = escape(source).replace('"', "'")
    return f'<added_context tool="{name}">\n{escape(text)}\n</added_context>'


def output_note(label: str | None, unknown: Iterable[str]) -> str:
    """Render what stands behind a result that can be referred to, or whose call referred in vain.

    Args:
        label: Its label.
        unknown: Labels that no result has.
    """
    said: list[str] = []
    if names := ", ".join(f"{{{{{name}}}}}" for name in unknown):
        said.append(f"\n\n[There is no output {names}; it was passed on as written.]")
    if label is not None:
        said.append(
            f"\n\n[To pass this output on, write {{{{{label}}}}} in the arguments of a later call.]"
        )
    return "".join(said)


def turn_instructions(text: str) -> str:
    """Render this turn's instructions in user-role text."""
    return f"<turn_instructions>\n{escape(text)}\n</turn_instructions>"


def compaction_request(instruction: str) -> str:
    """Render the request for a summary."""
    return f"<compaction_request>\n{instruction}\n</compaction_request>"


COMPACTION_INSTRUCTION = (
    "Write a summary of the conversation so far that lets you carry on without it. Keep what the "
    "person wants, decisions and their reasons, names, paths, identifiers and figures exactly, "
    "what was tried with which outcome, and what is still open. Leave out pleasantries. Answer "
    "with the summary alone and call no tool."
)


INSTRUCTIONS: Mapping[str, str] = {
    "compaction": compaction_request(COMPACTION_INSTRUCTION),
    "keep-alive": compaction_request("No summary is wanted now. Answer with the word `kept`."),
}
"""The last user message of a request that is no turn's, by its purpose."""


def summary(text: str) -> str:
    """Render a compaction summary: one carrier, the same bytes live and restored."""
    return (
        "<conversation_summary>\n"
        f"{escape(text)}\n"
        "</conversation_summary>\n"
        "The block above stands for the earlier part of this conversation. Carry on from it and "
        "do not mention it."
    )
