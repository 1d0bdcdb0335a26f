"""Take the pictures of the web page that the documentation shows.

Two conversations are played in the lab with real MCP servers; then a browser looks at them.

    python -m scripts.screenshots [FOLDER]      FOLDER is docs/screenshots if left out
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from tests.viewer.browser import chromium, served

CLAUDE, FLASH = "anthropic:claude-opus-5-5", "deepseek:deepseek-flash"
WIDE, PHONE = (1280, 800), (390, 780)

ENGLISH = """
name: release
instructions: {text: "You help a small team to release its software.", tokens: 2400}
servers:
  git: {command: COMMAND_GIT}
  time: {command: COMMAND_TIME}
steps:
  - user: "We want to release on Thursday. What do you need to know from me?"
    model:
      - text: |
          Three things, and then I can draft the plan:

          1. **What changed** since the last release. I can read it from the repository if you
             switch the `git` server on.
          2. **Where your customers are**: that decides the hour.
          3. **Who is on call** afterwards.
  - enable: git
  - user: "git is on now. What changed?"
    model:
      - thinking: |
          The repository server is there now. The log tells what changed; the last few commits are
          enough for a summary.
        calls: [{tool: git__git_log, arguments: {repo_path: REPO, max_count: 4}}]
      - text: |
          Four commits since the last release:

          | commit | what it does |
          | --- | --- |
          | Speed up the import | reads files in parallel |
          | Fix the rounding of totals | a half cent went missing |
          | Say which file is broken | a clear line in place of a trace |
          | Take notes | nothing that users see |

          The second one is worth a line of its own. For the notes:

          ```markdown
          ## 2.4
          - Totals are rounded once, at the end.
          - Imports are up to four times faster.
          ```
  - enable: time
  - user: "Customers sit in Berlin and Tokyo. Which hour on Thursday suits both?"
    model:
      - calls:
          - tool: time__convert_time
            arguments:
              {source_timezone: Europe/Berlin, time: "09:00", target_timezone: Asia/Tokyo}
      - text: |
          **09:00 in Berlin** is late afternoon in Tokyo: both sides are at work for another hour.
          Later than that, and Tokyo sleeps when the first report comes in.
  - disable: git
  - user: "Good. Write the announcement, two sentences."
    model:
      - text: |
          Version 2.4 is out: imports are up to four times faster, and totals are rounded once, at
          the end. Nothing to do on your side; the update is taken at the next start.
  - enable: git
  - user: "One more look: is anything uncommitted?"
    model:
      - calls: [{tool: git__git_status, arguments: {repo_path: REPO}}]
      - text: "Nothing is. The tree is clean, so Thursday stands."
"""

CHINESE = """
name: fabu
instructions: {text: "你协助一个小团队发布软件。", tokens: 2400}
servers:
  git: {command: COMMAND_GIT}
  time: {command: COMMAND_TIME}
steps:
  - user: "我们打算周四发布，你需要了解什么？"
    model:
      - text: |
          三件事，之后就能起草计划：

          1. **改动内容**：开启 `git` 服务器，我就能从仓库读取。
          2. **客户在哪里**：这决定发布的时刻。
          3. 发布之后由谁值守。
  - enable: git
  - user: "git 已经开启。有哪些改动？"
    model:
      - thinking: "仓库服务器已可用，读取最近几次提交即可总结。"
        calls: [{tool: git__git_log, arguments: {repo_path: REPO, max_count: 3}}]
      - text: |
          上次发布之后有四次提交，其中两处用户看得到：

          - **合计的舍入**：只在最后进行一次。
          - **导入速度**：并行读取文件，最多快四倍。
  - disable: git
  - enable: time
  - user: "客户在柏林和东京，周四几点合适？"
    model:
      - calls:
          - tool: time__convert_time
            arguments:
              {source_timezone: Europe/Berlin, time: "09:00", target_timezone: Asia/Tokyo}
      - text: "**柏林时间 09:00**，东京为傍晚前，双方都还在工作。"
"""


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    executable = chromium()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        store = f"sqlite:///{place / 'viewer.db'}"
        repository(place / "repository")
        english = play(place, ENGLISH, "release", CLAUDE, store)
        play(place, ENGLISH, "release", FLASH, store)
        broken = newest(store)
        chinese = play(place, CHINESE, "fabu", CLAUDE, store)
        with served(place, "--ask", "always", store=store) as address, sync_playwright() as play_:
            browser = play_.chromium.launch(executable_path=executable, args=["--no-sandbox"])
            take(browser, address, folder, english, broken, chinese)
            browser.close()


def take(
    browser: Browser, address: str, folder: Path, english: str, broken: str, chinese: str
) -> None:
    """Look at the pages in each theme, language and width."""
    for theme in ("light", "dark"):
        with_page = Camera(browser, address, folder, theme)
        with_page.shoot(f"chat-{theme}", f"/s/{english}", scroll=3)
        with_page.shoot(
            f"trajectory-{theme}", f"/s/{english}/trajectory?request=4&at=40", open_=True
        )
        with_page.shoot(f"timeline-{theme}", f"/s/{english}/tools")
    light = Camera(browser, address, folder, "light")
    light.shoot("start-light", "/")
    light.shoot("usage-light", f"/s/{broken}/usage")
    light.shoot("cause-light", f"/s/{broken}/{miss(browser, address, broken)}")
    light.shoot("diff-light", f"/s/{broken}/diff/{last_pair(browser, address, broken)}")
    light.shoot("approval-light", None, act=approval)
    zh = Camera(browser, address, folder, "light", locale="zh-CN")
    zh.shoot("chat-zh", f"/s/{chinese}", scroll=2)
    zh.shoot("trajectory-zh", f"/s/{chinese}/trajectory?request=2&at=22", open_=True)
    phone = Camera(browser, address, folder, "light", size=PHONE)
    phone.shoot("chat-phone", f"/s/{english}", scroll=3)
    Camera(browser, address, folder, "dark", size=PHONE).shoot(
        "trajectory-phone", f"/s/{english}/trajectory"
    )


class Camera:
    """A window of one theme, language and size."""

    def __init__(
        self,
        browser: Browser,
        address: str,
        folder: Path,
        theme: str,
        *,
        locale: str = "en-US",
        size: tuple[int, int] = WIDE,
    ) -> None:
        self._folder = folder
        context = browser.new_context(
            base_url=address,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            locale=locale,
            reduced_motion="reduce",
        )
        self._page = context.new_page()

    def shoot(
        self,
        name: str,
        path: str | None,
        *,
        scroll: int | None = None,
        open_: bool = False,
        act: object = None,
    ) -> None:
        """Open a page, bring into sight what it is about, and take its picture."""
        page = self._page
        if path is not None:
            page.goto(path)
        if callable(act):
            act(page)
        if "/tools" not in (path or "") and page.locator("#panel").count():
            page.locator("[data-server=time]").wait_for(state="attached")
        if scroll is not None:
            notice = page.locator(".node.notice").first
            notice.locator("summary").click()
            page.locator(f"#t{scroll - 1}").evaluate(
                "turn => { turn.scrollIntoView(); turn.closest('#talk').scrollTop += 72; }"
            )
        if open_:
            page.locator(".segment.s-added summary").last.click()
        page.wait_for_timeout(400)
        page.screenshot(path=self._folder / f"{name}.png")


def approval(page: Page) -> None:
    """Have a call wait for a decision."""
    page.goto("/")
    page.fill("#message", "What is the weather like for the release party?")
    page.press("#message", "Enter")
    page.wait_for_url("**/s/*")
    page.locator(".bar").first.wait_for()
    page.locator("[data-switch=time]").click()
    page.locator("[data-switch=time][aria-checked=true]").wait_for()
    page.locator("[data-server=time] .tools").wait_for(state="attached")
    page.fill("#message", '/call time__get_current_time {"timezone": "Asia/Tokyo"}')
    page.press("#message", "Enter")
    page.locator("form.ask").wait_for()
    page.locator("[data-server=time]", has_text="connecting").wait_for(state="detached")


def miss(browser: Browser, address: str, session: str) -> str:
    """Return the address of the request of a session that read less than it could have."""
    page = browser.new_page(base_url=address)
    page.goto(f"/s/{session}/usage")
    link = page.locator(".short a").first.get_attribute("href")
    page.close()
    assert link is not None
    return link.split(f"/s/{session}/", 1)[1]


def last_pair(browser: Browser, address: str, session: str) -> str:
    """Return the numbers of the request that broke and of the one in front of it."""
    number = int(miss(browser, address, session).rsplit("/", 1)[1])
    return f"{number - 1}/{number}"


def repository(place: Path) -> None:
    """Make the repository that the conversation is about."""
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "-q", place], check=True)
    (place / "notes.txt").write_text("first\n")
    for message in (
        "Take notes",
        "Say which file is broken",
        "Fix the rounding of totals",
        "Speed up the import",
    ):
        (place / "notes.txt").write_text(f"{message}\n")
        subprocess.run([*git, "-C", place, "add", "."], check=True)
        subprocess.run([*git, "-C", place, "commit", "-qm", message], check=True)


def play(place: Path, text: str, name: str, route: str, store: str) -> str:
    """Play a conversation on a route; return its session."""
    modules: dict[str, Sequence[str]] = {
        "COMMAND_GIT": ["-m", "mcp_server_git", "--repository", "repository"],
        "COMMAND_TIME": ["-m", "mcp_server_time"],
    }
    for key, arguments in modules.items():
        text = text.replace(key, json.dumps([sys.executable, *arguments]))
    file = place / f"{name}.yaml"
    file.write_text(text.replace("REPO", "repository"), "utf-8")
    command = [sys.executable, "-m", "addendum.app.main", "run", str(file), "--route", route]
    subprocess.run([*command, "--store", store], check=True, stdout=subprocess.DEVNULL, cwd=place)
    return newest(store)


def newest(store: str) -> str:
    """Return the session of a store that was used last."""
    command = [sys.executable, "-m", "addendum.app.main", "sessions", "--store", store, "--json"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(listed)["sessions"][0]["id"]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/screenshots")
    if shutil.which("git") is None:
        sys.exit("this needs git")
    main(target)
