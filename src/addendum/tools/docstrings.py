"""Read what a Google-style docstring says about a function and its parameters."""

from __future__ import annotations

import re

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|See Also|"
    r"Warnings?):"
)
_PARAMETERS = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def describe(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text up to the first section, and the descriptions of the parameters.

    Args:
        docstring: A docstring without indentation, as `inspect.getdoc` gives it.

    Returns:
        The text, and for each parameter under `Args:` its description on one line.
    """
    text: list[str] = []
    found: dict[str, list[str]] = {}
    section: str | None = None
    indent: int | None = None
    name = ""
    for line in docstring.splitlines():
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if depth == 0 and (heading := _SECTION.fullmatch(stripped)):
            section, indent, name = heading.group(1), None, ""
        elif section is None:
            text.append(line.rstrip())
        elif section in _PARAMETERS and stripped:
            indent = depth if indent is None else indent
            entry = _ENTRY.fullmatch(stripped) if depth == indent else None
            if entry:
                name = entry.group(1)
                found[name] = [entry.group(2)]
            elif name and depth > indent:
                found[name].append(stripped)
    return "\n".join(text).strip(), {
        key: joined for key, lines in found.items() if (joined := " ".join(filter(None, lines)))
    }
