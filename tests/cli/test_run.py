from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.commands import call, complaint, told

CLAUDE = "anthropic:claude-opus-5-5"


def test_a_run_shows_every_request_and_fits_80_columns() -> None:
    shown = call("run", "redefine", "--route", f"{CLAUDE}+by-reference").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith(f"redefine on {CLAUDE}+by-reference: in-history, definitions")
    assert "simulated by published rules" in " ".join(lines[:3])
    assert sum(re.match(r" ?\d+ +\d", line) is not None for line in lines) == 10
    assert any(line.endswith("  redefinition") for line in lines)
    assert any(line.startswith("broken: ") and "redefinition" in line for line in lines)


def test_a_run_as_json_is_one_object() -> None:
    found = told("run", "empty-head", "--route", "openai-chat:gpt-4.1")
    assert (found["strategy"], found["route"]) == ("dispatch", "openai-chat:gpt-4.1")
    assert len(found["requests"]) == found["totals"]["requests"] == 9
    rebound = told(
        "run", "empty-head", "--route", "openai-chat:gpt-4.1", "--tool-changes", "rebind"
    )
    assert rebound["strategy"] == "rebind"
    assert {each["miss"]["reason"] for each in rebound["requests"] if each["miss"]} == {"rebinding"}


def test_what_cannot_be_run_so_is_one_line(tmp_path: Path) -> None:
    sonnet = "anthropic:claude-sonnet-4-6"
    assert "cannot be told of tool changes natively" in complaint(
        "run", "flap", "--route", sonnet, "--tool-changes", "native"
    )
    assert "no provider 'nope'" in complaint("run", "flap", "--route", "nope:x")
    assert "No such file" in complaint("run", str(tmp_path / "x.yaml"), "--route", CLAUDE)
    assert "a base URL is http:// or https://" in complaint(
        "run", "flap", "--route", CLAUDE, "--base-url", "nonsense"
    )
    assert "'maybe' is not one of" in complaint(
        "run", "flap", "--route", CLAUDE, "--tool-changes", "maybe"
    )
    assert "a store of kind 'redis'" in complaint(
        "run", "empty-head", "--route", CLAUDE, "--store", "redis://x"
    )


def test_c9_two_processes_share_a_head_at_an_endpoint_of_their_own(tmp_path: Path) -> None:
    lab = subprocess.Popen(
        [sys.executable, "-m", "addendum.app.main", "lab", "empty-head", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert lab.stdout is not None
    try:
        text = ""
        while "}\n}" not in text:
            text += lab.stdout.readline()
        addresses = json.loads(text)
        assert addresses["scenario"] == "empty-head"
        base_url = addresses["base_urls"]["anthropic"]
        assert base_url.startswith(addresses["url"])
        runs = [
            _process(base_url, tmp_path / name, seed) for name, seed in (("a", "1"), ("b", "2"))
        ]
    finally:
        lab.terminate()
        lab.wait(30)
        lab.stdout.close()
    first, second = (run["requests"][0] for run in runs)
    assert first["cache_read"] == 0
    # Tools and static text, at least: the whole of it but the first message.
    assert second["cache_read"] >= 4_200
    assert all(run["holds"] and not run["simulated"] for run in runs)


def _process(base_url: str, store: Path, seed: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "addendum.app.main", "run", "empty-head", "--json"]
    command += ["--route", CLAUDE, "--base-url", base_url, "--store", f"sqlite:///{store}.db"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_best_way_stands_beside_a_run() -> None:
    shown = call("run", "tail", "--route", "openai-chat:gpt-4.1", "--best").stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "of the best way: " in shown and "this run" in shown
    best = told("run", "tail", "--route", "openai-chat:gpt-4.1", "--best")["best"]
    assert best["ways"][0]["uncached"] <= best["uncached"] and best["floor"] > best["rounding"] > 0
    where = ("--best", "--base-url", "http://127.0.0.1:9")
    said = complaint("run", "tail", "--route", "openai-chat:gpt-4.1", *where)
    assert "--best runs every way in the lab; leave --base-url out" in said
