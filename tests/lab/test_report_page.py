"""The page of `addendum demo --report`: whole in itself, and true to the figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import anyio
import pytest
from msgspec import structs
from tests.cli.commands import call, complaint
from tests.viewer.browser import chromium

from addendum.lab.report import Run
from addendum.lab.report_page import page
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find

DEEPSEEK = "deepseek:deepseek-flash"


class Page(HTMLParser):
    """What a page is made of, and whether its elements are closed as they should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


@pytest.fixture(scope="module")
def pair() -> tuple[Run, Run]:
    async def play() -> tuple[Run, Run]:
        scenario = find("redefine")
        ours = await run_scenario(scenario, DEEPSEEK)
        return ours, await run_scenario(scenario, DEEPSEEK, tool_changes="rebind")

    return anyio.run(play)


def test_nothing_on_the_page_can_be_fetched_or_run(pair: tuple[Run, Run]) -> None:
    text = page([pair])
    found = Page(text)
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "form", "a", "base", "image"}
    names = {name for _, attributes in found.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "href", "action", "srcset", "xlink:href", "style"}
    assert "url(" not in text and "@import" not in text
    addresses = set(re.findall(r"https?://[^\s\"<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    policy = next(a["content"] for t, a in found.elements if a.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_each_bar_is_as_high_as_its_tokens(pair: tuple[Run, Run]) -> None:
    found = Page(page([pair]))
    charts = [attributes for tag, attributes in found.elements if tag == "svg"]
    assert len(charts) == 2 and all(each["role"] == "img" for each in charts)
    rows = [row for run in pair for row in run.report.requests]
    titles = [text for tag, text in found.texts if tag == "title" and text.startswith("request ")]
    assert [int(each.split()[1].rstrip(":")) for each in titles] == [row.n for row in rows]
    for row, title in zip(rows, titles, strict=True):
        assert f" {row.cache_read:,} read" in title
        assert ("miss: " in title) == (row.miss is not None)
    heights: dict[str, float] = {}
    for tag, attributes in found.elements:
        if tag == "rect":
            name = attributes["class"] or ""
            heights[name] = heights.get(name, 0) + float(attributes["height"] or 0)
    most = max(row.prompt_tokens or 0 for row in rows)
    read = sum(row.cache_read or 0 for row in rows)
    whole = sum(row.prompt_tokens or 0 for row in rows)
    assert heights["read"] == pytest.approx(170 * read / most, abs=1)
    assert sum(heights.values()) == pytest.approx(170 * whole / most, abs=2)
    misses = sum(row.miss is not None for row in rows)
    assert sum(attributes.get("class") == "miss" for _, attributes in found.elements) == misses > 0


def test_the_table_and_the_causes_tell_what_the_runs_say(pair: tuple[Run, Run]) -> None:
    text = page([pair], "it has no wheel here & there")
    cells = [data for tag, data in Page(text).texts if tag == "td"]
    for run in pair:
        totals = run.report.totals
        assert f"{totals.prompt_tokens - totals.cache_read:,}" in cells
    items = [data for tag, data in Page(text).texts if tag == "li"]
    reasons = {row.miss.reason for run in pair for row in run.report.requests if row.miss}
    assert {item.partition(":")[0] for item in items} == reasons
    assert "No real engine: it has no wheel here &amp; there" in text
    assert "prefers-color-scheme: dark" in text and 'lang="en"' in text


def test_foreign_names_are_text(pair: tuple[Run, Run]) -> None:
    hostile = "<script>alert(1)</script>\"'&"
    runs = [tuple(structs.replace(run, scenario=hostile, route=hostile) for run in pair)]
    found = Page(page(runs))
    assert "script" not in {tag for tag, _ in found.elements}
    assert hostile in "".join(data for _, data in found.texts)


def test_the_demo_writes_it_beside_its_table(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    shown = call(
        "demo", "--scenario", "empty-head", "--route", DEEPSEEK, "--report", str(path)
    ).stdout
    assert shown.splitlines()[-1] == f"written: {path}"
    assert Page(path.read_text("utf-8"))
    missing = str(tmp_path / "no" / "page.html")
    assert "there is no folder" in complaint("demo", "--route", DEEPSEEK, "--report", missing)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_charts_and_asks_for_nothing(
    pair: tuple[Run, Run], tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    executable = chromium()
    from playwright.sync_api import sync_playwright

    file = tmp_path / "page.html"
    file.write_text(page([pair]), "utf-8")
    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        charts = shown.locator("svg").evaluate_all(DRAWN)
        colours = shown.evaluate(COLOURS)
        # Only the tables may be wider than a phone, and these scroll in their own place.
        wide = shown.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert said == [] and asked == [file.as_uri()]
    assert len(charts) == 2 and wide == 390
    for chart, run in zip(charts, pair, strict=True):
        assert chart["bars"] == len(run.report.requests)
        assert 300 < chart["wide"] <= 390 and chart["outside"] == 0
    # Three different colours of bars, and text that stands out from the page.
    assert len({colours["read"], colours["write"], colours["fresh"]}) == 3
    assert abs(light(colours["text"]) - light(colours["back"])) > 150
    assert (light(colours["back"]) < 60) == (scheme == "dark")


def light(colour: str) -> float:
    """Return how light a colour such as `rgb(20, 23, 26)` is, from 0 to 255."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


DRAWN = """charts => charts.map(chart => {
  const around = chart.getBoundingClientRect();
  const bars = [...chart.querySelectorAll("rect")].map(bar => bar.getBoundingClientRect());
  return {
    bars: [...chart.querySelectorAll("g")].filter(
      each => each.getBoundingClientRect().height > 1).length,
    wide: around.width,
    outside: bars.filter(bar => bar.left < around.left || bar.right > around.right + 1
      || bar.top < around.top || bar.bottom > around.bottom).length,
  };
})"""

COLOURS = """() => {
  const made = (name) => {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("class", name);
    document.querySelector("svg").append(rect);
    return getComputedStyle(rect).fill;
  };
  const body = getComputedStyle(document.body);
  return { read: made("read"), write: made("write"), fresh: made("fresh"),
           text: body.color, back: body.backgroundColor };
}"""
