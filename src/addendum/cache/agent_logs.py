"""Session logs that Claude Code and Codex leave on the disk: what each answer counted.

Neither holds the requests: the tools and the prompt are missing, and history may have been cut. So
no body is checked here, only what the provider read of what it had read and written before. The
formats are not documented by their makers; what is read of them follows public descriptions:

Claude Code (`~/.claude/projects/*/SESSION.jsonl`): lines of type `assistant` with `message.id`,
`message.model`, `message.usage`, several a message; `isSidechain` and `agentId` tell agents apart;
a compaction is a line of subtype `compact_boundary` or one with `isCompactSummary`.
Codex (`~/.codex/sessions/*/*/*/rollout-*.jsonl`): `session_meta` first; `turn_context` names the
model; `event_msg` of type `token_count` has `info.last_token_usage`; `compacted` is a compaction.

Sources: "Claude Code Session Files, Detailed Schema" (lin-guanguo, 2025-12), "Claude Code JSONL
Format Reference" (toki, 2026-03); "Codex rollout files" (tokenuse.app and getagentseal/codeburn,
2026). Certainty: reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from addendum import encoding
from addendum.cache.capture_archives import text_in, time_of
from addendum.cache.reported import usage_of
from addendum.errors import ContentError
from addendum.log.values import Usage
from addendum.wire.captured import CLAUDE_CODE, CODEX
from addendum.wire.segment import Json, fields

_CLAUDE_LINES = frozenset({"user", "assistant", "system", "summary", "file-history-snapshot"})
_STEP, _DOUBT = 128, 1024
_FIVE_MINUTES, _HOUR, _HALF_HOUR = 300.0, 3600.0, 1800.0


class Counted(Struct, frozen=True):
    """One request as a session log tells of it.

    Attributes:
        where: File and line.
        session: The conversation.
        model: The model that answered.
        usage: What the provider counted.
        time: Seconds since the epoch, or None.
        left: Tokens that the provider could have kept of it, at least.
        lifetime: Seconds for which it keeps them.
        compacted: Whether the history was summed up right before it.
    """

    where: str
    session: str
    model: str
    usage: Usage
    time: float | None
    left: int
    lifetime: float
    compacted: bool = False


def is_session_log(first: Json) -> bool:
    """Say whether a file's first line is that of a session log."""
    if first.get("type") == "session_meta":
        return isinstance(first.get("payload"), dict)
    if "body" in first or not isinstance(first.get("type"), str):
        return False
    ids = any(name in first for name in ("sessionId", "leafUuid", "messageId"))
    return ids and (first["type"] in _CLAUDE_LINES or "sessionId" in first)


def counted(name: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[Counted]:
    """Yield the requests that a session log tells of.

    Args:
        name: The file.
        lines: Its lines with their numbers.

    Raises:
        ContentError: A line is no JSON object; the message names it.
    """
    reader: _Codex | _Claude | None = None
    for number, line in lines:
        where = f"{name}:{number}"
        try:
            value = fields(encoding.decode(line))
        except ContentError as error:
            raise ContentError(f"{where}: {error}") from error
        if reader is None:
            reader = _Codex(name) if value.get("type") == "session_meta" else _Claude(name)
        found = reader.read(where, value)
        if found is not None:
            yield found


class _Claude:
    def __init__(self, name: Path) -> None:
        self._name = name
        self._latest = ""
        self._compacted = False

    def read(self, where: str, line: Json) -> Counted | None:
        if line.get("subtype") == "compact_boundary" or line.get("isCompactSummary") is True:
            self._compacted = True
        message = fields(line.get("message"))
        said, model = fields(message.get("usage")), text_in(message.get("model"))
        if line.get("type") != "assistant" or not said or model.startswith("<"):
            return None
        answer = text_in(message.get("id")) or text_in(line.get("requestId"))
        if answer and answer == self._latest:
            return None  # each block of an answer has a line of its own
        self._latest = answer
        usage = usage_of(CLAUDE_CODE, said)
        hour = fields(said.get("cache_creation")).get("ephemeral_1h_input_tokens")
        agent = text_in(line.get("agentId")) or ("side" if line.get("isSidechain") is True else "")
        session = text_in(line.get("sessionId")) or self._name.stem
        compacted, self._compacted = self._compacted and not agent, self._compacted and bool(agent)
        return Counted(
            where,
            f"{session} {agent}".strip(),
            model,
            usage,
            time_of(line.get("timestamp")),
            (usage.cache_read or 0) + (usage.cache_write or 0),
            _HOUR if isinstance(hour, int) and hour > 0 else _FIVE_MINUTES,
            compacted,
        )


class _Codex:
    def __init__(self, name: Path) -> None:
        self._session = name.stem
        self._model = ""
        self._totals: Json = {}
        self._compacted = False

    def read(self, where: str, line: Json) -> Counted | None:
        payload = fields(line.get("payload"))
        if line.get("type") == "session_meta":
            self._session = text_in(payload.get("id")) or self._session
        elif line.get("type") == "turn_context":
            self._model = text_in(payload.get("model")) or self._model
        elif line.get("type") == "compacted":
            self._compacted = True
        info = fields(payload.get("info"))
        said, totals = fields(info.get("last_token_usage")), fields(info.get("total_token_usage"))
        if payload.get("type") != "token_count" or not said or (totals and totals == self._totals):
            return None  # told again when a limit was told
        self._totals = totals
        plain = {"cached_tokens": said.get("cached_input_tokens")}
        usage = usage_of(CODEX, {**said, "input_tokens_details": plain})
        compacted, self._compacted = self._compacted, False
        # The end of a prompt may be text that is not sent again.
        left = max(usage.cache_read or 0, (usage.prompt or 0) // _STEP * _STEP - _DOUBT)
        return Counted(
            where,
            self._session,
            self._model or "unknown",
            usage,
            time_of(line.get("timestamp")),
            left,
            _HALF_HOUR if self._model.startswith("gpt-6") else _FIVE_MINUTES,
            compacted,
        )


def told(before: Counted, now: Counted) -> tuple[str, str] | None:
    """Return cause and words if a request read less than the one before it had left.

    None too where the provider's lifetime had passed, or where nothing was counted.
    """
    read = now.usage.cache_read
    if read is None or read >= before.left:
        return None
    waited = None if None in (before.time, now.time) else (now.time or 0) - (before.time or 0)
    lost = f"{before.left - read:,} of {before.left:,} tokens that {before.where} had left"
    if now.compacted:
        return "messages", f"the history was summed up: {lost} were not read again"
    if before.model != now.model:
        sides = f"from {before.model} to {now.model}"
        return "model", f"the model changed {sides}: {lost} were not read again"
    if waited is not None and waited > before.lifetime:
        return None
    why = "a session log keeps no requests; see why with `addendum record -- COMMAND`"
    return "", f"{lost} were not read again; {why}"
