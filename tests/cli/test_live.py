from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from click.testing import CliRunner, Result
from tests.cli.commands import complaint

from addendum.app.main import main
from addendum.cli import live
from addendum.cli.live_run import SCENARIO, estimated, live_scenario
from addendum.lab.scenario import Scenario
from addendum.lab.scenario_file import find
from addendum.lab.script import Entry, Script
from addendum.lab.server import Lab, open_lab
from addendum.routes import resolve

CLAUDE = "anthropic:claude-opus-5-5"
MARKERS = ("aaa111", "bbb222")
REQUESTS = 11
"""Answers that the scenario has for one conversation."""

pytestmark = pytest.mark.anyio


class Place:
    """A lab in a thread of its own, which plays both conversations, and the program beside it."""

    def __init__(self, lab: Lab, portal: BlockingPortal) -> None:
        self.lab = lab
        self.portal = portal

    def demo(
        self,
        *arguments: str,
        route: str = CLAUDE,
        code: int = 0,
        answer: str | None = None,
        key: str | None = None,
    ) -> Result:
        base_url = self.lab.base_url(route.partition(":")[0])
        limit = () if "--max-cost" in arguments else ("--max-cost", "1")
        result = CliRunner().invoke(
            main,
            ["demo", "--live", "--route", route, "--base-url", base_url, *limit, *arguments],
            input=answer,
            env={"ANTHROPIC_API_KEY": key},
        )
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.lab.captures]


def scenarios() -> list[Scenario]:
    return [find(SCENARIO, {"marker": marker}) for marker in MARKERS]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Generator[Place]:
    markers = iter(MARKERS)
    monkeypatch.setattr(live, "new_marker", lambda: next(markers))
    script = Script(tuple(step for each in scenarios() for step in each.script().steps))
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(open_lab(script)) as lab,
    ):
        yield Place(lab, portal)


def rows(shown: str) -> dict[str, list[str]]:
    found = [line for line in shown.splitlines() if line.startswith("  ")]
    return {line[2:27].strip(): line[27:].split() for line in found if line[2] != " "}


# -- what is measured -----------------------------------------------------------------------


def test_ours_stands_beside_rebinding_as_the_endpoint_reported(place: Place) -> None:
    shown = place.demo("--yes").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    headings = [line for line in lines if line.startswith(f"{SCENARIO}: measured at {CLAUDE}, ")]
    assert len(headings) == 1 and re.search(r", \d{4}-\d\d-\d\d$", headings[0])
    assert "A server on this machine answered: these are not a provider's figures." in lines
    # share %, expected %, ceiling %, tokens not read, misses, undeclared ones
    ours, rebinding = rows(shown)["in-history, by value"], rows(shown)["rebinding"]
    assert ours[2:6] == ["100.0", "%", "100.0", "%"] and ours[-2:] == ["0", "0"]
    assert float(rebinding[2]) < 95 and rebinding[4:6] == ["100.0", "%"]
    assert int(rebinding[-2]) >= 3 and rebinding[-1] == "0"
    usages = [each.usage for each in place.lab.captures]
    assert len(usages) == 2 * REQUESTS
    for row, part in ((ours, usages[:REQUESTS]), (rebinding, usages[REQUESTS:])):
        unread = sum(each["input_tokens"] + each["cache_creation_input_tokens"] for each in part)
        assert row[6] == f"{unread:,}"
    assert re.search(r"^cost by list prices: ours \$0\.\d+, rebinding \$0\.\d+$", shown, re.M)
    assert "All rules hold." in lines


def test_each_conversation_is_unlike_any_other(place: Place) -> None:
    place.demo("--yes")
    bodies = place.bodies()
    for marker, other, part in (
        (*MARKERS, bodies[:REQUESTS]),
        (*MARKERS[::-1], bodies[REQUESTS:]),
    ):
        for body in part:
            system, messages = json.loads(body)["system"], json.loads(body)["messages"]
            assert [marker in each["text"] for each in system] == [True, True]
            assert marker in json.dumps(messages[0]) and other not in body
    # So nothing can be read by the first request of either.
    assert [place.lab.captures[at].usage["cache_read_input_tokens"] for at in (0, REQUESTS)] == [
        0,
        0,
    ]


def test_markers_are_random() -> None:
    assert len({live.new_marker() for _ in range(100)}) == 100


def test_nothing_depends_on_which_calls_are_made(place: Place) -> None:
    place.lab.script = None
    shown = place.demo("--yes").stdout
    # The free model calls nothing: a request a turn.
    assert len(place.lab.captures) == 12
    assert rows(shown)["in-history, by value"][-2:] == ["0", "0"]
    assert int(rows(shown)["rebinding"][-2]) >= 3


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ("anthropic:claude-sonnet-4-6", "dispatch"),
        ("deepseek:deepseek-flash", "dispatch"),
        ("openai-chat:gpt-4.1", "dispatch"),
    ],
)
def test_other_routes_are_measured_alike(place: Place, route: str, told: str) -> None:
    shown = place.demo("--yes", route=route).stdout
    assert rows(shown)[told][4:6] == ["100.0", "%"]
    assert len(place.lab.captures) == 2 * REQUESTS


def test_what_is_not_reported_stays_unknown(place: Place) -> None:
    route = "compatible:some-model"
    shown = place.demo("--yes", route=route).stdout
    assert "What they cost is not known, so --max-cost cannot stop it." in shown
    for row in (rows(shown)["dispatch"], rows(shown)["rebinding"]):
        assert row == ["-", "-", "-", "-", "0", "0"]
    assert "cost by list prices: ours an unknown sum, rebinding an unknown sum" in shown
    assert f"ours: {REQUESTS} requests did not report all figures and are in no sum" in shown


def test_json_stands_alone_and_the_price_beside_it(place: Place) -> None:
    result = place.demo("--yes", "--json")
    found = json.loads(result.stdout)
    assert "About $0." in result.stderr
    assert found["measured"]["route"] == CLAUDE and found["measured"]["loopback"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["measured"]["date"])
    assert [each["strategy"] for each in found["runs"]] == ["in-history", "rebind"]
    assert not any(each["simulated"] for each in found["runs"])
    assert found["stopped"] is None
    reported = [each["usage"] for run in found["runs"] for each in run["requests"]]
    for figures, capture in zip(reported, place.lab.captures, strict=True):
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            assert figures[name] == capture.usage[name]
    assert 0 < found["cost"]["ours"] < found["cost"]["rebinding"] < 1
    # Rehearsed in the lab and played in the lab: the estimate is what was used.
    assert found["estimate"]["requests"] == 2 * REQUESTS
    assert sum(found["cost"].values()) == pytest.approx(found["estimate"]["cost"], rel=0.1)


# -- what is kept ---------------------------------------------------------------------------


def test_a_dated_file_holds_figures_and_neither_texts_nor_keys(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, key = tmp_path / "results", "sk-not-to-be-seen"
    shown = place.demo("--yes", "--keep", str(folder), key=key).stdout
    (file,) = folder.iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-anthropic-claude-opus-5-5\.json", file.name)
    assert f"Kept in {file}" in shown
    text = file.read_text("utf-8")
    found = json.loads(text)
    assert len(found["runs"]) == 2 and found["runs"][0]["totals"]["requests"] == REQUESTS
    said = [each.result for tool in scenarios()[0].servers for each in tool.tools]
    said += [step.user for step in scenarios()[0].script().steps]
    said += ["harbour", "berth", *MARKERS, key]
    assert not [each for each in said if each in text]
    # What is there stays.
    markers = iter(MARKERS)
    monkeypatch.setattr(live, "new_marker", lambda: next(markers))
    place.demo("--yes", "--keep", str(folder))
    assert {each.name for each in folder.iterdir()} == {file.name, f"{file.stem}-2.json"}
    assert file.read_text("utf-8") == text


def test_the_folder_may_be_left_out(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = json.loads(place.demo("--yes", "--json", "--keep").stdout)
    assert found["kept"].startswith("docs/live-results/")
    kept = json.loads(Path(found["kept"]).read_text("utf-8"))
    assert kept == {name: value for name, value in found.items() if name != "kept"}


def test_a_folder_that_cannot_be_used_is_told_before_anything_is_sent(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = place.demo("--yes", "--keep", str(tmp_path / "file"), code=2)
    assert "nothing can be kept in" in result.stderr and result.stderr.count("\n") == 1
    assert not place.lab.captures


# -- the price ------------------------------------------------------------------------------


def test_the_price_is_said_and_asked_for_before_anything_is_sent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_terminal", lambda: True)
    shown = place.demo(answer="n\n", code=1).stdout
    assert re.search(r"about\s+22\s+requests,\s+[\d,]+\s+prompt\s+tokens", shown)
    assert re.search(r"About \$0\.\d+\s+by\s+the\s+list\s+prices\s+of\s+\d{4}-\d\d-\d\d", shown)
    assert "Go on? [y/N]: " in shown and shown.endswith("Nothing was sent.\n")
    assert not place.lab.captures
    markers = iter(MARKERS)
    monkeypatch.setattr(live, "new_marker", lambda: next(markers))
    assert "measured at" in place.demo(answer="y\n").stdout
    assert len(place.lab.captures) == 2 * REQUESTS


@pytest.mark.parametrize(
    ("route", "arguments", "said"),
    [
        (CLAUDE, ("--max-cost", "0.001", "--yes"), "more than --max-cost $0.0010"),
        (CLAUDE, (), "there is no terminal to ask at; add --yes"),
        ("compatible:m", (), "the price of compatible:m is not known"),
    ],
)
def test_what_is_too_dear_or_cannot_be_asked_is_one_line(
    place: Place, route: str, arguments: tuple[str, ...], said: str
) -> None:
    result = place.demo(*arguments, route=route, code=2)
    assert said in result.stderr and result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not place.lab.captures


def test_no_request_leaves_once_the_limit_is_passed(place: Place, tmp_path: Path) -> None:
    # Answers that are far longer than the estimate: $20 a million tokens, 5,000 tokens each.
    place.lab.script = longer(place.lab.script, 20_000)
    result = place.demo("--yes", "--max-cost", "0.15", "--keep", str(tmp_path), code=1)
    assert re.search(r"Stopped: \$0\.\d+ were used, more than --max-cost \$0\.15", result.stdout)
    # Two requests a turn, one of them long: the second turn's answer passed it.
    assert len(place.lab.captures) == 4
    assert "measured at" in result.stdout and "rebinding   " not in result.stdout
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_text("utf-8"))
    assert kept["stopped"] == "max-cost" and kept["cost"]["ours"] > 0.15
    assert [run["totals"]["requests"] for run in kept["runs"]] == [4]


def longer(script: Script | None, size: int) -> Script:
    assert script is not None

    def stretched(entry: Entry) -> Entry:
        text = entry.text.ljust(size, ".") if entry.text else ""
        return msgspec.structs.replace(entry, text=text)

    steps = (
        msgspec.structs.replace(step, entries=tuple(stretched(each) for each in step.entries))
        for step in script.steps
    )
    return Script(tuple(steps))


def test_usage_that_decides_the_price_and_is_missing_stops_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from addendum.cache import spending

    real = spending.price
    monkeypatch.setattr(
        spending, "price", lambda r, u, w: None if u.raw is not msgspec.UNSET else real(r, u, w)
    )
    monkeypatch.setattr(live, "_affordable", lambda *_: None)
    result = place.demo("--yes", code=1)
    assert "Stopped: the endpoint did not report what a request used" in result.stdout
    assert len(place.lab.captures) == 1


# -- what goes wrong ------------------------------------------------------------------------


def test_what_was_measured_is_shown_where_the_endpoint_fails_on_the_way(place: Place) -> None:
    assert place.lab.script is not None
    place.lab.script = Script(place.lab.script.steps[:2])
    shown = json.loads(place.demo("--yes", "--json", code=1).stdout)
    assert shown["stopped"] == "lab_script_error"
    assert [run["totals"]["requests"] for run in shown["runs"]] == [4]


def test_a_request_is_sent_once(place: Place) -> None:
    place.lab.fail_next("anthropic", status=529)
    result = place.demo("--yes", code=2)
    assert len(place.lab.captures) == 1
    assert result.stderr.startswith("addendum: ") and result.stderr.count("\n") == 1


def test_a_missing_key_is_one_line_that_names_the_variable() -> None:
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    arguments = ["demo", "--live", "--route", CLAUDE, "--max-cost", "1", "--yes"]
    result = CliRunner().invoke(main, arguments, env=dict.fromkeys(names))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"addendum: {CLAUDE} needs a key; set ANTHROPIC_API_KEY\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--live", "--max-cost", "1"), "--live measures one route"),
        (("--live", "--route", "a:b", "--route", "c:d", "--max-cost", "1"), "one route"),
        (("--live", "--route", CLAUDE), "say how much it may with --max-cost USD"),
        (("--live", "--route", CLAUDE, "--max-cost", "nan"), "'nan' is no number of US dollars"),
        (("--live", "--route", CLAUDE, "--max-cost", "inf"), "'inf' is no number of US dollars"),
        (("--live", "--route", CLAUDE, "--max-cost", "0"), "'0' is no number of US dollars"),
        (("--live", "--route", CLAUDE, "--max-cost", "1", "--scenario", "flap"), "of its own"),
        (("--live", "--route", "nope:x", "--max-cost", "1"), "no provider 'nope'"),
        (("--max-cost", "1"), "--max-cost goes with --live only"),
        (("--yes",), "--yes goes with --live only"),
        (("--keep", "x"), "--keep goes with --live only"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], said: str) -> None:
    assert said in complaint("demo", *arguments)


# -- the scenario ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [CLAUDE, "anthropic:claude-opus-4-6", "openai-chat:gpt-5.5", "compatible:m"]
)
async def test_the_prompt_is_just_long_enough_for_the_cache(name: str) -> None:
    route = resolve(name, base_url="http://127.0.0.1")
    least = route.cache.minimum or 1024
    size = len(live_scenario(route, "x").instructions.encode())
    # A token of common words has seven bytes at most. Blanks at the end are cut.
    assert 7 * least - 8 <= size <= 8 * least


async def test_a_model_that_the_lab_does_not_know_is_estimated_without_a_cache() -> None:
    route = resolve("anthropic:claude-zeta-9", base_url="http://127.0.0.1")
    found = await estimated(route, [live_scenario(route, each) for each in MARKERS])
    assert found.requests == 2 * REQUESTS and found.prompt > 22 * route.cache.minimum
    assert found.cost is None
    known = resolve(CLAUDE, base_url="http://127.0.0.1")
    priced = await estimated(known, [live_scenario(known, each) for each in MARKERS])
    assert priced.cost is not None and priced.uncached is not None
    assert 0 < priced.cost < priced.uncached


async def test_no_key_leaves_for_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    from addendum.wire.transport import Transport, WireRequest

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-to-be-seen")
    seen: list[str] = []
    real = Transport.stream

    def stream(self: Transport, request: WireRequest, **extra: Any) -> Any:
        seen.append(str(request.headers))
        return real(self, request, **extra)

    monkeypatch.setattr(Transport, "stream", stream)
    route = resolve(CLAUDE)
    await estimated(route, [live_scenario(route, each) for each in MARKERS])
    assert len(seen) == 2 * REQUESTS and not any("sk-not" in each for each in seen)
