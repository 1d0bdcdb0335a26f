"""What real servers send that no version of the protocol has: it costs itself, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.tools.pictures import b64, png
from tests.tools.test_mcp_stdio import served

from addendum.tools.mcp.offers import prompt_text, resource_outcome, screen_prompts
from addendum.tools.mcp.raw import BARE, discovery, handshake
from addendum.tools.mcp.results import call_outcome
from addendum.tools.mcp.values import CallOutcome

pytestmark = pytest.mark.anyio

KEPT = {"type": "text", "text": "KEPT"}
PICTURE = b64(png())

# What the server sent, and what the model reads of it; the report where there is one.
RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    # -- blocks
    "BerriAI/litellm#36920": ({"content": [{"type": "error", "text": "KEPT"}]}, "[error]\nKEPT"),
    "calebl/ynab-mcp-server#31": (
        {"content": [{"type": "error", "text": "KEPT: no money"}], "isError": True},
        "[error]\nKEPT: no money",
    ),
    "an unknown kind beside a text": (
        {"content": [{"type": "video", "url": "x"}, KEPT]},
        '[video] {"url":"x"}\nKEPT',
    ),
    "a kind of JSON": (
        {"content": [{"type": "json", "json": {"a": [1]}}]},
        '[json] {"json":{"a":[1]}}',
    ),
    "a kind with data": (
        {"content": [{"type": "video", "data": "A" * 400, "mimeType": "video/mp4"}, KEPT]},
        "[video video/mp4, 300 bytes: not shown: unknown content]\nKEPT",
    ),
    "a kind that is no text": ({"content": [{"type": 7, "text": "KEPT"}]}, "KEPT"),
    "a kind in capitals": ({"content": [{"type": "TEXT", "text": "KEPT"}]}, "KEPT"),
    "no kind": ({"content": [{"text": "KEPT"}]}, "KEPT"),
    "an empty block": (
        {"content": [{}, KEPT]},
        "[unknown: not shown: unknown content]\nKEPT",
    ),
    "blocks that are none": (
        {"content": [None, 7, True, ["x"], KEPT]},
        "[a block that is none: ]\n[a block that is none: 7]\n[a block that is none: True]\n"
        "[a block that is none: ...]\nKEPT",
    ),
    "a text without text": (
        {"content": [{"type": "text"}, {"type": "text", "text": None}, KEPT]},
        "[text: not shown: it has none]\n[text: not shown: it has none]\nKEPT",
    ),
    "a text under another name": (
        {"content": [{"type": "text", "value": "KEPT"}]},
        '[text: {"value":"KEPT"}]',
    ),
    "a text that is a number": ({"content": [{"type": "text", "text": 42}]}, "42"),
    "a text that is an object": (
        {"content": [{"type": "text", "text": {"a": "KEPT"}}]},
        '{"a":"KEPT"}',
    ),
    "annotations beyond 1": ({"content": [{**KEPT, "annotations": {"priority": 5}}]}, "KEPT"),
    "annotations that are none": ({"content": [{**KEPT, "annotations": "high"}]}, "KEPT"),
    "extra fields": ({"content": [{**KEPT, "x": 1}], "x": {"y": 2}, "_meta": 7}, "KEPT"),
    # -- files
    "an image without its type": (
        {"content": [{"type": "image", "data": PICTURE}, KEPT]},
        f"[image 1: image/png, {len(png())} bytes]\nKEPT",
    ),
    "an image of a wrong type": (
        {"content": [{"type": "image", "data": PICTURE, "mimeType": "text/html"}]},
        f"[image 1: image/png, {len(png())} bytes]",
    ),
    "an image as an address": (
        {"content": [{"type": "image", "data": f"data:image/png;base64,{PICTURE}"}]},
        f"[image 1: image/png, {len(png())} bytes]",
    ),
    "an image that is no base64": (
        {"content": [{"type": "image", "data": "!!", "mimeType": "image/png"}, KEPT]},
        "[image image/png, 1 bytes: not shown: its data is no base64]\nKEPT",
    ),
    "an image without data": (
        {"content": [{"type": "image", "mimeType": "image/png"}, KEPT]},
        "[image image/png: not shown: it has no data]\nKEPT",
    ),
    "an image whose data are none": (
        {"content": [{"type": "image", "data": [1, 2]}, KEPT]},
        "[image: not shown: it has no data]\nKEPT",
    ),
    "audio without anything": (
        {"content": [{"type": "audio"}, KEPT]},
        "[audio: not shown: audio cannot be given to a model here]\nKEPT",
    ),
    # -- resources and links
    "agentscope-ai/agentscope#2798": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "doc"}]},
        "[resource link doc, file:///a]",
    ),
    "a link without a name": (
        {"content": [{"type": "resource_link", "uri": "file:///a"}, KEPT]},
        "[resource link file:///a]\nKEPT",
    ),
    "a link without anything": (
        {"content": [{"type": "resource_link"}, KEPT]},
        "[resource link]\nKEPT",
    ),
    "a resource of a relative address": (
        {"content": [{"type": "resource", "resource": {"uri": "docs/a.md", "text": "KEPT"}}]},
        "[resource docs/a.md]\nKEPT",
    ),
    "a resource without a wrapper": (
        {"content": [{"type": "resource", "uri": "mem://a", "text": "KEPT"}]},
        "[resource mem://a]\nKEPT",
    ),
    "a resource that is an address": (
        {"content": [{"type": "resource", "resource": "mem://a"}, KEPT]},
        "[resource: not shown: it has no data]\nKEPT",
    ),
    "a resource that is empty": (
        {"content": [{"type": "resource", "resource": {}}, KEPT]},
        "[resource: not shown: it has no data]\nKEPT",
    ),
    # -- the result as a whole
    "modelcontextprotocol/python-sdk#1796": ({"structuredContent": {"a": "KEPT"}}, '{"a":"KEPT"}'),
    "gwbtc/urbit-mcp#23": (
        {"content": None, "structuredContent": {"a": "KEPT"}},
        '{"a":"KEPT"}',
    ),
    "anthropics/claude-code#86032": (
        {"content": [KEPT], "structuredContent": {"b": 1}, "isError": True},
        'KEPT\n[structured content]\n{"b":1}',
    ),
    "structured content that is a list": ({"content": [], "structuredContent": [1]}, "[1]"),
    "structured content that is text": ({"structuredContent": "KEPT"}, '"KEPT"'),
    "structured content that is null": ({"content": [KEPT], "structuredContent": None}, "KEPT"),
    "content that is text": ({"content": "KEPT"}, "KEPT"),
    "content that is one block": ({"content": KEPT}, "KEPT"),
    "content that is a list of texts": ({"content": ["KEPT", "too"]}, "KEPT\ntoo"),
    "content that is a number": ({"content": 5}, "[a block that is none: 5]"),
    "a toolResult": ({"toolResult": "KEPT"}, "KEPT"),
    "a toolResult that is an object": ({"toolResult": {"text": "KEPT"}}, "KEPT"),
    "cloudflare/mcp-server-cloudflare#12": ({"toolResult": {"content": [KEPT]}}, "KEPT"),
    "a result that is text": ({BARE: "KEPT"}, "KEPT"),
    "a result that is a list": ({BARE: [KEPT]}, "KEPT"),
    "a result of other fields": ({"answer": "KEPT", "_meta": {}}, '{"answer":"KEPT"}'),
    "a result of nothing": ({}, "[the answer has no content]"),
    "no blocks": ({"content": []}, ""),
    "an error in words": ({"content": [KEPT], "isError": "true"}, "KEPT"),
    "an error that is none": ({"content": [KEPT], "isError": "no"}, "KEPT"),
}


@pytest.mark.parametrize("report", RESULTS)
def test_one_odd_block_costs_itself(report: str) -> None:
    result, text = RESULTS[report]
    found = call_outcome(json.loads(json.dumps(result)))
    assert (found.text, found.code) == (text, None)
    assert found.is_error == (result.get("isError") in (True, "true"))


DEEP: Any = 1
for _ in range(230):
    DEEP = [DEEP]


@pytest.mark.parametrize("field", ["type", "text", "data", "mimeType", "uri", "resource", "name"])
@pytest.mark.parametrize("value", [None, 0, 1.5, True, "", "x", [], {}, [1], {"a": 1}, DEEP])
def test_whatever_a_field_holds_the_rest_is_read(field: str, value: Any) -> None:
    for block in (
        KEPT,
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "mem://a", "text": "in it"}},
        {"type": "resource_link", "uri": "mem://a", "name": "a"},
    ):
        odd = {**block, field: value}
        found = call_outcome({"content": [{"type": "text", "text": "before"}, odd, KEPT]})
        lines = found.text.split("\n")
        assert (lines[0], lines[-1]) == ("before", "KEPT")
        assert len(lines) >= 3 or (field, value) == ("text", "")
        inner = {"type": "resource", "resource": {"uri": "mem://a", "text": "in it", field: value}}
        assert call_outcome({"content": [inner, KEPT]}).text.endswith("\nKEPT")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"messages": [{"role": "user", "content": KEPT}]}, "KEPT"),
        ({"messages": [{"role": "user", "content": "KEPT"}]}, "KEPT"),
        ({"messages": [{"role": "user", "content": [KEPT, KEPT]}]}, "KEPT\n\nKEPT"),
        ({"messages": {"role": "assistant", "content": KEPT}}, "[assistant]\n\nKEPT"),
        ({"messages": "KEPT"}, "KEPT"),
        ({"messages": ["KEPT", KEPT]}, "KEPT\n\nKEPT"),
        ({"messages": [{"role": "system", "content": KEPT}]}, "KEPT"),
        ({"messages": [{"role": 7, "content": KEPT}, {}]}, "KEPT"),
        ({"messages": None}, ""),
        ({}, ""),
        ({BARE: [KEPT]}, "KEPT"),
    ],
)
def test_a_prompt_is_read_whatever_it_is(result: dict[str, Any], text: str) -> None:
    assert prompt_text(result) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"contents": [{"uri": "mem://a", "text": "KEPT"}]}, "[resource mem://a]\nKEPT"),
        ({"contents": {"uri": "mem://a", "text": "KEPT"}}, "[resource mem://a]\nKEPT"),
        ({"contents": "KEPT"}, "KEPT"),
        ({"contents": [KEPT, None]}, "KEPT\n[a block that is none: ]"),
        ({"content": [KEPT]}, "KEPT"),
        ({"contents": [{"text": "KEPT"}]}, "[resource ]\nKEPT"),
        ({"contents": [{"uri": 7, "blob": 7}]}, "[resource 7: not shown: it has no data]"),
        ({"contents": None}, "the resource is empty"),
        ({}, "the resource is empty"),
    ],
)
def test_a_resource_is_read_whatever_it_is(result: dict[str, Any], text: str) -> None:
    assert resource_outcome(result) == CallOutcome(text)


def test_prompts_are_listed_whatever_their_arguments_are() -> None:
    entries: list[dict[str, Any]] = [
        {"name": "a", "arguments": [{"name": "x", "required": "yes"}, 7, {"name": 7}, None]},
        {"name": "b", "arguments": {"name": "y"}},
        {"name": "c", "arguments": "z", "description": ["no"]},
        {"name": 7},
        {},
    ]
    found = screen_prompts(entries)
    assert [(each.name, [one.name for one in each.arguments]) for each in found] == [
        ("a", ["x"]),
        ("b", ["y"]),
        ("c", []),
    ]


# -- the handshake

KNOWN = ("2024-11-05", "2025-11-25")


@pytest.mark.parametrize(
    ("raw", "version", "noted"),
    [
        ({"protocolVersion": "2024-11-05"}, "2024-11-05", ""),
        ({"protocolVersion": "2024-10-07"}, "2025-11-25", "2024-10-07"),
        ({"protocolVersion": "1.0"}, "2025-11-25", "1.0"),
        ({"protocolVersion": "2026-07-28"}, "2025-11-25", "2026-07-28"),
        ({"protocolVersion": "DRAFT-2026-v1\n"}, "2025-11-25", "DRAFT-2026-v1"),
        ({"protocolVersion": 20241105}, "2025-11-25", "none"),
        ({"protocolVersion": None}, "2025-11-25", "none"),
        ({}, "2025-11-25", "none"),
    ],
)
def test_a_version_that_nobody_knows_ends_nothing(
    raw: dict[str, Any], version: str, noted: str
) -> None:
    for more in (
        {"capabilities": {"tools": True}, "serverInfo": "me"},
        {"capabilities": [], "serverInfo": None},
        {"capabilities": None, "serverInfo": {"name": 7}},
        {"capabilities": {"tools": {"listChanged": "yes"}}, "serverInfo": {"name": "s"}},
        {"instructions": ["no"]},
    ):
        notes: list[str] = []
        made = handshake({**raw, **more}, KNOWN, notes)
        assert made["protocolVersion"] == version
        assert (made["capabilities"], "instructions" in made) == ({}, False)
        assert made["serverInfo"].keys() == {"name", "version"}
        assert [noted in each for each in notes] == ([True] if noted else [])
    assert handshake({"instructions": "a \ud800"}, KNOWN, [])["instructions"] == "a \ufffd"


def test_what_is_discovered_is_read_in_spite_of_its_form() -> None:
    made = discovery({"supportedVersions": ["2026-07-28", 7, None], "capabilities": 7})
    assert (made["supportedVersions"], made["capabilities"]) == (["2026-07-28"], {})
    assert discovery({"supportedVersions": "2026-07-28"}) == {"supportedVersions": "2026-07-28"}


# -- real processes

BEGIN = r"""
import json, os, sys, time
def out(value):
    sys.stdout.write((value if isinstance(value, str) else json.dumps(value)) + "\n")
    sys.stdout.flush()
def made(m, result): return {"jsonrpc": "2.0", "id": m["id"], "result": result}
def reply(m, result): out(made(m, result))
def fail(m, code, text):
    out({"jsonrpc": "2.0", "id": m["id"], "error": {"code": code, "message": text}})
INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]
SAID = {"content": [{"type": "text", "text": "heard"}]}
def usual(m):
    if "id" not in m: return
    method = m["method"]
    if method == "initialize": reply(m, INFO)
    elif method == "tools/list": reply(m, {"tools": TOOLS})
    elif method == "tools/call": reply(m, SAID)
    else: fail(m, -32601, "no")
"""


def program(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-E", "-c", BEGIN + code)


EACH = "\nfor line in sys.stdin:\n    m = json.loads(line)\n"

# How a server takes a first message that is no greeting; the report where there is one.
FIRSTS: dict[str, str] = {
    "0xMassi/webclaw#107": EACH
    + "    if not globals().get('greeted') and m['method'] != 'initialize':\n"
    + "        sys.exit('expected initialize')\n    greeted = True\n    usual(m)",
    "VoidNullable/lific#57": EACH
    + "    if not globals().get('greeted') and m['method'] != 'initialize': os._exit(0)\n"
    + "    greeted = True\n    usual(m)",
    "UsefulSoftwareCo/executor#1449": EACH
    + "    if m['method'] == 'server/discover':\n"
    + "        fail(m, -32000, 'Server not initialized'); sys.exit(0)\n    usual(m)",
    "github/copilot-cli#4809": EACH
    + "    if m['method'] == 'server/discover': raise RuntimeError(m['method'])\n    usual(m)",
    "Regsorm/code-index-mcp#9": EACH
    + "    if m['method'] == 'server/discover': os.kill(os.getpid(), 9)\n    usual(m)",
    "closes stdout": EACH
    + "    if m['method'] == 'server/discover': os.close(1); time.sleep(60)\n    usual(m)",
    "closes stdin": EACH
    + "    if m['method'] == 'server/discover':\n"
    + "        os.close(0); os.close(1); time.sleep(60)\n    usual(m)",
    "answers, and refuses the greeting for it": EACH
    + "    if m['method'] == 'server/discover': bad = True; fail(m, -32600, 'no')\n"
    + "    elif m['method'] == 'initialize' and globals().get('bad'): fail(m, -32600, 'too late')\n"
    + "    else: usual(m)",
    "an error without an id": EACH
    + "    if m['method'] == 'server/discover': m['id'] = None; fail(m, -32600, 'no')\n"
    + "    else: usual(m)",
    "a result that is none": EACH
    + "    if m['method'] == 'server/discover': reply(m, None)\n    else: usual(m)",
    "a result of another kind": EACH
    + "    if m['method'] == 'server/discover': reply(m, {'supportedVersions': 'all'})\n"
    + "    else: usual(m)",
    "versions of before": EACH
    + "    if m['method'] == 'server/discover': reply(m, {'supportedVersions': ['2025-06-18']})\n"
    + "    else: usual(m)",
}


@pytest.mark.parametrize("report", FIRSTS)
async def test_a_server_that_takes_a_first_question_badly_is_greeted_first(report: str) -> None:
    async with served(program(FIRSTS[report])) as connection:
        began = anyio.current_time()
        state = await connection.ready(20)
        assert (state.status, state.error) == ("ready", None)
        assert (await connection.call("echo", b"{}", timeout=10)).text == "heard"
        first = anyio.current_time() - began
    # It is remembered: of the same server nothing is asked before the greeting any more.
    assert first < 15


async def test_what_a_server_did_not_take_is_not_asked_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        EACH
        + f"    open({str(told)!r}, 'a').write(m['method'] + '\\n')\n"
        + "    if m['method'] == 'server/discover': sys.exit(1)\n    usual(m)"
    )
    for _ in range(2):
        async with served(program(code)) as connection:
            assert (await connection.ready(20)).status == "ready"
    asked = [each for each in told.read_text().split() if "/list" not in each]
    assert asked.count("server/discover") == 1
    assert asked.count("initialize") == 2


async def test_a_server_that_says_nothing_to_a_first_question_is_not_waited_for_long() -> None:
    code = EACH + "    if m['method'] == 'initialize': greeted = True\n"
    code += "    if globals().get('greeted'): usual(m)"
    async with served(program(code)) as connection:
        began = anyio.current_time()
        assert (await connection.ready(20)).status == "ready"
        assert anyio.current_time() - began < 8


LISTS: dict[str, tuple[str, list[str], list[str]]] = {
    # What `tools/list` answers, the tools that are known, and what is noted.
    "null": ("{'tools': None}", [], ["without a list"]),
    "missing": ("{}", [], ["without a list"]),
    "bare": ("TOOLS", ["echo"], []),
    "one tool": ("{'tools': TOOLS[0]}", ["echo"], []),
    "by name": ("{'tools': {'echo': TOOLS[0]}}", ["echo"], []),
    "a cursor that is none": ("{'tools': TOOLS, 'nextCursor': 7}", ["echo"], []),
    "an empty cursor": ("{'tools': TOOLS, 'nextCursor': ''}", ["echo"], []),
    "the same cursor for ever": (
        "{'tools': TOOLS, 'nextCursor': 'a'}",
        ["echo"],
        ["listed twice", "circle"],
    ),
    "odd fields": ("{'tools': TOOLS, '_meta': 7, 'ttlMs': 'x', 'resultType': 5}", ["echo"], []),
    "rezi-io/rezi-mcp#4": (
        "{'tools': [{**TOOLS[0], 'outputSchema': {'properties': {'a': 7}}}]}",
        ["echo"],
        [],
    ),
    "ThinkInAIXYZ/deepchat#2075": ("{'tools': [{**TOOLS[0], 'outputSchema': 'x'}]}", ["echo"], []),
    "zereight/gitlab-mcp#286": ("{'tools': [{'name': 'echo', 'inputSchema': {}}]}", ["echo"], []),
    "odd tools": (
        "{'tools': [None, 7, 'x', [], {}, {'name': 5}, *TOOLS]}",
        ["echo"],
        ["no object"] * 4 + ["without a name"] * 2,
    ),
    "odd annotations": (
        "{'tools': [{**TOOLS[0], 'annotations': 'x', 'title': 7, 'icons': 'y'}]}",
        ["echo"],
        [],
    ),
}


@pytest.mark.parametrize("name", LISTS)
async def test_one_odd_tool_costs_itself(name: str) -> None:
    result, tools, noted = LISTS[name]
    code = EACH + f"    if m['method'] == 'tools/list': reply(m, {result})\n    else: usual(m)"
    async with served(program(code)) as connection:
        state = await connection.ready(20)
        assert (state.status, [tool.name for tool in state.tools]) == ("ready", tools)
        assert len(state.notes) == len(noted)
        assert all(want in note for want, note in zip(noted, state.notes, strict=True))


HANDSHAKES: dict[str, str] = {
    "an old version": "reply(m, {**INFO, 'protocolVersion': '2024-10-07'})",
    "no version": "reply(m, {'capabilities': {}})",
    "a version of its own": "reply(m, {**INFO, 'protocolVersion': 'v2'})",
    "nothing": "reply(m, {})",
    "null": "reply(m, None)",
    "odd capabilities": "reply(m, {**INFO, 'capabilities': {'tools': True, 'x': []}})",
    "no name": "reply(m, {**INFO, 'serverInfo': {}})",
    "an id as text": "m['id'] = str(m['id']); reply(m, INFO)",
    "an id as a fraction": "m['id'] = float(m['id']); reply(m, INFO)",
    "no word of JSON-RPC": "out({'id': m['id'], 'result': INFO})",
    "notices before": "out({'jsonrpc': '2.0', 'method': 'notifications/hello', 'params': [1]}); "
    "out({'method': 7}); out([]); out('null'); out('hello'); reply(m, INFO)",
    "words on the same line": "out('ready> ' + json.dumps(made(m, INFO)))",
    "a batch": "out([made(m, INFO)])",
    "a byte order mark": "out('\\ufeff' + json.dumps(made(m, INFO)))",
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_an_odd_greeting_is_a_greeting(name: str) -> None:
    code = EACH + f"    if m['method'] == 'initialize': {HANDSHAKES[name]}\n    else: usual(m)"
    async with served(program(code)) as connection:
        state = await connection.ready(20)
        assert (state.status, state.error) == ("ready", None)
        assert (await connection.call("echo", b"{}", timeout=10)).text == "heard"


async def test_a_call_that_nobody_read_is_asked_again_of_the_next_process(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    code = EACH + "    usual(m)\n"
    code += f"    if m['method'] == 'tools/list' and not os.path.exists({str(deaf)!r}):\n"
    code += f"        open({str(deaf)!r}, 'w'); os.close(0); time.sleep(60)\n"
    async with served(program(code)) as connection:
        await connection.ready(20)
        first = connection.pid
        with anyio.fail_after(10):
            while not deaf.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        # It lives, and has closed its stdin: the line cannot have been read.
        found = await connection.call("echo", b"{}", timeout=15)
        assert (found.text, found.is_error) == ("heard", False)
        assert connection.pid != first


# -- time

PROGRESS = (
    EACH
    + """
    if m["method"] != "tools/call":
        usual(m)
        continue
    given = m["params"]["arguments"]
    for step in range(given["steps"]):
        time.sleep(given["pause"])
        token = m["params"]["_meta"]["progressToken"]
        told = {"progressToken": token, "progress": step}
        out({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
    reply(m, SAID)
"""
)


@pytest.mark.parametrize(
    ("steps", "pause", "timeout", "code", "text"),
    [
        (8, 0.25, 1.5, None, "heard"),
        (1, 3.0, 0.5, "timeout", "within 0.5 s; the call was cancelled"),
        (99, 0.05, 0.3, "timeout", "within 3 s, though it reported progress; the call"),
    ],
)
async def test_progress_extends_a_calls_limit_up_to_a_ceiling(
    steps: int, pause: float, timeout: float, code: str | None, text: str
) -> None:
    """anomalyco/opencode#28186, NousResearch/hermes-agent#94727, MarimerLLC/rockbot#514."""
    heard: list[float] = []
    arguments = json.dumps({"steps": steps, "pause": pause}).encode()
    async with served(program(PROGRESS)) as connection:
        await connection.ready(20)
        found = await connection.call(
            "echo", arguments, timeout=timeout, report=lambda step, total, words: heard.append(step)
        )
        assert (found.code, text in found.text) == (code, True), found
    assert (len(heard) > 3) == (steps > 3)


async def test_a_sign_of_progress_is_asked_for_though_nobody_listens() -> None:
    async with served(program(PROGRESS)) as connection:
        await connection.ready(20)
        found = await connection.call("echo", b'{"steps":8,"pause":0.25}', timeout=1.5)
        assert found.text == "heard"
