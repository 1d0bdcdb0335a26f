"""`addendum record`: the vendors' own SDKs against the lab, recorded and then checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import call, complaint, told

from addendum.pytest_plugin import CacheLab

ANTHROPIC = """
import anthropic, sys
client = anthropic.Anthropic(api_key="sk-" + "ant-api03-A1b2C3d4E5f6G7h8")
mark = {"cache_control": {"type": "ephemeral"}}
for prompt, number in [(prompt, number) for prompt in sys.argv[1:] for number in (1, 2, 3)]:
    messages = [] if number == 1 else messages
    question = {"type": "text", "text": f"Question {number}?"}
    with client.messages.stream(
        model="claude-opus-5-5",
        max_tokens=50,
        system=[{"type": "text", "text": prompt.replace("N", str(number)) * 900, **mark}],
        messages=[*messages, {"role": "user", "content": [{**question, **mark}]}],
    ) as stream:
        text = stream.get_final_text()
    messages += [{"role": "user", "content": [question]}, {"role": "assistant", "content": text}]
"""

OPENAI = """
import openai, sys
client = openai.OpenAI(api_key="sk-" + "proj-A1b2C3d4E5f6G7h8")
messages = [{"role": "system", "content": "Be brief. " * 900}]
for number in (1, 2, 3):
    messages.append({"role": "user", "content": f"Question {number}?"})
    answer = client.chat.completions.create(model="gpt-4.1", messages=messages)
    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    input = [{"role": "user", "content": f"{number}" * int(sys.argv[1])}]
client.responses.create(model="gpt-6.1-sol", input=input, instructions="Be brief.")
"""


@pytest.fixture
def environ(cache_lab: CacheLab) -> dict[str, str]:
    return {
        **os.environ,
        "ANTHROPIC_BASE_URL": cache_lab.base_url("anthropic"),
        "OPENAI_BASE_URL": cache_lab.base_url("openai"),
    }


def recorded(out: Path, environ: dict[str, str], script: str, *more: str) -> str:
    """Record a script; return what was said of it."""
    command = ("record", "--out", str(out), "--", sys.executable, "-c", script, *more)
    from click.testing import CliRunner

    from addendum.app.main import main

    result = CliRunner().invoke(main, list(command), env=environ)
    assert result.exit_code == 0, result.output
    return result.stderr


def test_d10_the_anthropic_sdk_is_recorded_and_its_break_found(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    pytest.importorskip("anthropic")
    out = tmp_path / "calls.jsonl"
    said = recorded(out, environ, ANTHROPIC, "Be brief. ", "It is N o'clock. ")
    assert said == f"addendum: 6 requests written; now: addendum check {out}\n"
    assert "A1b2C3" not in out.read_text()
    lines = out.read_text().splitlines(keepends=True)
    reads = [json.loads(line)["usage"]["cache_read"] > 0 for line in lines]
    assert reads == [False, True, True, False, False, False]
    whole, dated = tmp_path / "whole.jsonl", tmp_path / "dated.jsonl"
    whole.write_text("".join(lines[:3]))
    dated.write_text("".join(lines[3:]))
    assert told("check", str(whole)) == {
        "holds": True,
        "requests": 3,
        "conversations": 1,
        "findings": [],
        "more": 0,
        "notes": [],
    }
    found = told("check", str(dated), code=1)["findings"]
    assert [(each["rule"], each["path"]) for each in found] == [("V2", "system[0].text")] * 2


def test_d10_the_openai_sdk_is_recorded_on_both_of_its_apis(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    pytest.importorskip("openai")
    out = tmp_path / "calls.jsonl"
    recorded(out, environ, OPENAI, "3")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["url"].rsplit("/", 1)[1] for line in lines] == ["completions"] * 3 + ["responses"]
    assert lines[2]["usage"]["cache_read"] > 0
    assert told("check", str(out))["conversations"] == 2


def test_the_exit_code_is_the_commands_own(tmp_path: Path) -> None:
    for script, code in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 143)):
        command = ("--", sys.executable, "-c", script)
        from click.testing import CliRunner

        from addendum.app.main import main

        out = tmp_path / f"{code}.jsonl"
        result = CliRunner().invoke(main, ["record", "--out", str(out), *command])
        assert result.exit_code == code
        assert "no request to a model came by" in result.stderr and not out.exists()


def test_a_signal_reaches_the_command_and_nothing_stays_behind(tmp_path: Path) -> None:
    script = """
import os, signal, sys
def last(*_):
    print("last words", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, last)
print(os.getpid(), flush=True)
signal.pause()
"""
    out = tmp_path / "calls.jsonl"
    command = [sys.executable, "-m", "addendum.app.main", "record", "--out", str(out), "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", script],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    assert (process.returncode, said) == (5, "last words\n")
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_child_that_forks_is_recorded_as_long_as_the_command_runs(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    pytest.importorskip("openai")
    script = """
import os, sys
if os.fork():
    _, status = os.wait()
    sys.exit(os.waitstatus_to_exitcode(status))
from concurrent.futures import ThreadPoolExecutor
import openai
client = openai.OpenAI(api_key="any")
def ask(number):
    messages = [{"role": "user", "content": f"{number} is a number."}]
    return client.chat.completions.create(model="gpt-4.1", messages=messages)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(ask, range(24)))
sys.stdout.flush()
os._exit(0)
"""
    out = tmp_path / "calls.jsonl"
    assert "24 requests written" in recorded(out, environ, script)
    bodies = [json.loads(line)["body"] for line in out.read_text().splitlines()]
    said = {body["messages"][0]["content"] for body in bodies}
    assert said == {f"{number} is a number." for number in range(24)}


def test_what_cannot_be_recorded_is_one_line(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("x")
    assert "is there already" in complaint("record", "--out", str(there), "--", "true")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert "is there already" in complaint("record", "--out", str(link), "--", "true")
    nowhere = str(tmp_path / "no" / "x")
    assert "there is no folder" in complaint("record", "--out", nowhere, "--", "true")
    out = str(tmp_path / "x")
    assert "cannot run no-such-command" in complaint(
        "record", "--out", out, "--", "no-such-command"
    )
    call("record", code=2)
