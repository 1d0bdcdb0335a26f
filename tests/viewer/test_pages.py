"""Pages of stored sessions: what they say, whatever stands in the log."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from tests.viewer.staged import OPUS, Stage, canned, long_log, spec, stage, stored

from addendum.log.events import (
    AssistantMessage,
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
from addendum.log.values import Call, Media, ToolAddition
from addendum.stores import MemoryStore
from addendum.tell.words import words
from addendum.viewer.feed import panel_html
from addendum.viewer.ledger import PAGE

pytestmark = pytest.mark.anyio
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """Tags of a page, with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def ids(html: str) -> list[str]:
    return re.findall(r'<li id="e(\d+)"', html)


async def all_pages(staged: Stage, url: str) -> dict[str, str]:
    paths = ["", "/trajectory", "/trajectory?request=1", "/trajectory?at=3", "/trajectory?q=look"]
    paths += ["/requests/1", "/requests/2", "/diff/1/2", "/tools", "/usage", "/event/3"]
    return {path: await staged.get(url + path) for path in paths}


async def test_every_page_of_a_session_in_every_language() -> None:
    store = MemoryStore()
    await stored(store, long_log(4))
    async with stage(store=store) as staged:
        english = await all_pages(staged, "/s/long")
        assert "Question 1" in english[""] and "Answer 4" in english[""]
        assert 'lang="en"' in english[""] and "Turn 4" in english["/trajectory"]
        assert "Segments in cache order" in english["/requests/1"]
        assert "Request 2 begins with all of request 1" in english["/diff/1/2"]
        assert "active, bound in the head" in english["/tools"]
        assert 'class="rows"' in english["/trajectory?q=look"]
        for path, html in english.items():
            address = f"/s/long{path}{'&' if '?' in path else '?'}lang=zh"
            chinese = await staged.get(address)
            assert 'lang="zh"' in chinese and html != chinese
        assert "第 4 轮" in await staged.get("/s/long/trajectory", **{"accept-language": "zh-CN"})


async def test_a_language_that_was_chosen_is_kept() -> None:
    async with stage() as staged:
        answer = await staged.client.get("/?lang=zh")
        assert "addendum_language=zh" in answer.headers["set-cookie"]
        assert 'lang="zh"' in (await staged.client.get("/")).text
        assert "set-cookie" not in (await staged.client.get("/?lang=<b>")).headers


async def test_hostile_names_and_texts_are_shown_and_do_nothing() -> None:
    store = MemoryStore()
    name = 'evil <img src=x onerror=alert(1)> "quoted" & more'
    log = long_log(2, name)
    log.append(ToolSwitch("server", EVIL, True, EVIL))
    log.append(TurnStart(3))
    log.append(StepStart(3, 1))
    log.append(UserMessage(3, EVIL, EVIL))
    await stored(store, log)
    other = SessionLog("other")
    other.append(SessionStart("other"))
    other.append(TurnStart(1))
    other.append(UserMessage(1, EVIL))
    await stored(store, other)
    async with stage(store=store) as staged:
        url = f"/s/{quote(name, safe='')}"
        for path, html in (await all_pages(staged, url)).items():
            tags = Reader(html).tags
            assert [tag for tag, _ in tags].count("script") == 1, path
            assert not any(tag in ("img", "iframe", "object", "embed", "style") for tag, _ in tags)
            assert not any(key.startswith("on") for _, keys in tags for key in keys), path
        assert "&lt;script&gt;" in await staged.get(url)
        assert "&lt;script&gt;" in await staged.get("/sessions")


async def test_the_ledger_comes_in_pages() -> None:
    store = MemoryStore()
    log = long_log(300)
    await stored(store, log)
    last = len(log) - 1
    async with stage(store=store) as staged:
        tail = ids(await staged.get("/s/long/trajectory"))
        assert PAGE <= len(tail) <= PAGE + 5 and int(tail[-1]) >= last - 3
        answer = await staged.client.get(f"/s/long/rows?before={tail[0]}")
        before = ids(answer.text)
        assert int(before[-1]) < int(tail[0]) and answer.headers["x-first"] == before[0]
        middle = ids(await staged.get("/s/long/trajectory?at=1000"))
        assert "1000" in middle or any(abs(int(each) - 1000) < 3 for each in middle)
        after = (await staged.client.get(f"/s/long/rows?after={middle[-1]}")).text
        assert int(ids(after)[0]) > int(middle[-1])
        first = ids(await staged.get("/s/long/trajectory?at=0"))
        assert first[0] == "0"
        found = await staged.get("/s/long/trajectory?q=Question+123")
        assert len(ids(found)) == 1
        assert ids(await staged.get("/s/long/trajectory?q=%3Cscript%3E")) == []


async def test_a_long_session_opens_small() -> None:
    store = MemoryStore()
    await stored(store, long_log(2500))
    async with stage(store=store) as staged:
        for path in ("", "/trajectory", "/tools", "/usage", "/trajectory?at=100", "/requests/4999"):
            html = await staged.get(f"/s/long{path}")
            assert len(html.encode()) < 300_000, (path, len(html))
        turns = await staged.client.get("/s/long/turns?before=2489")
        assert turns.headers["x-earlier"] == "2477"
        assert turns.text.count('<section class="turn"') == 12


async def test_texts_are_cut_until_somebody_asks_for_all() -> None:
    store = MemoryStore()
    log = SessionLog("big")
    log.append(SessionStart("big"))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    log.append(UserMessage(1, "x" * 100_000 + "END"))
    await stored(store, log)
    async with stage(store=store) as staged:
        assert (await staged.get("/s/big/event/3/text")).endswith("xEND")
        page = await staged.get("/s/big/event/3")
        assert "data-all" in page
        assert "END" in await staged.get("/s/big/event/3/raw")
        for path in ("/event/9", "/event/3/call/0", "/event/3/nothing", "/event/1/text"):
            assert (await staged.client.get(f"/s/big{path}")).status_code == 404


async def test_a_request_is_shown_as_it_was_sent() -> None:
    async with stage() as staged:
        url = await staged.begin("first " * 300)
        await staged.post(f"{url}/send", {"text": "second"})
        await staged.quiet(url)
        body = json.loads(await staged.get(f"{url}/requests/2/body"))
        assert body["messages"][-1]["content"][0]["text"] == "second"
        page = await staged.get(f"{url}/requests/2")
        assert "messages[2].content[0]" in page and "mark 5m" in page
        assert "read from the cache" in page
        assert "read less" not in page
        segment = await staged.get(f"{url}/requests/2/segment?path=messages[2].content[0]")
        assert "second" in segment
        assert (await staged.client.get(f"{url}/requests/3")).status_code == 404
        assert (await staged.client.get(f"{url}/diff/1/9")).status_code == 404


async def test_a_tool_change_stands_where_it_happened() -> None:
    store = MemoryStore()
    log = long_log(1)
    header = next(e.data for e in log.events if isinstance(e.data, RequestHeader))
    log.append(TurnStart(2))
    log.append(StepStart(2, 1))
    log.append(UserMessage(2, "now"))
    seq = log.append(header).seq
    log.append(DeveloperMessage(2, 1, (ToolAddition("look"),), seq))
    await stored(store, log)
    async with stage(store=store) as staged:
        chat = await staged.get("/s/long")
        assert chat.index("now") < chat.index("Tool added: look")
        ledger = await staged.get("/s/long/trajectory")
        assert ledger.rindex('class="k-head') < ledger.index("Tool added: look")


async def test_an_image_of_a_result_is_shown_and_other_files_are_kept() -> None:
    store = MemoryStore()
    log = SessionLog("media")
    log.append(SessionStart("media"))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    log.append(UserMessage(1, "draw"))
    said = AssistantMessage(1, 1, OPUS, "anthropic_messages", calls=(Call("c", "draw", "{}"),))
    log.append(said)
    files = (Media("image/png", "iVBORw0KGgo="), Media("application/pdf", "JVBERi0="))
    files += (Media("text/html", "PHNjcmlwdD4="), Media("image/png", "!"))
    files += (Media("image/svg+xml", "PHN2Zz4="), Media("image/gif", "PHNjcmlwdD4="))
    seq = log.append(ToolResult(1, 1, "c", "draw", "drawn", media=files)).seq
    await stored(store, log)
    async with stage(store=store) as staged:
        page = await staged.get("/s/media")
        assert f'src="/s/media/event/{seq}/media/0"' in page and "application/pdf" in page
        # What is said of a file is no proof: these are not pictures, so no page shows them as such.
        for place in (3, 4, 5):
            assert f'src="/s/media/event/{seq}/media/{place}"' not in page
        kinds: list[tuple[str, str]] = []
        for place in (0, 1, 2, 4, 5):
            answer = await staged.client.get(f"/s/media/event/{seq}/media/{place}")
            assert answer.status_code == 200
            assert "sandbox" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            kinds.append((answer.headers["content-type"], answer.headers["content-disposition"]))
        assert kinds == [
            ("image/png", "inline"),
            *[("application/octet-stream", "attachment")] * 4,
        ]
        for place in (3, 9):
            answer = await staged.client.get(f"/s/media/event/{seq}/media/{place}")
            assert answer.status_code == 404


async def test_what_looks_like_a_credential_is_masked() -> None:
    store = MemoryStore()
    key = "sk-" + "made-up-" * 4
    log = SessionLog("keys")
    log.append(SessionStart("keys"))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    log.append(UserMessage(1, f"my key is {key}"))
    await stored(store, log)
    async with stage(store=store) as staged:
        paths = ["", "/trajectory", "/trajectory?at=3", "/event/3", "/event/3/raw", "/event/3/text"]
        for path in paths:
            page = await staged.get(f"/s/keys{path}")
            assert key not in page and "my key is [redacted " in page, path
        assert "data-edit aria" not in await staged.get("/s/keys")
        assert key not in await staged.get("/sessions")


async def test_a_session_is_handed_out_as_one_file() -> None:
    store = MemoryStore()
    await stored(store, long_log(2, "räume & co"))
    async with stage(store=store) as staged:
        answer = await staged.client.get(f"/s/{quote('räume & co', safe='')}/export?lang=zh")
        assert answer.status_code == 200 and 'lang="zh"' in answer.text
        disposition = answer.headers["content-disposition"]
        assert disposition == "attachment; filename*=utf-8''r%C3%A4ume%20%26%20co.html"
        assert "<script" not in answer.text and "Question 2" in answer.text


async def test_the_start_tells_what_conversations_cost() -> None:
    store = MemoryStore()
    await stored(store, long_log(3))
    empty = SessionLog("empty")
    empty.append(SessionStart("empty"))
    await stored(store, empty)
    async with stage(store=store) as staged:
        page = await staged.get("/")
        row = re.search(r'<tr><th scope="row" data-by="Question.*?</tr>', page, re.DOTALL)
        assert row is not None
        # Six requests, each of which read the prompt in front of it.
        prompts = [1000 + 40 * number for number in range(1, 7)]
        share = 100 * sum(prompts[:-1]) // sum(prompts)
        assert f'data-by="{sum(prompts)}"' in row.group() and f"{share} %" in row.group()
        assert "No message yet" in page


async def test_a_thousand_tools_make_no_large_page() -> None:
    servers = [spec("large", [canned(f"tool_{n}") for n in range(1_000)])]
    servers += [spec(f"s{n}", [canned(f"t{m}") for m in range(30)]) for n in range(19)]
    async with stage(*servers, ask="never") as staged:
        url = await staged.begin()
        for each in servers:
            await staged.post(f"{url}/switch", {"server": each.name, "on": True})
        await staged.post(f"{url}/send", {"text": "and now?"})
        await staged.quiet(url)
        for path in ("", "/trajectory?request=2", "/tools", "/requests/2", "/diff/1/2"):
            assert len(await staged.get(url + path)) < 300_000, path
        page = await staged.get(f"{url}/requests/2")
        found = re.search(r'data-run="([^"]+)"', page)
        assert found and "new segments" in page
        # What was told in one line opens, a part at a time, down to the last one.
        shown = await staged.get(found[1])
        assert shown.count('class="segment s-added') == 200
        rest = re.search(r'data-run="([^"]+)"', shown)
        assert rest and rest[1] != found[1]
        room = await staged.house.room(url.removeprefix("/s/"))
        panel = await panel_html(staged.house, room, words("en"))
        assert len(panel) < 100_000 and "and 980 more" in panel
