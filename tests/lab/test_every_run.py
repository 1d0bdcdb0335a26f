"""The matrix of invariants, and faults that each of them has to notice.

A fault is put into what was captured: one request of a run that breaks nothing. Its target has to
fail at that very request and path; what else fails there does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from msgspec import structs
from scripts.every_run import INVARIANTS, Cell, broken, cells, line

from addendum.cache.record import RequestRecord
from addendum.cli.demo import ROUTES
from addendum.lab.report import Run, judged
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import bundled, find
from addendum.lab.server import open_lab
from addendum.routes import resolve

CLAUDE = "anthropic:claude-opus-5-5"
SHORT = ("anthropic:claude-opus-5-5", "deepseek:deepseek-flash", "openai-chat:gpt-4.1")

TEXT = """
name: whole
instructions: {text: Be brief., tokens: 1600}
conversation_instructions: You speak with Ines.
turn_instructions: It is nine o'clock.
tools:
  - {name: look, parameters: {properties: {q: {type: string}}}, result: {text: seen, tokens: 300}}
servers:
  files: {tools: [{name: read, result: text}, {name: write}]}
steps:
  - user: One.
    model: [{calls: [{tool: look, arguments: {q: a}}]}, {text: First.}]
  - enable: files
  - user: Two.
    model: [{calls: [{tool: read}]}, {text: Second.}]
  - compact: {summary: They looked and read.}
  - user: Three.
    model: [{calls: [{tool: look, arguments: {q: b}}]}, {text: Third.}]
  - user: Four.
    model: [{text: Fourth.}]
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    file: Path = tmp_path_factory.mktemp("whole") / "whole.yaml"
    file.write_text(TEXT, "utf-8")
    return anyio.run(partial(run_scenario, find(str(file)), CLAUDE))


def test_a_run_without_a_fault_breaks_nothing(whole: Run) -> None:
    assert broken(whole) == []
    # 1, 2: the first turn. 3, 4: the second. 5: the summary. 6, 7: the third. 8: the last.
    assert [record.n for record in whole.records if record.purpose == "compaction"] == [5]
    assert len(whole.records) == 8


# -- faults -------------------------------------------------------------------------------------

Body = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}


def in_tools(body: Body) -> None:
    body["tools"][0]["description"] = "Another one."


def in_system(body: Body) -> None:
    body["system"][0]["text"] += " And kind."


def in_history(body: Body) -> None:
    body["messages"][0]["content"][0]["text"] = "Won."


def too_many_marks(body: Body) -> None:
    for message in body["messages"]:
        for block in message["content"]:
            block.update(MARK)


def unknown_name(body: Body) -> None:
    called = [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_use"]
    called[-1]["name"] = "nowhere"


def without_result(body: Body) -> None:
    at = next(n for n, m in enumerate(body["messages"]) if m["content"][0]["type"] == "tool_result")
    body["messages"][at]["content"] = [{"type": "text", "text": "no result"}]


def without_tail(body: Body) -> None:
    body["messages"] = [each for each in body["messages"] if "clear_at" not in each]


def other_summary(body: Body) -> None:
    body["messages"][0]["content"][0]["text"] = "They slept."


def without_marks(body: Body) -> None:
    blocks = [b for m in body["messages"] for b in m["content"]]
    for block in (*body["tools"], *body["system"], *blocks):
        block.pop("cache_control", None)


def spaced(body: Body) -> None:
    body["messages"][-2]["content"][-1]["text"] += " "


def unread(record: RequestRecord) -> RequestRecord:
    usage = structs.replace(record.usage, cache_read=0)
    body = json.loads(record.body)
    in_history(body)
    return structs.replace(record, usage=usage, body=json.dumps(body).encode())


Fault = Callable[[Body], None]
FAULTS: list[tuple[str, int, str, Fault | None]] = [
    ("V1", 4, "tools[0]", in_tools),
    ("V2", 3, "system[0]", in_system),
    ("V3", 4, "messages[0].content[0]", in_history),
    ("V4", 2, "messages[4].content[0]", too_many_marks),
    ("V5", 3, "messages[2].content[0]", unknown_name),
    ("V6", 2, "messages[2].content[0]", without_result),
    ("V7", 6, "messages[0].content[1]", without_tail),
    ("V8", 8, "messages[7].content[0].text", spaced),
    ("V9", 8, "messages[0].content[0]", other_summary),
    ("V10", 4, "messages[10].content[0]", without_marks),
    ("V11", 2, "messages[0].content[0]", None),
]


def judge_again(run: Run, records: list[RequestRecord]) -> list[tuple[str, int, str]]:
    route = resolve(CLAUDE, base_url="http://127.0.0.1")
    again = judged(
        run.scenario, route, "auto", records, run.sessions, run.captures, {route.name: route}
    )
    return [(each.rule, each.n, each.path) for each in broken(again)]


@pytest.mark.parametrize(("rule", "n", "path", "fault"), FAULTS, ids=[each[0] for each in FAULTS])
def test_its_target_notices_a_fault_at_its_request_and_path(
    whole: Run, rule: str, n: int, path: str, fault: Fault | None
) -> None:
    records = list(whole.records)
    if fault is None:
        records[n - 1] = unread(records[n - 1])
    else:
        body = json.loads(records[n - 1].body)
        fault(body)
        records[n - 1] = structs.replace(records[n - 1], body=json.dumps(body).encode())
    found = judge_again(whole, records)
    assert (rule, n, path) in found, [each for each in found if each[0] == rule]


def test_v12_the_strict_lab_refuses_a_request_that_the_provider_would_refuse(whole: Run) -> None:
    async def send(body: bytes) -> Run:
        async with open_lab() as lab:
            capture = whole.captures[1]
            told = {k: v for k, v in capture.headers.items() if k.startswith("anthropic-")}
            headers = {**told, "x-api-key": "any", "content-type": "application/json"}
            async with httpx2.AsyncClient(headers=headers) as client:
                await client.post(f"{lab.url}{capture.path}", content=body)
            taken = structs.replace(lab.captures[0], n=1)
        route = resolve(CLAUDE, base_url="http://127.0.0.1")
        captures = [whole.captures[0], taken, *whole.captures[2:]]
        return judged(
            whole.scenario,
            route,
            "auto",
            whole.records,
            whole.sessions,
            captures,
            {route.name: route},
        )

    assert broken(anyio.run(send, whole.captures[1].body)) == []
    body = json.loads(whole.captures[1].body)
    without_result(body)
    found = broken(anyio.run(send, json.dumps(body).encode()))
    assert [(each.rule, each.n) for each in found] == [("V12", 2)]


def test_every_invariant_is_the_target_of_a_fault() -> None:
    assert {each[0] for each in FAULTS} | {"V12"} == set(INVARIANTS)
    assert set(INVARIANTS) == {f"V{number}" for number in range(1, 13)}


# -- the matrix ---------------------------------------------------------------------------------


def test_the_matrix_holds_every_scenario_route_and_form() -> None:
    every = list(cells())
    assert len(every) == len(bundled()) * len(ROUTES) * 3 == len(set(every))


def test_a_line_names_all_that_is_needed_to_find_it(whole: Run) -> None:
    records = list(whole.records)
    body = json.loads(records[3].body)
    in_tools(body)
    records[3] = structs.replace(records[3], body=json.dumps(body).encode())
    route = resolve(CLAUDE, base_url="http://127.0.0.1")
    again = judged(
        "whole", route, "auto", records, whole.sessions, whole.captures, {route.name: route}
    )
    (first, *_) = [each for each in broken(again) if each.rule == "V1"]
    told = line(Cell("whole", CLAUDE, "auto"), first)
    assert told == (
        f"whole | {CLAUDE} | auto | request 4 | V1 | tools[0] | "
        "the declared tools differ from the request before"
    )


@pytest.mark.parametrize("route", SHORT)
@pytest.mark.parametrize("scenario", ["empty-head", "flap", "prompt-and-tool", "redefine", "tail"])
def test_short_scenarios_hold_on_each_kind_of_route(scenario: str, route: str) -> None:
    for cell in cells([scenario], [route]):
        run = anyio.run(partial(run_scenario, find(scenario), route, tool_changes=cell.form))
        assert [line(cell, each) for each in broken(run)] == []
