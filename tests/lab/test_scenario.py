from __future__ import annotations

from pathlib import Path

import pytest

from addendum.errors import ConfigurationError
from addendum.lab.filler import fill
from addendum.lab.places import given_values
from addendum.lab.scenario import (
    AddTool,
    Compact,
    Converse,
    Fork,
    MoveTo,
    Reach,
    Redefine,
    RemoveTool,
    Restart,
    Rewind,
    Say,
    Scenario,
    SetTexts,
    Toggle,
)
from addendum.lab.scenario_file import bundled, find, load

HEAD = """
name: x
instructions: Be brief.
tools: [{name: look, parameters: {properties: {q: {type: string}}}, result: seen}]
servers:
  files: {tools: [{name: read, result: text}, {name: write}]}
  real: {command: [python, -m, some_server]}
steps:
  - user: One.
    model: [{text: First.}]
"""


def read(tmp_path: Path, text: str, **values: str | int | None) -> Scenario:
    file = tmp_path / "s.yaml"
    file.write_text(text, "utf-8")
    return load(file, values)


def complaint(tmp_path: Path, text: str, **values: str | int | None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text, **values)
    message = str(caught.value)
    assert "\n" not in message
    return message


def says(scenario: Scenario) -> list[Say]:
    return [step for step in scenario.steps if isinstance(step, Say)]


def test_the_scenarios_that_come_with_addendum_can_be_read() -> None:
    names = bundled()
    assert set(names) >= {
        *("g2", "wide", "flap", "prompt-and-tool", "tail", "empty-head", "redefine"),
        "real-servers",
    }
    for name in names:
        scenario = find(name)
        assert scenario.name == name
        assert scenario.script().steps


def test_g2_is_the_chat_that_was_measured() -> None:
    scenario = find("g2")
    turns = says(scenario)
    assert (len(turns), sum(len(turn.entries) for turn in turns)) == (14, 29)
    assert [len(server.tools) for server in scenario.servers] == [4, 12, 25]
    before: dict[int, list[tuple[str, bool]]] = {}
    turn = 1
    for step in scenario.steps:
        if isinstance(step, Say):
            turn += 1
        elif isinstance(step, Toggle):
            before.setdefault(turn, []).append((step.server, step.on))
    tracker = scenario.servers[1].name
    assert before == {
        2: [("files", True)],
        4: [(tracker, True)],
        6: [("crm", True)],
        8: [(tracker, False)],
        10: [(tracker, True)],
    }
    results = [tool.result for server in scenario.servers for tool in server.tools]
    assert all(1_580 <= len(result) <= 1_600 for result in results)
    called = {call.tool for turn in turns for entry in turn.entries for call in entry.calls}
    for server in scenario.servers:
        assert called & {tool.name for tool in server.tools}


def test_every_kind_of_step_is_read(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        HEAD
        + """
  - enable: files
  - disable: files
  - add_tool: {name: more, result: {text: a, tokens: 10}}
  - remove_tool: more
  - redefine: {name: files__read, description: New.}
  - redefine: {name: look, result: other}
  - drop: files
  - back: files
  - set: {instructions: a, turn_instructions: null}
  - compact: {summary: Short.}
  - user: Two.
    model: [{calls: [{tool: look, arguments: {q: 1}, form: dispatch}]}, {text: Second.}]
  - rewind: {turns: 1}
  - fork: true
  - restart: true
  - route: "openai-chat:gpt-4.1"
  - conversation: other
""",
    )
    kinds = [type(step) for step in scenario.steps]
    assert kinds == [
        *(Say, Toggle, Toggle, AddTool, RemoveTool, Redefine, Redefine, Reach, Reach),
        *(SetTexts, Compact, Say, Rewind, Fork, Restart, MoveTo, Converse),
    ]
    assert scenario.restarts
    redefined = [step for step in scenario.steps if isinstance(step, Redefine)]
    assert (redefined[0].server, redefined[0].tool.name) == ("files", "read")
    assert (redefined[0].tool.description, redefined[0].tool.result) == ("New.", "text")
    assert (redefined[1].server, redefined[1].tool.result) == (None, "other")


@pytest.mark.parametrize(
    ("steps", "line", "said"),
    [
        ("  - enable: nothing", 11, "steps[1].enable: there is no server 'nothing'"),
        (
            "  - enable: on",
            11,
            "YAML takes 'on' for true or false; for the text write it in quotes",
        ),
        ("  - set: {instructions: 2026-01-05}", 11, "YAML takes '2026-01-05' for a date"),
        ("  - on: files", 11, "steps[1]: YAML takes 'on' for true or false"),
        ("  - {enable: files, disable: files}", 11, "a step does one thing"),
        ("  - enable: files\n    enable: files", 12, "the field 'enable' is there twice"),
        ("  - jump: files", 11, "there is no step 'jump'; there are: user, enable"),
        ("  - decide: {}", 11, "a decision is exactly one of approve, deny, edit, respond"),
        ("  - decide: []", 11, "decides nothing"),
        ("  - decide: {approve: look, deny: look}", 11, "exactly one of approve, deny"),
        ("  - decide: {approve: look, text: a}", 11, "goes with deny and respond only"),
        ("  - decide: {edit: look}", 11, "an edit needs `arguments`"),
        ("  - decide: {edit: look, arguments: [1]}", 11, "must be an object"),
        ("  - decide: [{approve: look}, {deny: look}]", 11, "'look' is decided twice"),
        ("  - user: One.\n    model: [{text: a}]", 11, "this user text is there already"),
        ("  - user: ''\n    model: [{text: a}]", 11, "the user text is empty"),
        ("  - user: Two.", 11, "the step has no `model`"),
        ("  - user: Two.\n    model: []", 12, "the last entry has to be a text"),
        ("  - user: Two.\n    model: [{calls: [{tool: look}]}]", 12, "the last entry has to be"),
        ("  - user: Two.\n    model: [{text: a}, {text: b}]", 12, "only the last entry"),
        ("  - user: Two.\n    model: [{say: b}]", 12, "no field 'say' here; there are: text"),
        ("  - user: Two.\n    model: [{}]", 12, "an entry has a text or calls"),
        ("  - user: Two.\n    model: [{calls: [{tool: a, arguments: [1]}]}]", 12, "an object"),
        ("  - user: Two.\n    model: [{calls: [{tool: a, form: x}]}]", 12, "one of auto, direct"),
        ("  - user: 5\n    model: [{text: a}]", 11, "must be text, not '5'"),
        ("  - rewind: {turns: 2}", 11, "cannot rewind 2 turns; the conversation has 1"),
        ("  - rewind: {turns: yes}", 11, "a whole number from 1 to 1,000, not 'yes'"),
        ("  - compact: {summary: a}\n  - compact: {summary: b}", 12, "nothing to compact"),
        ("  - conversation: b\n  - compact: {summary: b}", 12, "nothing to compact"),
        ("  - drop: real", 11, "real is no server made of `tools`"),
        ("  - remove_tool: read", 11, "there is no function tool of this name"),
        ("  - add_tool: {name: call_tool}", 11, "'call_tool' is reserved"),
        ("  - add_tool: {name: a, disabled: true}", 11, "there is no field 'disabled' here"),
        ("  - redefine: {name: look}", 11, "say what is new"),
        ("  - redefine: {name: gone, result: a}", 11, "no function tool or canned server's tool"),
        ("  - redefine: {name: look, parameters: [a]}", 11, "must be a JSON schema"),
        ("  - fork: false", 11, "must be true"),
        ("  - restart: 1", 11, "must be true or false, not '1'"),
        ("  - set: {}", 11, "say which instructions change"),
        ("  - set: {tone: a}", 11, "there is no field 'tone' here"),
        ("  - set: {instructions: {text: a, tokens: 0}}", 11, "must be from 1 to 200,000"),
        ("  - enable: files\n    model: [{text: a}]", 12, "goes with a user step only"),
        ("  - conversation: a/b", 11, "printable characters without `/`"),
        ("  - text", 11, "must be an object, not text"),
        ("  - enable: [files]", 11, "must be text, not a list"),
        ("  - enable: !!python/name:os.system a", 11, "must be text"),
        ("  - *nowhere", 11, "no valid YAML"),
        ("  - enable: 'a", 12, "no valid YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_place(
    tmp_path: Path, steps: str, line: int, said: str
) -> None:
    message = complaint(tmp_path, HEAD + steps + "\n")
    assert message.startswith(f"{tmp_path / 's.yaml'}:{line}:"), message
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[]", "must be an object"),
        ("steps: []", "the field 'name' is missing"),
        ("name: x\nsteps: []", "no step has a user text"),
        ("name: x\nsteps: {}", "must be a list, not an object"),
        ("name: x\ntail: end\nsteps: []", "must be one of auto, moved, kept, scoped"),
        ("name: x\ntools: [{name: a}, {name: a}]\nsteps: []", "two tools named 'a'"),
        ("name: x\ntools: [{name: a b}]\nsteps: []", "tool name 'a b' is not usable"),
        ("name: x\ntools: [{name: a, waits_for: b}]\nsteps: []", "there is no server 'b'"),
        ("name: x\nservers: {a: {}}\nsteps: []", "exactly one of command, url and tools"),
        ("name: x\nservers: {a: {command: []}}\nsteps: []", "must name a program"),
        ("name: x\nservers: {a: {tools: [], start: on}}\nsteps: []", "YAML takes 'on'"),
        ("name: x\nservers: {a: {url: u, repository: true}}\nsteps: []", "'command' only"),
        ("name: x\nservers: {a: {url: u, instructions: i}}\nsteps: []", "'tools' only"),
        ("name: x\nservers: {a: {tools: [{name: b, disabled: true}]}}\nsteps: []", "no field"),
        ("name: .nan\nsteps: []", "must be text"),
        ("name: x\ntools: [{name: a, parameters: {enum: [.inf]}}]\nsteps: []", "JSON does not"),
    ],
)
def test_a_file_that_is_no_scenario_says_so(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(ConfigurationError, match="no text in UTF-8"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_text("#" * 1024 * 1025, "utf-8")
    with pytest.raises(ConfigurationError, match=r"more than 1,048,576 bytes"):
        load(tmp_path / "big.yaml")
    with pytest.raises(ConfigurationError, match="no scenario 'nope'; there are empty-head"):
        find("nope")


def test_aliases_cannot_make_a_small_file_endless(tmp_path: Path) -> None:
    levels = "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    text = f"name: x\nsteps: []\ntools:\n- name: t\n  parameters:\n   a0: &a0 [1]\n{levels}"
    text = text.replace("\n  a", "\n   a")
    assert "more than 100,000 values" in complaint(tmp_path, text)
    deep = "[" * 60 + "]" * 60
    message = complaint(tmp_path, f"name: x\nsteps: []\ntools: [{{name: t, parameters: {deep}}}]")
    assert "nested deeper than 50 levels" in message


def test_a_merge_key_is_no_field(tmp_path: Path) -> None:
    text = "name: x\ntools:\n- &a {name: a}\n- {<<: *a, name: b}\nsteps: []"
    assert "YAML takes" in complaint(tmp_path, text) or "'<<'" in complaint(tmp_path, text)


def test_the_place_of_the_tail_is_read(tmp_path: Path) -> None:
    for tail in ("auto", "moved", "kept", "scoped"):
        assert read(tmp_path, f"tail: {tail}\n{HEAD}").tail == tail


# -- variables, repeats, filler -----------------------------------------------------------------

COUNTED = """
name: x
variables: {count: 2, word: small, tail: null}
turn_instructions: $tail
servers:
  s:
    tools:
      - {repeat: $count, name: t_$n, description: "A $word one, number $n of $count; $$ref $other."}
steps:
  - user: Go.
    model:
      - calls: [{tool: t_$n, arguments: {n: $n, text: "$n"}, repeat: $count}]
      - text: Done.
"""


def test_variables_keep_their_type_and_fill_texts(tmp_path: Path) -> None:
    scenario = read(tmp_path, COUNTED)
    assert [tool.name for tool in scenario.servers[0].tools] == ["t_1", "t_2"]
    described = scenario.servers[0].tools[1].description
    assert described == "A small one, number 2 of 2; $$ref $other."
    assert scenario.turn_instructions is None
    calls = says(scenario)[0].entries[0].calls
    assert [call.arguments for call in calls] == [{"n": 1, "text": 1}, {"n": 2, "text": 2}]
    given = read(tmp_path, COUNTED, count=3, tail="Now.")
    assert (len(given.servers[0].tools), given.turn_instructions) == (3, "Now.")


def test_what_is_repeated_no_time_is_not_there(tmp_path: Path) -> None:
    scenario = read(tmp_path, COUNTED, count=0)
    assert scenario.servers[0].tools == ()
    assert [entry.text for entry in says(scenario)[0].entries] == ["Done."]


def test_values_from_outside_have_to_be_known(tmp_path: Path) -> None:
    assert "has no variable 'size'; there are: count, word, tail" in complaint(
        tmp_path, COUNTED, size=1
    )
    assert "from 0 to 1,000, not 5,000" in complaint(tmp_path, COUNTED, count=5000)
    assert given_values(["a=60", "b=null", "c=on time", "d=", "e=a=b"]) == {
        "a": 60,
        "b": None,
        "c": "on time",
        "d": None,
        "e": "a=b",
    }
    for pair in ("a", "=1", "a b=1", "a=on"):
        with pytest.raises(ConfigurationError):
            given_values([pair])


def test_filler_has_about_the_size_and_is_always_the_same(tmp_path: Path) -> None:
    for tokens in (1, 7, 50, 2_000):
        made = fill("Begin here.", tokens)
        assert made.startswith("Begin here.")
        assert max(11, 4 * tokens - 1) <= len(made) <= max(11, 4 * tokens)
        assert made == fill("Begin here.", tokens)
    assert fill("a", 100)[1:] != fill("b", 100)[1:]
    assert fill("ä" * 40, 10) == "ä" * 40
    text = "name: x\ninstructions: {text: Hello., tokens: 100}\n" + HEAD.partition("brief.\n")[2]
    assert read(tmp_path, text).instructions == fill("Hello.", 100)


# -- the script ---------------------------------------------------------------------------------


def test_a_summary_answers_after_the_newest_message_that_still_stands(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        HEAD
        + """
  - user: Two.
    model: [{text: Second.}]
  - rewind: {turns: 1}
  - compact: {summary: Until one.}
  - user: Three.
    model: [{text: Third.}]
  - conversation: other
  - user: Four.
    model: [{text: Fourth.}]
  - conversation: main
  - fork: true
  - compact: {summary: In the fork.}
  - conversation: other
  - compact: {summary: In the other one.}
""",
    )
    summaries = {step.user: step.summary for step in scenario.script().steps}
    assert summaries == {
        "One.": "Until one.",
        "Two.": None,
        "Three.": "In the fork.",
        "Four.": "In the other one.",
    }
