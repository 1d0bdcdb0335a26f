from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from addendum.errors import ContentError
from addendum.log.events import ToolSchema
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, is_dispatchable
from addendum.tools.ranking import Entry, Indexes, terms
from addendum.tools.search import TOOL_SEARCH, TOOL_SEARCH_NAME, answer, search
from addendum.tools.validation import validator_for


def make(name: str, description: str = "", parameters: Any = None, server: str = "") -> Entry:
    text = json.dumps(parameters or {"type": "object", "properties": {}})
    return ToolSchema(name, description, Raw(text.encode())), server or None


ISSUES = make(
    "github__search_issues",
    "Find issues in a repository.",
    {
        "type": "object",
        "properties": {
            "q": {"type": "string", "description": "Words, such as bug or label."},
            "filter": {"type": "object", "properties": {"milestone": {"type": "string"}}},
        },
    },
    "github",
)
TOOLS: list[Entry] = [
    ISSUES,
    make("github__openPullRequest", "Open a change for review.", server="github"),
    make("files__read_text", "Read a file.", server="files"),
    make("files__write_text", "Write a file.", server="files"),
    make("wetter", "Zeigt das Wetter in München.", None),
    make("weather_cn", "查询城市的天气预报", None),
    make("kanji", "東京の天気を調べる", None),
]


def names(text: str) -> list[str]:
    return [found["name"] for found in json.loads(text)["tools"]]


def test_the_fixed_tool_says_nothing_about_what_there_is() -> None:
    assert TOOL_SEARCH.name == TOOL_SEARCH_NAME == "tool_search"
    text = (TOOL_SEARCH.description + bytes(TOOL_SEARCH.parameters).decode()).lower()
    assert not [entry for entry in TOOLS if entry[0].name in text]
    validator = validator_for(TOOL_SEARCH.parameters)
    assert validator.validate({"query": "x", "max_results": 50, "server": ["a"]}) == ()
    assert validator.validate({"server": "a"}) == ()
    for wrong in ({"query": "x" * 201}, {"max_results": 0}, {"max_results": 51}, {"names": 1}):
        assert validator.validate(wrong)


def test_case_t52_full_names_whole_schemas_and_a_pointer_to_the_dispatcher() -> None:
    body = json.loads(search(TOOLS, "issues in a repository"))
    first = body["tools"][0]
    assert first == {
        "name": "github__search_issues",
        "description": "Find issues in a repository.",
        "server": "github",
        "parameters": json.loads(bytes(ISSUES[0].parameters)),
    }
    assert TOOL_DISPATCHER_NAME in body["then"]
    native = json.loads(search(TOOLS, "issues", dispatch=False))
    assert TOOL_DISPATCHER_NAME not in native["then"] and native["then"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("GitHub issues", "github__search_issues"),
        ("find the repositories", "github__search_issues"),
        ("opening pull requests", "github__openPullRequest"),
        ("fetch a file", "files__read_text"),
        ("what is the weather in munich? wetter", "wetter"),
        ("bugs", "github__search_issues"),
        ("milestone", "github__search_issues"),
        ("pull request", "github__openPullRequest"),
        ("files__write_text", "files__write_text"),
        ("Write-Text", "files__write_text"),
        ("munchen", "wetter"),
        ("天气", "weather_cn"),
        ("预报", "weather_cn"),
        ("京", "kanji"),
        ("repo", "github__search_issues"),
        ("milest", "github__search_issues"),
    ],
)
def test_what_finds_what(query: str, name: str) -> None:
    assert names(search(TOOLS, query))[0] == name


def test_an_exact_name_comes_first_whatever_the_score() -> None:
    tools = [make("find", "x"), make("find_all", "find find find find"), make("other", "find")]
    assert names(search(tools, "find"))[0] == "find"
    assert names(search([make("a__go", "x"), make("b__stop", "go go go go")], "go"))[0] == "a__go"


def test_ties_go_by_name_and_order_does_not_count() -> None:
    tools = [make(f"tool_{letter}", "same words") for letter in "dbca"]
    expected = search(tools, "same", max_results=4)
    assert names(expected) == ["tool_a", "tool_b", "tool_c", "tool_d"]
    for seed in range(5):
        random.Random(seed).shuffle(tools)
        assert search(tools, "same", max_results=4) == expected


def test_the_rarer_word_counts_more() -> None:
    tools = [make(f"t{i}", "common words") for i in range(5)] + [make("z", "rare")]
    assert names(search(tools, "common rare"))[0] == "z"


@pytest.mark.parametrize(("most", "count"), [(0, 1), (1, 1), (3, 3), (50, 50), (99, 50)])
def test_the_number_of_results_is_bounded(most: int, count: int) -> None:
    tools = [make(f"tool_{i}", "same") for i in range(60)]
    body = json.loads(search(tools, "same", max_results=most))
    assert len(body["tools"]) == count and body["found"] == 60


def test_a_schema_is_shown_whole_or_not_at_all() -> None:
    big = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(100)}}
    tools = [make("a_big", "same same", big), make("b_small", "same"), make("c_big", "same", big)]
    text = search(tools, "same", budget=2_500)
    body = json.loads(text)
    shown = {found["name"]: found["parameters"] for found in body["tools"]}
    assert shown["b_small"] == {"type": "object", "properties": {}}
    for name, parameters in shown.items():
        assert name == "b_small" or parameters == big
    assert sorted([*shown, *body["more"]]) == ["a_big", "b_small", "c_big"]
    assert body["more"]
    assert len(text) < 2_500 + 500
    assert names(search(tools, "same", budget=10)) == []


def test_a_server_without_a_query_is_listed_by_full_names() -> None:
    body = json.loads(search(TOOLS, server="files"))
    assert body["more"] == ["files__read_text", "files__write_text"]
    assert (body["found"], body["tools"]) == (2, [])
    assert "Search" in body["then"]
    everything = json.loads(search(TOOLS, "  "))
    assert everything["more"] == sorted(tool.name for tool, _ in TOOLS)
    cut = json.loads(search(TOOLS, budget=40))
    assert len(cut["more"]) < len(TOOLS) and "left out" in cut["note"]


@pytest.mark.parametrize("server", ["github", "GitHub", "mcp-github", "git-hub", ["files", "x"]])
def test_a_server_narrows_the_search_however_it_is_spelled(server: Any) -> None:
    found = names(search(TOOLS, "open find read", server=server, max_results=50))
    start = "files__" if isinstance(server, list) else "github__"
    assert found and all(name.startswith(start) for name in found)


def test_an_empty_answer_says_why() -> None:
    def note(*args: Any, **options: Any) -> str:
        return json.loads(search(*args, **options))["note"]

    assert "no tools to be found" in note([], "x")
    assert note(TOOLS, "qqqq").startswith("No tool matches")
    assert "Did you mean github?" in note(TOOLS, "x", server="githob")
    assert note(TOOLS, "x", server="zzz").startswith("There is no server of this name. Search")
    assert note(TOOLS, "x", server="tracker", servers=["tracker"]).startswith("This server has no")


def test_an_answer_from_argument_text() -> None:
    assert answer('{"query":"read","max_results":1.0}', TOOLS) == search(
        TOOLS, "read", max_results=1
    )
    assert answer(b'{"server":["files"]}', TOOLS) == search(TOOLS, server="files")
    assert answer("", TOOLS, servers=["x"]) == search(TOOLS)
    with pytest.raises(ContentError):
        answer("[1]", TOOLS)


def test_case_t27_a_disabled_tool_is_absent_from_search() -> None:
    def listed(**rules: Any) -> list[str]:
        pool = [e for e in TOOLS if is_dispatchable(e[0], bound={"wetter"}, **rules)]
        return json.loads(search(pool))["more"]

    assert "kanji" in listed() and "wetter" not in listed()
    assert "kanji" not in listed(disabled={"kanji"})
    assert listed(can_dispatch=lambda name, _: name == "kanji") == ["kanji"]


def test_terms() -> None:
    assert list(terms("getHTTPResponse2_codes Größe classes bus")) == [
        *("get", "http", "response2", "gethttpresponse2"),
        *("cod", "gross", "class", "bus"),
    ]
    assert list(terms("北京天气 x")) == ["北京", "京天", "天气", "x"]
    assert list(terms("날씨")) == ["날씨"]
    assert list(terms("สภาพ"))[:1] == ["สภ"]


@pytest.mark.parametrize(
    "words",
    [
        "file files filing filed",
        "stage staged staging stages",
        "commit commits committed committing",
        "directory directories",
        "translate translation translations translating",
        "deploy deployment deployments deploying",
        "search searches searched searching",
        "class classes",
        "status",
    ],
)
def test_forms_of_a_word_are_one_term(words: str) -> None:
    assert len(set(terms(words))) == 1


def test_words_that_say_nothing_count_only_alone() -> None:
    tools = [make("how_to", "how to do what you want"), make("bake", "Bake a cake.")]
    assert names(search(tools, "how do I bake a cake")) == ["bake"]
    assert names(search(tools, "how to")) == ["how_to"]


def test_an_index_is_kept_while_the_tools_are_equal() -> None:
    indexes = Indexes(most=2)
    first = indexes.of(TOOLS)
    assert indexes.of(list(TOOLS)) is first
    other = indexes.of(TOOLS[1:])
    assert other is not first
    assert indexes.of(TOOLS) is first
    changed = [make("kanji", "another"), *TOOLS[:-1]]
    assert indexes.of(changed) is not first
    assert indexes.of(TOOLS[1:]) is not other, "only the last two are kept"


def test_a_changed_definition_is_found_by_its_new_words() -> None:
    tools = [make("one", "about cats"), make("two", "about dogs")]
    assert names(search(tools, "cats")) == ["one"]
    assert names(search([make("one", "about birds"), tools[1]], "cats")) == []
    assert names(search([make("one", "about birds"), tools[1]], "birds")) == ["one"]


# -- real servers ---------------------------------------------------------------------------

DATA = Path(__file__).parents[1] / "data"


def real_tools() -> list[Entry]:
    servers = json.loads((DATA / "mcp_tools.json").read_text("utf-8"))
    return [
        make(f"{each['server']}__{tool['name']}", tool["description"], tool["parameters"],
             each["server"])
        for each in servers
        for tool in each["tools"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("questions", "least"), [("search_questions.json", 28), ("search_questions_later.json", 18)]
)
def test_the_right_tool_of_real_servers_is_among_the_first_three(
    questions: str, least: int
) -> None:
    """The first questions were written before the first run; ranking was improved by them.

    The later ones were written then, before they were asked: 16 of 20 were answered, and after
    words in capitals (`MongoDB`) were understood, 18.
    """
    tools = real_tools()
    assert len(tools) > 400
    asked = json.loads((DATA / questions).read_text("utf-8"))
    right = [
        bool({*names(search(tools, each["question"], max_results=3))} & {*each["right"]})
        for each in asked
    ]
    assert sum(right) >= least, [
        each["question"] for each, ok in zip(asked, right, strict=True) if not ok
    ]


@given(st.text(max_size=300), st.text(max_size=30))
def test_any_query_gives_json(query: str, server: str) -> None:
    body = json.loads(search(TOOLS, query, server=server))
    assert set(body) <= {"found", "tools", "more", "note", "then"}
