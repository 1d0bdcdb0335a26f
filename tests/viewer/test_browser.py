"""The page in a real browser: talking, switching, approving, reading; by keys and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from msgspec import Raw
from tests.viewer.browser import Watch, chromium, served
from tests.viewer.staged import long_log, stored

from addendum.log.approvals import ToolRedefined
from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    CompactionFailed,
    DeveloperMessage,
    RequestHeader,
    SessionStart,
    StepStart,
    ToolResult,
    ToolSwitch,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.subagents import SubagentStarted
from addendum.log.values import (
    Call,
    Config,
    Header,
    Media,
    ToolAddition,
    ToolRemoval,
    ToolSchema,
)
from addendum.stores import open_store

EXECUTABLE = chromium()

from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

EVIL_ID = "x'><img src=x onerror=window.hit=8><b id=main>"
CHAT, CLAUDE = "openai-chat:gpt-4.1", "anthropic:claude-opus-5-5"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
Open = Callable[..., Any]

HOSTILE = """<script>window.hit = 1</script><img src=x onerror="window.hit = 2">
<svg onload="window.hit = 3"><style>body { display: none }</style></svg>
[link](javascript:window.hit=4) ![pic](https://evil.example/x.png) \x1b[31mred
<link rel=stylesheet href=https://evil.example/x.css><base href=https://evil.example/>"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("viewer")

    async def fill() -> None:
        store = await open_store(f"sqlite:///{folder / 'viewer.db'}")
        await stored(store, long_log(120))
        await stored(store, pictured())
        await stored(store, hostile())
        await store.aclose()

    anyio.run(fill)
    with served(folder, "--instructions", "Be brief. " * 300) as url:
        yield url


@pytest.fixture(scope="module")
def browser(address: str) -> Generator[Browser]:
    # Behind the server: from here on an event loop of playwright's runs in this thread.
    with sync_playwright() as playwright:
        expect.set_options(timeout=20_000)
        made = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def tab(browser: Browser, address: str) -> Open:
    """Open a page; when the test is done nothing may have gone wrong in it."""

    @contextmanager
    def opened(path: str = "/", **how: Any) -> Generator[Page]:
        options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **how}
        context = browser.new_context(base_url=address, **options)
        page = context.new_page()
        page.set_default_timeout(15_000)
        watch = Watch(page)
        page.goto(path)
        try:
            yield page
        finally:
            context.close()
        assert watch.wrong == []

    return opened


def pictured() -> SessionLog:
    """A log with a picture among the results, and with one that only says that it is one."""
    log = SessionLog("pictures")
    log.append(SessionStart("pictures"))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    log.append(UserMessage(1, "draw"))
    call = Call("c", "draw", "{}")
    log.append(AssistantMessage(1, 1, CLAUDE, "anthropic_messages", calls=(call,)))
    files = (Media("image/png", PIXEL), Media("image/png", "PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"))
    log.append(ToolResult(1, 1, "c", "draw", "drawn", media=files))
    return log


def hostile() -> SessionLog:
    """A log in which everything that has a name is made to break out of it."""
    evil = '"><img src=x onerror=window.hit=6><svg onload=window.hit=7>\x1b]0;x\x07<!--'
    log = SessionLog(EVIL_ID)
    log.append(SessionStart(EVIL_ID))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    log.append(UserMessage(1, HOSTILE, tail=evil))
    schema = Raw(b'{"type":"object"}')
    tool = ToolSchema(evil, evil, schema)
    config = Config("anthropic", "claude-opus-5-5", max_tokens=100)
    head = log.append(RequestHeader(Header(config, (tool,)), "initial")).seq
    log.append(DeveloperMessage(1, 1, (ToolAddition(evil), ToolRemoval("gone")), head))
    log.append(ToolSwitch("server", evil, True, by="user"))
    log.append(CacheBreak("redefinition", CLAUDE, "tools", evil))
    call = Call(evil, evil, HOSTILE, origin="dispatched")
    said = {"reasoning": HOSTILE, "text": HOSTILE, "calls": (call,)}
    log.append(AssistantMessage(1, 1, CLAUDE, "anthropic_messages", **said))
    log.append(SubagentStarted(1, 1, evil, EVIL_ID, (evil,)))
    log.append(ToolRedefined(evil, "a", "b", "keep"))
    log.append(ToolResult(1, 1, evil, evil, HOSTILE, is_error=True, code=evil))
    log.append(CompactionFailed(HOSTILE))
    return log


def begin(page: Page, text: str, route: str = CLAUDE) -> str:
    """Start a conversation by hand; return its path."""
    page.goto("/")
    page.fill("[name=route]", route)
    page.fill("#message", text)
    page.press("#message", "Enter")
    page.wait_for_url("**/s/*")
    expect(page.locator(".turn .bar")).to_have_count(1)
    return "/" + page.url.split("/", 3)[3]


def say(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def test_a_server_is_switched_on_and_a_dispatched_call_approved(tab: Open) -> None:
    with tab() as page:
        url = begin(page, "Hello there. " * 120, CHAT)
        group = page.locator("[data-server=git]")
        expect(group.locator(".cost")).to_contain_text("If switched on:")
        expect(group.locator(".cost")).to_contain_text("0 of")
        group.get_by_role("switch").click()
        expect(group.get_by_role("switch")).to_have_attribute("aria-checked", "true")
        expect(group.locator("summary")).to_contain_text("12 tools")
        say(page, '/call git__git_add {"repo_path": ".", "files": ["notes.txt"]}')
        asked = page.locator("form.ask")
        expect(asked).to_contain_text("git__git_add")
        expect(page.locator("#send")).to_be_disabled()
        asked.get_by_role("button", name="Approve").first.click()
        call = page.locator("details.call")
        expect(call).to_contain_text("git__git_add")
        expect(call).to_contain_text("through call_tool")
        expect(page.locator(".turn").nth(1).locator(".bar")).to_contain_text("from cache")
        notice = page.locator(".node.notice")
        expect(notice).to_contain_text("Tools updated")
        notice.locator("summary").click()
        expect(notice).to_contain_text("Added: ")
        # The same change stands in the ledger, and the request that told of it can be read.
        page.get_by_role("link", name="Trajectory").click()
        expect(page.locator(".rows .notice").first).to_contain_text("Tools updated")
        page.locator("li[data-number='2'] .kind").click()
        inspector = page.locator("#inspector")
        expect(inspector).to_contain_text("Request 2")
        expect(inspector.locator(".s-added").first).to_be_visible()
        assert "request=2" in page.url
        inspector.get_by_role("link", name="Difference with request 1").click()
        expect(page.locator("h1")).to_have_text("Request 1 → 2")
        expect(page.locator(".pair .new").first).to_be_in_viewport()
        assert page.url.endswith(f"{url}/diff/1/2")


def test_a_switch_to_chinese_changes_words_and_no_names(tab: Open) -> None:
    with tab() as page:
        url = begin(page, "Hello. " * 200)
        page.locator("[data-switch=time]").click()
        expect(page.locator("[data-switch=time]")).to_have_attribute("aria-checked", "true")
        expect(page.locator("[data-server=time] summary")).to_contain_text("2 tools")
        say(page, "and now?")
        notice = page.locator(".node.notice")
        expect(notice).to_contain_text("Tools updated 2 added")
        page.get_by_role("link", name="中文").click()
        expect(page.locator("html")).to_have_attribute("lang", "zh")
        expect(notice).to_contain_text("工具已更新 新增 2 个")
        notice.locator("summary").click()
        expect(notice).to_contain_text("已添加：time__convert_time, time__get_current_time")
        assert "lang=" not in page.url
        page.goto(f"{url}/trajectory")
        expect(page.locator(".turn-rule").first).to_have_text("第 1 轮")


def test_a_browser_that_prefers_chinese_gets_it(tab: Open) -> None:
    with tab("/", locale="zh-CN") as page:
        expect(page.locator("h1")).to_have_text("想聊些什么？")


def test_links_lead_back_to_event_request_segment_and_difference(tab: Open) -> None:
    with tab() as page:
        url = begin(page, "Hello. " * 100)
        page.locator(".item .perma").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/trajectory?at=*")
        here = page.url
        pointed = page.locator(".rows > li.pointed")
        expect(pointed).to_contain_text("Hello.")
        page.reload()
        assert page.url == here
        expect(pointed).to_be_in_viewport()
        expect(page.locator("#inspector")).to_contain_text("Event ")
        page.goto(f"{url}/requests/1")
        page.locator(".segment summary").last.click()
        link = page.locator(".segment details[open] .path a").get_attribute("href")
        assert link is not None
        page.goto("/")
        page.goto(link)
        expect(page.locator(".segment details[open] pre")).to_contain_text("Hello.")


RENEWED = """async () => {
  const script = document.querySelector("script[type=module]").src;
  const { renew } = await import(new URL("dom.js", script));
  const panel = document.querySelector("[data-panel]");
  renew(panel, panel.innerHTML);
}"""


@pytest.mark.parametrize("by", ["mouse", "keys"])
def test_a_panel_that_is_renewed_under_a_pressed_button_loses_no_click(tab: Open, by: str) -> None:
    with tab() as page:
        begin(page, "Hello.")
        switch = page.locator("[data-switch=time]")
        expect(switch).to_be_enabled()
        switch.hover()
        switch.focus()
        page.mouse.down() if by == "mouse" else page.keyboard.down("Space")
        page.evaluate(RENEWED)
        page.mouse.up() if by == "mouse" else page.keyboard.up("Space")
        expect(switch).to_have_attribute("aria-checked", "true")


def test_everything_is_reached_by_keys(tab: Open) -> None:
    with tab() as page:
        keys = page.keyboard
        # The message has the focus from the start; the route stands behind it.
        keys.type("By keys alone. " * 80)
        keys.press("Enter")
        page.wait_for_url("**/s/*")
        expect(page.locator(".turn .bar")).to_have_count(1)
        keys.press("Escape")
        page.locator("body").press("j")
        expect(page.locator("#turns .item:focus")).to_have_count(1)
        keys.press("w")
        expect(page.locator("#message")).to_be_focused()
        keys.type("again")
        keys.press("Enter")
        expect(page.locator(".turn .bar")).to_have_count(2)
        switch = page.locator("[data-switch=time]")
        expect(switch).to_be_enabled()
        switch.focus()
        keys.press("Space")
        expect(switch).to_have_attribute("aria-checked", "true")
        expect(page.locator("[data-switch=time]")).to_be_enabled()
        keys.press("?")
        expect(page.locator("#keys")).to_be_visible()
        keys.press("Escape")
        expect(page.locator("#keys")).to_be_hidden()
        keys.press("/")
        expect(page.locator("[data-filter]")).to_be_focused()
        keys.press("Escape")
        keys.press("d")
        page.wait_for_url("**/trajectory")
        keys.press("k")
        keys.press("[")
        expect(page.locator(".rows > li:focus .turn-rule")).to_have_count(1)
        for _ in range(12):
            if page.locator(".rows > li:focus[data-number]").count():
                break
            keys.press("j")
        keys.press("Enter")
        expect(page.locator("#inspector")).to_contain_text("Segments in cache order")
        keys.press("d")
        page.wait_for_url("**/diff/*/*")
        keys.press("j")
        expect(page.locator(".pairs > li:focus")).to_have_count(1)


def test_the_ledger_follows_until_somebody_scrolls_up(tab: Open) -> None:
    with tab() as page:
        url = begin(page, "Hello. " * 60)
        for number in range(12):
            say(page, f"message {number}")
            expect(page.locator(".turn .bar")).to_have_count(number + 2)
        with tab(f"{url}/trajectory") as reader:
            last = reader.locator(".rows > li").last
            expect(last).to_be_in_viewport()
            say(page, "while you look")
            expect(reader.locator(".rows")).to_contain_text("while you look")
            expect(reader.locator(".rows > li").last).to_be_in_viewport()
            expect(reader.locator("#follow")).to_be_hidden()
            reader.locator("#ledger").evaluate("place => { place.scrollTop = 0; }")
            expect(reader.locator("#follow")).to_be_visible()
            say(page, "while you look away")
            expect(reader.locator(".rows")).to_contain_text("while you look away")
            assert reader.locator("#ledger").evaluate("place => place.scrollTop") < 50
            reader.locator("#follow").click()
            expect(reader.locator(".rows > li").last).to_be_in_viewport()


def test_a_long_session_is_read_from_its_end_to_its_beginning(tab: Open) -> None:
    with tab("/s/long/trajectory") as page:
        expect(page.locator(".rows > li").last).to_be_in_viewport()
        before = page.locator(".rows > li").count()
        page.locator("#ledger").evaluate("place => { place.scrollTop = 0; }")
        page.wait_for_function(
            "count => document.querySelectorAll('.rows > li').length > count", arg=before
        )
        page.fill("[name=q]", "Question 7:")
        page.press("[name=q]", "Enter")
        expect(page.locator(".rows > li")).to_have_count(1)


@pytest.mark.parametrize(
    "path", ["", "/trajectory", "/tools", "/usage", "/requests/3", "/diff/2/3"]
)
def test_a_phone_shows_every_page_without_scrolling_sideways(tab: Open, path: str) -> None:
    phone = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}
    with tab(f"/s/long{path}", **phone) as page:
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0
        page.locator("[data-opens=list]").click()
        expect(page.locator("#list")).to_be_in_viewport()
        page.keyboard.press("Escape")
        expect(page.locator("#list")).not_to_be_in_viewport()
        if path == "":
            expect(page.locator("[data-server=time]")).to_have_count(1)
            page.locator("[data-opens=panel]").click()
            expect(page.locator("[data-switch=time]")).to_be_in_viewport()


def test_what_is_edited_is_sent_again_and_a_fork_goes_its_own_way(tab: Open) -> None:
    with tab() as page:
        begin(page, "first version")
        page.locator(".said.user").hover()
        page.get_by_role("button", name="Edit and send again").click()
        page.locator(".editor textarea").fill("second version")
        page.get_by_role("button", name="Send again", exact=True).click()
        expect(page.locator(".said.user")).to_have_count(1)
        expect(page.locator(".said.user")).to_contain_text("second version")
        expect(page.locator(".turn .bar")).to_have_count(1)
        parent = page.url
        page.locator(".said.user").hover()
        page.get_by_role("button", name="Fork from here").click()
        page.wait_for_function("address => location.href !== address", arg=parent)
        expect(page.locator("#turns")).to_contain_text("taken over from")


def test_hostile_content_runs_nothing_and_loads_nothing(tab: Open) -> None:
    with tab() as page:
        url = begin(page, HOSTILE)
        page.locator("[data-switch=time]").click()
        expect(page.locator("[data-switch=time]")).to_have_attribute("aria-checked", "true")
        say(page, '/call time__get_current_time {"timezone": "<img src=x onerror=window.hit=5>"}')
        asked = page.locator("form.ask")
        expect(asked.or_(page.locator("details.call")).first).to_be_visible()
        if asked.count():
            asked.get_by_role("button", name="Approve").first.click()
        expect(page.locator(".turn .bar")).to_have_count(2)
        for path in ("", "/trajectory", "/requests/1", "/tools", "/usage", "/diff/1/2", "/event/3"):
            page.goto(url + path)
            assert page.evaluate("window.hit") is None
            assert page.locator("main img, main iframe, main style, main script").count() == 0
            expect(page.locator("main")).to_be_visible()


def test_a_picture_of_a_result_is_shown_and_what_is_none_is_a_file(tab: Open) -> None:
    with tab("/s/pictures") as page:
        page.locator("details.call > summary").click()
        picture = page.locator("img.medium")
        expect(picture).to_have_count(1)
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("naturalWidth", 1)
        expect(page.get_by_role("link", name="File of the result (image/png)")).to_be_visible()


def test_two_tabs_show_the_same_and_a_reload_keeps_what_waits(tab: Open) -> None:
    with tab() as page, tab() as other:
        url = begin(page, "Hello there.")
        page.locator("[data-switch=git]").click()
        expect(page.locator("[data-server=git] summary")).to_contain_text("12 tools")
        other.goto(url)
        expect(other.locator("[data-switch=git]")).to_have_attribute("aria-checked", "true")
        say(page, '/call git__git_add {"repo_path": ".", "files": ["notes.txt"]}')
        expect(page.locator("form.ask")).to_be_visible()
        expect(other.locator("form.ask")).to_be_visible()
        page.reload()
        expect(page.locator("form.ask")).to_be_visible()
        expect(page.locator("#send")).to_be_disabled()
        other.locator("form.ask").get_by_role("button", name="Approve").first.click()
        for each in (page, other):
            expect(each.locator("form.ask")).to_have_count(0)
            expect(each.locator("details.call")).to_contain_text("git__git_add")
            expect(each.locator("#send")).to_be_enabled()
        # The list beside tells that the conversation went on.
        expect(page.locator("[data-list] [aria-current]")).not_to_contain_text("11 events")


def test_names_that_break_out_stay_names_also_in_a_file(tab: Open, tmp_path: Path) -> None:
    with tab("/") as page:
        url = f"/s/{quote(EVIL_ID, safe='')}"
        paths = ["/", url, f"{url}/trajectory?at=9", f"{url}/tools", f"{url}/usage"]
        for path in [*paths, f"{url}/event/9", f"{url}/trajectory?q=img"]:
            page.goto(path)
            page.evaluate(
                "for (const each of document.querySelectorAll('details')) each.open = true"
            )
            assert page.evaluate("window.hit") is None, path
            assert page.locator("main :is(img, iframe, style, script, b)").count() == 0, path
            assert page.locator("#main").count() == 1
        page.goto(url)
        expect(page.locator("details.call")).to_contain_text("<img src=x onerror=window.hit=6>")
        # A file from here is opened by others: what is in it does nothing there either.
        exported = page.context.request.get(f"{url}/export").text()
        page.goto("about:blank")
        page.set_content(exported)
        assert page.evaluate("window.hit") is None
        assert page.locator(":is(img, iframe, script, b)").count() == 0
        assert page.locator("style").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_error_and_an_exported_file_have_no_serious_faults_of_access(
    browser: Browser, address: str, tmp_path: Path, theme: Any
) -> None:
    context = browser.new_context(base_url=address, color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    assert page.goto("/s/nobody") is not None
    expect(page.get_by_role("heading")).to_have_text("There is no such page")
    assert serious(page) == []
    url = begin(page, "Hello **there**. `code`\n\n- one\n\n```\nx\n```\n")
    file = tmp_path / "exported.html"
    file.write_text(context.request.get(f"{url}/export").text(), "utf-8")
    watch = Watch(page)
    page.goto(file.as_uri())
    expect(page.locator(".turn").last).to_be_attached()
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).position") == "sticky"
    assert serious(page) == []
    context.close()
    assert watch.wrong == [f"request: {file.as_uri()}"]


def serious(page: Page) -> list[str]:
    """Return what keeps people from using a page, as axe sees it."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{page.url}: {each['id']} {each['help']} {[node['target'] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_serious_faults_of_access(tab: Open, theme: str) -> None:
    with tab("/", color_scheme=theme, bypass_csp=True) as page:
        url = begin(page, "Hello **there**. `code`\n\n- one\n\n```\nx\n```\n" * 20)
        page.locator("[data-switch=time]").click()
        expect(page.locator("[data-server=time] summary")).to_contain_text("2 tools")
        say(page, '/call time__get_current_time {"timezone": "Europe/Berlin"}')
        expect(page.locator("details.call").or_(page.locator("form.ask")).first).to_be_visible()
        faults: list[str] = []
        paths = ["/", url, f"{url}/trajectory", f"{url}/trajectory?request=1&at=6", "/s/long/tools"]
        paths += ["/s/long/usage", "/s/long/diff/2/3", "/s/long/requests/4", "/s/long"]
        for path in paths:
            page.goto(path)
            if path.count("/") == 2:
                expect(page.locator("[data-switch=git]")).to_be_visible()
            faults += serious(page)
        assert faults == []


def test_less_motion_and_forced_colours_keep_the_page_whole(tab: Open) -> None:
    with tab("/s/long", reduced_motion="reduce", forced_colors="active") as page:
        expect(page.locator("h1")).to_have_text(re.compile("Question 1"))
        expect(page.locator(".strip").first).to_be_visible()
