from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from addendum.errors import ConfigurationError
from addendum.tools.mcp import ServerSpec
from addendum.tools.mcp_file import read_mcp_file


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
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    place = tmp_path / "servers.json"
    place.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_mcp_file(place)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        read_mcp_file(tmp_path / "none.json")


def test_a_secret_is_not_part_of_a_message(tmp_path: Path) -> None:
    place = write(tmp_path, {"bad": {"command": "a", "env": {"T": "${T}", "U": 7}}})
    with pytest.raises(ConfigurationError) as caught:
        read_mcp_file(place, {"T": "s3cret"})
    assert "s3cret" not in str(caught.value)
