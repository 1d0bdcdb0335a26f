"""The scripted model and the free model: who speaks in the lab, whatever the wire.

A script is found again from the request's body alone: the newest user text that is one of the
script's user texts says which step it is, and the assistant messages behind it say which entry.
So a script needs no state, and a session may be closed, reopened, forked or moved to another
provider in the middle of it.

Without a script the free model answers in short text and obeys `/call NAME JSON`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import msgspec

from addendum import encoding
from addendum.errors import ContentError
from addendum.lab.refusal import Refusal

COMPACTION_MARKER = "<compaction_request>"
"""How the last user text of a request begins that asks for a summary."""

ANNOUNCEMENT = "<tool_update"
_APPLICATION = (ANNOUNCEMENT, "<turn_instructions", "<server_instructions", "<added_context")
DELIMITERS = (*_APPLICATION, COMPACTION_MARKER, "<conversation_summary")
"""How user-role texts begin that no human wrote."""

_OPENED = re.compile("<(" + "|".join(each.strip("<>") for each in DELIMITERS) + ")")
_JOINT = re.compile(r"\n\n(?=" + _OPENED.pattern + ")")

DISPATCHER = "call_tool"

Form = Literal["auto", "direct", "dispatch"]


class ScriptCall(msgspec.Struct, frozen=True):
    """A tool call that the scripted model makes.

    Attributes:
        tool: The tool's own name, or `SERVER__TOOL`.
        arguments: Its arguments; never changed.
        form: `auto` calls the tool by its name if it is offered, else through `call_tool`;
            `direct` and `dispatch` force one.
    """

    tool: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    form: Form = "auto"


class Entry(msgspec.Struct, frozen=True):
    """One answer of the scripted model; empty texts are not said.

    Attributes:
        text: What it says.
        thinking: What it thinks before it speaks.
        calls: The tools it calls, in one round.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptCall, ...] = ()


class ScriptStep(msgspec.Struct, frozen=True):
    """What happens after one user text.

    Attributes:
        user: The text, unique in its script.
        entries: The answers to it, one a model request.
        summary: The answer to a compaction request made after it.
    """

    user: str
    entries: tuple[Entry, ...] = ()
    summary: str | None = None


class Script(msgspec.Struct, frozen=True):
    """A whole conversation, or several; user texts are unique.

    Raises:
        ContentError: Two steps have the same user text.
    """

    steps: tuple[ScriptStep, ...] = ()

    def __post_init__(self) -> None:
        texts = [step.user for step in self.steps]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise ContentError(
                f"the script has the user text {_short(twice)} twice; make it unique"
            )


class Heard(msgspec.Struct, frozen=True):
    """One message as the model hears it, without what only a wire knows.

    Attributes:
        role: Who speaks.
        texts: Its text blocks; results of tools are not among them.
    """

    role: Literal["user", "assistant"]
    texts: tuple[str, ...] = ()


class Spoken(msgspec.Struct, frozen=True):
    """What the model says, ready for any wire.

    Attributes:
        text: As in `Entry`.
        thinking: As in `Entry`.
        calls: Pairs of the name called and the arguments as compact JSON text.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def pick(script: Script, newest_human_text: str, assistant_messages_behind: int) -> Entry:
    """Return the entry that answers a request.

    Args:
        script: The script.
        newest_human_text: The user text of one of its steps.
        assistant_messages_behind: How many assistant messages stand behind that text.

    Raises:
        Refusal: The script has no such step, or no entry with that number.
    """
    step = _step(script, newest_human_text)
    if assistant_messages_behind >= len(step.entries):
        raise _missing(
            f"the step {_short(newest_human_text)} has {len(step.entries)} entries; this request"
            f" asks for number {assistant_messages_behind + 1}"
        )
    return step.entries[assistant_messages_behind]


def speak(script: Script | None, heard: Sequence[Heard], offered: Sequence[str]) -> Spoken:
    """Return what the model says to a request.

    Args:
        script: The script, or None for the free model.
        heard: The conversation, oldest first.
        offered: Names of the tools that the model may call at this point.

    Raises:
        Refusal: The script has no answer to this request.
    """
    compaction = _compaction(heard)
    announced = _announced(heard)
    if script is None:
        return _free(heard, compaction, offered, announced)
    texts = {step.user for step in script.steps}
    found = _newest(heard, texts.__contains__)
    if found is None:
        raise _missing(f"no user text is one of the script's; the newest is {_newest_text(heard)}")
    text, behind = found
    if compaction:
        summary = _step(script, text).summary
        if summary is None:
            raise _missing(f"the step {_short(text)} has no summary")
        return Spoken(text=summary)
    entry = pick(script, text, behind)
    calls = tuple(
        _call(each.tool, encoding.encode(each.arguments).decode(), each.form, offered, announced)
        for each in entry.calls
    )
    return Spoken(entry.text, entry.thinking, calls)


def _call(
    tool: str, arguments: str, form: Form, offered: Sequence[str], announced: str
) -> tuple[str, str]:
    """Return the name to call and the arguments as JSON text, in the form the request allows."""
    name = _offered_name(tool, offered)
    if form != "dispatch" and name is not None:
        return name, arguments
    target = name or _announced_name(tool, announced)
    if form == "direct" or (form == "auto" and DISPATCHER not in offered):
        return target, arguments
    envelope = {"name": target, "arguments": msgspec.Raw(arguments.encode())}
    return DISPATCHER, encoding.encode(envelope).decode()


def _offered_name(tool: str, offered: Sequence[str]) -> str | None:
    if tool in offered:
        return tool
    ending = [name for name in offered if name.endswith(f"__{tool}")]
    return ending[0] if len(ending) == 1 else None


def _announced_name(tool: str, announced: str) -> str:
    """Return the full name of a tool from the announcements, or `tool` if none tells it.

    A tool in full comes first (`"name":"SERVER__TOOL"`), then a bare list of names; the newest
    announcement wins.
    """
    whole = re.findall(
        rf'"name"\s*:\s*"({re.escape(tool)}|[A-Za-z0-9_-]+__{re.escape(tool)})"', announced
    )
    listed = re.findall(rf'"([A-Za-z0-9_-]+__{re.escape(tool)})"', announced)
    found = cast(list[str], whole or listed)
    return found[-1] if found else tool


def _announced(heard: Sequence[Heard]) -> str:
    texts = (text for each in heard if each.role == "user" for text in each.texts)
    return "\n".join(text for text in texts if text.lstrip().startswith(ANNOUNCEMENT))


def _newest(heard: Sequence[Heard], human: Callable[[str], bool]) -> tuple[str, int] | None:
    behind = 0
    for each in reversed(heard):
        if each.role == "assistant":
            behind += 1
            continue
        for text in reversed(each.texts):
            if human(text):
                return text, behind
    return None


def _written_by_human(text: str) -> bool:
    return not text.lstrip().startswith(DELIMITERS)


def _newest_text(heard: Sequence[Heard]) -> str:
    found = _newest(heard, _written_by_human)
    return _short(found[0]) if found else "none"


def _compaction(heard: Sequence[Heard]) -> bool:
    """Tell whether the newest user text, those of the application left out, asks for a summary."""
    if not heard or heard[-1].role != "user":
        return False
    texts = [text for each in heard if each.role == "user" for text in each.texts]
    asking = (text for text in reversed(texts) if not text.lstrip().startswith(_APPLICATION))
    return next(asking, "").startswith(COMPACTION_MARKER)


def _free(
    heard: Sequence[Heard], compaction: bool, offered: Sequence[str], announced: str
) -> Spoken:
    if compaction:
        return Spoken(text=f"Summary of {len(heard) - 1} messages.")
    found = _newest(heard, _written_by_human)
    if found is None:
        return Spoken(text="I heard nothing.")
    text, behind = found
    command = re.match(r"/call\s+(\S+)\s*(.*)\Z", text.strip(), re.DOTALL)
    if command is None:
        return Spoken(text=f"I heard: {_short(text)}")
    if behind:
        return Spoken(text=f"{command[1]} has answered.")
    try:
        arguments = bytes(encoding.compact(command[2].strip() or "{}")).decode()
    except ContentError as error:
        return Spoken(text=f"/call needs a name and JSON: {error}")
    return Spoken(calls=(_call(command[1], arguments, "auto", offered, announced),))


def pieces_of(text: str) -> tuple[str, ...]:
    """Return the pieces of a user's text in which an application joined what it had to say.

    What a human wrote stands in front of, between or behind what no human wrote.
    """
    found: list[str] = []
    while text:
        opened = _OPENED.match(text)
        closed = text.find(f"</{opened[1]}>") if opened else -1
        joint = None if opened else _JOINT.search(text)
        end = joint.start() if joint else text.find("\n\n", closed) if closed >= 0 else -1
        found.append(text if end < 0 else text[:end])
        text = "" if end < 0 else text[end + 2 :]
    return tuple(found) or ("",)


def _step(script: Script, text: str) -> ScriptStep:
    step = next((step for step in script.steps if step.user == text), None)
    if step is None:
        raise _missing(f"no step has the user text {_short(text)}")
    return step


def _missing(what: str) -> Refusal:
    return Refusal(f"lab script: {what}", kind="lab_script_error")


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
