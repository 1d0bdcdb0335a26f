from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import structs
from tests.cli.commands import call, complaint, told
from tests.cli.histories import CHAT, CLAUDE, play, rewritten, silent, unread, url

from addendum.log.events import Event, UserMessage

MARK = {"cache_control": {"type": "ephemeral"}}


def request(clock: str, *texts: str) -> dict[str, Any]:
    """A request of somebody's client, with the time in its prompt."""
    messages: list[dict[str, Any]] = []
    for at, text in enumerate(texts):
        block = {"type": "text", "text": text, **(MARK if at == len(texts) - 1 else {})}
        messages.append({"role": "assistant" if at % 2 else "user", "content": [block]})
    system = [{"type": "text", "text": f"It is {clock}."}]
    return {"model": "claude-opus-5-5", "system": system, "messages": messages}


def written(folder: Path, *bodies: Any, name: str = "calls.jsonl") -> str:
    path = folder / name
    path.write_text("\n".join(json.dumps(body) for body in bodies), "utf-8")
    return str(path)


# -- anybody's requests -------------------------------------------------------------------------


def test_d10_requests_that_only_grow_hold(tmp_path: Path) -> None:
    file = written(tmp_path, request("9", "a"), request("9", "a", "b", "c"))
    assert call("check", file).stdout == "2 requests in 1 conversation: all rules hold\n"
    found = told("check", file)
    assert found == {
        "holds": True,
        "requests": 2,
        "conversations": 1,
        "findings": [],
        "more": 0,
        "notes": [],
    }


def test_d10_a_break_of_anybodys_is_told_with_its_place_and_cause(tmp_path: Path) -> None:
    file = written(tmp_path, request("9:01", "a"), request("9:02", "a", "b", "c"))
    shown = call("check", file, code=1).stdout.splitlines()
    assert shown == [
        f"{file}:2: V2 system[0].text: the prompt text changed: 'It is 9:01.' became "
        f"'It is 9:02.'; it followed {file}:1",
        "rule V2: the system text stays as it is",
        "2 requests in 1 conversation: 1 finding",
    ]
    (found,) = told("check", file, code=1)["findings"]
    assert (found["rule"], found["cause"], found["where"]) == ("V2", "system", f"{file}:2")
    assert told("check", file, "--allow", "system")["holds"]
    assert told("check", file, "--format", "json", code=1)["findings"] == [found]


def test_a_report_for_junit_has_one_test_a_request(tmp_path: Path) -> None:
    bad = request("<9>&\x00", "a", "b", "c")
    file = written(tmp_path, request("9", "a"), bad)
    shown = call("check", file, "--format", "junit", code=1).stdout
    suite = ElementTree.fromstring(shown.encode())[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    first, second = suite
    assert first.get("name") == f"{file}:1" and len(first) == 0
    (failure,) = second
    assert "'It is <9>&" in (failure.get("message") or "")
    assert failure.text is not None and failure.text.strip() == failure.get("message")


def test_a_report_for_github_names_file_and_line(tmp_path: Path) -> None:
    name = "a,b 100%.jsonl"
    file = written(tmp_path, request("9", "a"), request("8", "a", "b", "c"), name=name)
    first, _ = call("check", file, "--format", "github", code=1).stdout.splitlines()
    place, _, text = first.removeprefix("::error ").partition("::")
    assert place == f"file={tmp_path}/a%2Cb 100%25.jsonl,line=2,title=addendum V2"
    assert "100%25.jsonl:2: V2 system[0].text" in text


def test_files_are_checked_each_by_itself(tmp_path: Path) -> None:
    one = written(tmp_path, request("9", "a"), name="one.jsonl")
    other = written(tmp_path, request("8", "a", "b", "c"), name="other.jsonl")
    found = told("check", one, other)
    assert found["holds"] and (found["requests"], found["conversations"]) == (2, 2)


def test_what_cannot_be_read_is_one_line_and_exit_2(tmp_path: Path) -> None:
    good = request("9", "a")
    file = tmp_path / "cut.jsonl"
    file.write_text(f"{json.dumps(good)}\n{json.dumps(good)[:-5]}", "utf-8")
    assert f"{file}:2: not valid JSON" in complaint("check", str(file))
    file.write_bytes(b"\xff\xfe\x00")
    assert "it is UTF-16" in complaint("check", str(file))
    assert "cannot read" in complaint("check", str(tmp_path / "none"))
    assert "Missing argument" in complaint("check")
    hostile = {"messages": [{"role": 3, "content": {"a": [None]}}, 7], "tools": "x", "system": 5}
    call("check", written(tmp_path, hostile))


# -- our own ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    play(folder, "told", CLAUDE)
    play(folder, "rebound", CHAT, "--tool-changes", "rebind")
    rewritten(folder, "rebound-", "silent", silent)
    rewritten(folder, "told-", "lost", unread(3))
    return folder


def exported(folder: Path, session: str, form: str) -> str:
    path = folder / f"{session}.{form}"
    path.write_text(call("export", session, f"--{form}", "--store", url(folder)).stdout)
    return str(path)


@pytest.mark.parametrize("form", ["json", "jsonl", "har"])
def test_what_is_exported_holds_as_the_session_does(folder: Path, form: str) -> None:
    for session in ("told-", "rebound-", "lost"):
        found = told("check", exported(folder, session, form))
        assert found["holds"], (session, found["findings"])
        assert (found["requests"], found["conversations"]) == (7, 1)
    # What was never declared is found, by its bytes and by what was read.
    found = told("check", exported(folder, "silent", form), code=1)["findings"]
    assert [each["rule"] for each in found if each["n"] == 3] == ["V1", "V3", "V11"]


def test_an_export_holds_the_very_bytes_and_no_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://user:sk-secret@example.com")
    shown = call("export", "told-", "--store", url(folder)).stdout
    assert "secret" not in shown and "authorization" not in shown and "api-key" not in shown
    lines = [json.loads(line) for line in shown.splitlines()]
    assert [line["addendum"]["n"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert lines[0]["url"] == "https://api.anthropic.com/v1/messages"
    assert "inline-tools-2026-09-15" in lines[0]["headers"]["anthropic-beta"]
    assert lines[6]["addendum"]["declared"] == [{"reason": "compaction", "at": "messages"}]
    seen = told("diff", "told-", "1", "2", "--store", url(folder))
    body = json.dumps(lines[1]["body"], separators=(",", ":"), ensure_ascii=False)
    assert len(body.encode()) == seen["b"]["bytes"]
    assert lines[1]["usage"]["cache_read"] == seen["b"]["cache_read"]
    har = json.loads(call("export", "told-", "--har", "--store", url(folder)).stdout)
    assert [len(each["request"]["postData"]["text"]) for each in har["log"]["entries"]][1] == len(
        body
    )


def test_a_secret_that_was_said_is_not_exported(folder: Path) -> None:
    secret = "sk-ant-api03-" + "Q9" * 12

    def says(event: Event) -> Event:
        if not isinstance(event.data, UserMessage):
            return event
        return structs.replace(event, data=structs.replace(event.data, text=f"One. {secret}"))

    rewritten(folder, "rebound-", "spoken", says)
    for form in ("json", "jsonl", "har"):
        asked = ("export", "spoken", f"--{form}", "--store", url(folder))
        assert secret in call(*asked, "--unredacted").stdout
        shown = call(*asked).stdout
        assert "Q9Q9" not in shown and "[redacted " in shown
        json.loads(shown.splitlines()[0])
        # What is judged stays what it was.
        path = folder / f"spoken.{form}"
        path.write_text(shown)
        assert told("check", str(path))["holds"]
