"""Session logs of Claude Code and Codex: lines as public descriptions have them, written by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from addendum.cache.examine import Examined
from addendum.errors import ContentError
from addendum.lab.checking import check_files

DAY = "2026-11-30T10:"


def claude(clock: str, read: int, written: int, *, answer: str = "", **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": 9,
        **more.pop("usage", {}),
    }
    model = more.pop("model", "claude-opus-5-5")
    message = {"id": answer or f"msg_{clock}", "role": "assistant", "model": model, "usage": usage}
    return {
        "type": "assistant",
        "sessionId": "s1",
        "uuid": f"u{clock}",
        "timestamp": f"{DAY}{clock}Z",
        "isSidechain": False,
        "message": message,
        **more,
    }


USER: dict[str, Any] = {"type": "user", "sessionId": "s1", "message": {"role": "user"}}
SUMMARY: dict[str, Any] = {"type": "summary", "summary": "What was done", "leafUuid": "u1"}


def codex(clock: str, prompt: int, read: int, total: int) -> dict[str, Any]:
    last = {"input_tokens": prompt, "cached_input_tokens": read, "output_tokens": 5}
    info = {"last_token_usage": last, "total_token_usage": {"total_tokens": total}}
    payload = {"type": "token_count", "info": info}
    return {"timestamp": f"{DAY}{clock}Z", "type": "event_msg", "payload": payload}


META: dict[str, Any] = {
    "timestamp": f"{DAY}00:00Z",
    "type": "session_meta",
    "payload": {"id": "c1", "originator": "codex_cli"},
}


def model(name: str) -> dict[str, Any]:
    return {"type": "turn_context", "payload": {"model": name}}


def checked(folder: Path, *lines: dict[str, Any]) -> Examined:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    return check_files([path])


def test_a_log_in_which_all_was_read_again_holds(tmp_path: Path) -> None:
    first = claude("00:01", 0, 9000, answer="m1")
    done = checked(
        tmp_path, SUMMARY, USER, first, first, claude("00:31", 9000, 500), claude("01:00", 9500, 70)
    )
    assert done.findings == ()
    assert (done.requests, done.conversations) == (3, 1)
    assert any("session logs keep no requests" in note for note in done.notes)


def test_tokens_that_were_not_read_again_are_found(tmp_path: Path) -> None:
    done = checked(tmp_path, USER, claude("00:01", 0, 9000), claude("00:31", 2000, 7500))
    (found,) = done.findings
    assert (found.rule, found.cause, found.n) == ("V11", "", 2)
    assert found.where == f"{tmp_path / 'log.jsonl'}:3" and found.session == "s1"
    assert found.text.startswith(f"7,000 of 9,000 tokens that {tmp_path / 'log.jsonl'}:2 had left")
    assert "addendum record" in found.text


@pytest.mark.parametrize(
    ("later", "before", "cause"),
    [
        pytest.param([claude("00:31", 0, 9500, model="claude-sonnet-5")], [], "model", id="model"),
        pytest.param(
            [{**USER, "isCompactSummary": True}, claude("00:31", 2000, 500)],
            [],
            "messages",
            id="compaction",
        ),
        pytest.param(
            [{"type": "system", "subtype": "compact_boundary"}, claude("00:31", 2000, 500)],
            [],
            "messages",
            id="boundary",
        ),
        pytest.param([claude("05:02", 0, 9500)], [], None, id="lifetime"),
        pytest.param(
            [claude("05:02", 0, 9500)],
            [{"usage": {"cache_creation": {"ephemeral_1h_input_tokens": 9000}}}],
            "",
            id="hour",
        ),
        pytest.param([claude("00:31", 0, 50, isSidechain=True)], [], None, id="side"),
        pytest.param([claude("00:31", 0, 50, agentId="a7")], [], None, id="agent"),
        pytest.param([claude("00:31", 0, 0, model="<synthetic>")], [], None, id="synthetic"),
        pytest.param([claude("00:31", 0, 50, sessionId="s2")], [], None, id="session"),
    ],
)
def test_causes_that_a_log_of_claude_code_tells(
    tmp_path: Path, later: list[dict[str, Any]], before: list[Any], cause: str | None
) -> None:
    first = claude("00:01", 0, 9000, **(before[0] if before else {}))
    done = checked(tmp_path, USER, first, *later)
    assert [each.cause for each in done.findings] == ([] if cause is None else [cause])


def test_codex_counts_are_read_once_each(tmp_path: Path) -> None:
    again = codex("00:40", 20_000, 12_000, 32_000)
    done = checked(
        tmp_path,
        META,
        model("gpt-5.4"),
        codex("00:10", 12_000, 0, 12_000),
        again,
        again,
        codex("01:00", 21_000, 3_000, 53_000),
    )
    assert (done.requests, done.conversations) == (3, 1)
    (found,) = done.findings
    assert found.n == 3 and found.session == "c1"
    # 20,000 down to a step of 128, and 1,024 that may not have been sent again.
    assert found.text.startswith("15,944 of 18,944 tokens")
    assert "follows" not in found.text


@pytest.mark.parametrize(
    ("between", "name", "clock", "cause"),
    [
        pytest.param(
            [{"type": "compacted", "payload": {}}], "gpt-5.4", "00:40", "messages", id="c"
        ),
        pytest.param([model("gpt-6.1-sol")], "gpt-5.4", "00:40", "model", id="model"),
        pytest.param([], "gpt-5.4", "05:40", None, id="lifetime"),
        pytest.param([], "gpt-6.1-sol", "05:40", "", id="half-an-hour"),
    ],
)
def test_causes_that_a_log_of_codex_tells(
    tmp_path: Path, between: list[dict[str, Any]], name: str, clock: str, cause: str | None
) -> None:
    first, second = codex("00:10", 12_000, 0, 1), codex(clock, 13_000, 0, 2)
    done = checked(tmp_path, META, model(name), first, *between, second)
    assert [each.cause for each in done.findings] == ([] if cause is None else [cause])


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(META) + '\n{"type": "event_msg", "pay', "utf-8")
    with pytest.raises(ContentError, match=r"log\.jsonl:2: not valid JSON"):
        check_files([path])


def test_a_log_without_counts_has_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="no request to a model in it"):
        checked(tmp_path, USER, USER)
