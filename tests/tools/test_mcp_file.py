from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from addendum import Agent
from addendum.errors import ConfigurationError
from addendum.tools.mcp.file import FOREIGN, read_mcp_file, server_specs
from addendum.tools.mcp.values import ServerSpec


def write(path: Path, servers: Any) -> Path:
    place = path / ".mcp.json"
    place.write_text(json.dumps({"mcpServers": servers}))
    return place


def test_reads_the_usual_file_in_its_order(tmp_path: Path) -> None:
    place = write(
        tmp_path,
        {
            "time": {
                "command": "${BIN:-/usr/bin}/server",
                "args": ["--zone", "${ZONE}"],
                "env": {"TOKEN": "${TOKEN}"},
                "cwd": "/srv",
                "disabled": False,
            },
            "api": {
                "type": "http",
                "url": "https://${HOST:-localhost}/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "on": True,
                "defer": True,
            },
        },
    )
    specs = read_mcp_file(place, {"ZONE": "$HOME", "TOKEN": "t0ken", "HOST": ""})
    assert specs == (
        ServerSpec(
            name="time",
            command=("/usr/bin/server", "--zone", "$HOME"),
            env=(("TOKEN", "t0ken"),),
            cwd="/srv",
        ),
        ServerSpec(
            name="api",
            url="https://localhost/mcp",
            headers=(("Authorization", "Bearer t0ken"),),
            on=True,
            defer=True,
        ),
    )


def test_takes_the_variables_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDENDUM_TEST_BIN", "prog")
    (spec,) = read_mcp_file(write(tmp_path, {"a": {"command": "${ADDENDUM_TEST_BIN}"}}))
    assert spec.command == ("prog",)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (7, "is no object"),
        ({}, 'needs either a "command" or a "url"'),
        ({"command": "a", "url": "http://b"}, 'needs either a "command" or a "url"'),
        ({"command": ""}, "is empty"),
        ({"command": []}, '"command" must be a program, or a list'),
        ({"command": [7]}, '"command" must be text, not 7'),
        ({"command": "a", "args": "b"}, '"args" must be a list'),
        ({"command": "a", "args": [1]}, '"args" must be a list'),
        ({"command": "a", "env": {"A": 1}}, '"env" must be an object of texts'),
        ({"command": "a", "on": "yes"}, '"on" must be true or false'),
        ({"url": "ftp://x"}, "must begin with http"),
        ({"url": "http://"}, "and a host"),
        ({"url": "http://[::x"}, "and a host"),
        ({"url": "http://u:hunter2hunter2@h:99999/x"}, "url=... must"),
        ({"url": "http://x/a\nb"}, "and a host"),
        ({"url": "http://x", "type": "sse"}, "old SSE transport"),
        ({"url": "http://x", "type": "stdio"}, 'needs a "command"'),
        ({"command": "a", "type": "http"}, 'needs a "url"'),
        ({"command": "a", "type": "telnet"}, "must be stdio or http"),
        ({"command": "${NOT_THERE}"}, "needs the environment variable NOT_THERE"),
    ],
)
def test_a_bad_server_is_told_in_one_line(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_mcp_file(write(tmp_path, {"bad": entry}), {})
    assert "\n" not in str(caught.value)
    assert "'bad'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not usable"),
        ("[]", "names no servers"),
        ('{"mcpServers": []}', "names no servers"),
        ('{"servers": {}}', "names no servers"),
        ('{"mcpServers": {"": {"command": "a"}}}', "unusable name"),
        ('{"mcpServers": {"a\\nb": {"command": "a"}}}', "unusable name"),
        (" " * (1024 * 1024 + 1), "more than"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' stands twice"),
        (
            '{"mcpServers": {"a": {"command": "x",}, "a": {"command": "y"}}} // b',
            "'a' stands twice",
        ),
        ('{"mcpServers": {"a": {"url": "http://x", "url": "http://y"}}}', "'url' stands twice"),
        ('{"mcpServers": {}, "mcpServers": {"a": {"command": "y"}}}', "stands twice"),
        (
            '{"mcpServers": {"a": {"command": "x", "env": {"K": "1", "K": "2"}}}}',
            "'K' stands twice",
        ),
        ('{"mcpServers": {"a": {"command": "x", "timeout": ' + "9" * 5000 + "}}}", "out of range"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    place = tmp_path / "servers.json"
    place.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_mcp_file(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", ["command", "path of an address"])
def test_a_spec_shows_no_key(way: str) -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7h" * 4
    spec = (
        ServerSpec(name="s", command=(f"/opt/{key}/run",))
        if way == "command"
        else ServerSpec(name="s", url=f"http://x/{key}/mcp")
    )
    assert "aB3dE5fG7h" not in repr(spec) and "redacted" in repr(spec)


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        read_mcp_file(tmp_path / "none.json")


def test_a_secret_is_not_part_of_a_message(tmp_path: Path) -> None:
    place = write(tmp_path, {"bad": {"command": "a", "env": {"T": "${T}", "U": 7}}})
    with pytest.raises(ConfigurationError) as caught:
        read_mcp_file(place, {"T": "s3cret"})
    assert "s3cret" not in str(caught.value)


# -- all ways to give them ------------------------------------------------------------------

ENTRIES = {"time": {"command": "run", "args": ["a//b", "/* c */"]}, "api": {"url": "http://x/y"}}
TEXT = json.dumps({"mcpServers": ENTRIES}, indent=2)
COMMENTED = """// what we use
{
  /* servers, "quoted": // all of
     them */
  "mcpServers": {
    "time": {"command": "run", "args": ["a//b", "/* c */",],}, // the clock
    "api": {"url": "http://x/y"},
  },
}
"""
FILES = {
    "plain": TEXT.encode(),
    "with a mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "of another system": TEXT.replace("\n", "\r\n").encode("utf-16"),
    "in big-endian": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "with comments": COMMENTED.encode(),
    "with both": b"\xef\xbb\xbf" + COMMENTED.replace("\n", "\r\n").encode(),
    "with more in it": json.dumps({"$schema": "x", "inputs": [], "mcpServers": ENTRIES}).encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_servers_are_the_same_in_whatever_way_they_are_given(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(FILES[name])
    specs = server_specs(ENTRIES, {})
    for given in (file, str(file), {"mcpServers": ENTRIES}, specs, list(specs)):
        assert server_specs(given, {}) == specs
    as_lists = {"time": {"command": ["run", "a//b", "/* c */"]}, "api": specs[1]}
    assert server_specs(as_lists, {}) == specs
    assert Agent("anthropic:claude-opus-5-5", mcp_servers=str(file)).setup.servers == specs
    assert read_mcp_file(file, {}) == specs


@pytest.mark.parametrize("text", ["{ // only", '{"mcpServers": {"a": {"command": "x"} "b"}}', "/*"])
def test_a_comment_makes_no_other_mistake_good(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="is not usable"):
        server_specs(file)


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("comand", "command"),
        ("Command", "command"),
        ("arg", "args"),
        ("ENV", "env"),
        ("header", "headers"),
        ("On", "on"),
        ("defered", "defer"),
        ("cwdd", "cwd"),
    ],
)
def test_a_slip_in_a_field_is_told_with_what_was_meant(
    field: str, meant: str, tmp_path: Path
) -> None:
    for given in ({"a": {field: "x"}}, {"mcpServers": {"a": {field: "x", "url": "http://x"}}}):
        with pytest.raises(ConfigurationError, match=f"did you mean {meant!r}"):
            server_specs(given)
    with pytest.raises(ConfigurationError, match=f"did you mean {meant!r}") as caught:
        server_specs(write(tmp_path, {"a": {field: "x"}}))
    assert "'a'" in str(caught.value)


def test_what_other_programs_write_is_left_alone(tmp_path: Path) -> None:
    entry = {"command": "x"} | dict.fromkeys(FOREIGN, True)
    for given in ({"a": entry}, {"mcpServers": {"a": entry}}, write(tmp_path, {"a": entry})):
        assert server_specs(given) == (ServerSpec(name="a", command=("x",)),)
    # In a file nobody knows who else reads it; what was written for us is meant for us.
    strange = {"a": {"command": "x", "colour": "red"}}
    assert len(server_specs(write(tmp_path, strange))) == 1
    with pytest.raises(ConfigurationError, match=r"'colour' that nothing reads; there are: type"):
        server_specs(strange)


WRONG: list[tuple[Any, str]] = [
    (5, "mcp_servers=5"),
    (None, "mcp_servers=None"),
    ("", "''"),
    ("\0", "NUL"),
    ([{"command": "x"}], r"mcp_servers\[0\]"),
    (["x"], r"mcp_servers\[0\]='x'"),
    ({"a": "npx me:s3cret"}, "'a' is no object but text"),
    ({"a": None}, "no object but None"),
    ({5: {"command": "x"}}, "unusable name|must be text"),
    ({"a": ServerSpec(name="b", command=("x",))}, "'b'"),
    ({"mcpServers": 5}, "'mcpServers' is no object"),
    ({"mcpServers": {}, "b": {"command": "x"}}, "'b' stands beside 'mcpServers'"),
    ({"a": {"command": "x", "env": {"KEY": 5}}}, "'KEY' is none"),
    ({"a": {"command": "x", "headers": ["s3cret"]}}, "must be an object"),
    ({"a": {"command": ["x", 5]}}, "5 is none"),
    ({"a": {"command": "x", "args": {"a": 1}}}, "must be a list of texts"),
]


@pytest.mark.parametrize(("given", "says"), WRONG, ids=[says for _, says in WRONG])
def test_servers_that_are_none_are_told_in_one_line(given: Any, says: str) -> None:
    for take in (server_specs, lambda it: Agent("anthropic:claude-opus-5-5", mcp_servers=it)):
        with pytest.raises(ConfigurationError, match=says) as caught:
            take(given)
        assert "\n" not in str(caught.value) and "s3cret" not in str(caught.value)


def test_a_server_may_be_called_as_the_field_is() -> None:
    (spec,) = server_specs({"mcpServers": {"command": "x"}})
    assert (spec.name, spec.command) == ("mcpServers", ("x",))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        # As Cline, Roo and goose write it, and as Gemini CLI, opencode and LibreChat do.
        (60, 60.0),
        (1, 1.0),
        (0.5, 0.5),
        (3600, 3600.0),
        (5000, 5.0),
        (30_000, 30.0),
        (600_000, 600.0),
        (None, None),
    ],
)
def test_a_timeout_is_seconds_or_beyond_an_hour_milliseconds(
    given: float | None, seconds: float | None
) -> None:
    (spec,) = server_specs({"s": {"command": "x", "timeout": given}})
    assert spec.timeout == seconds
    assert spec.key() == server_specs({"s": {"command": "x"}})[0].key()


@pytest.mark.parametrize("given", [0, -1, True, "30", [30], float("inf"), float("nan"), 10**12])
def test_a_timeout_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match='"timeout" must be a number of seconds above 0'):
        server_specs({"s": {"command": "x", "timeout": given}})
