"""Importers: files of captured requests that others write, and files that are damaged."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cache.captures import read_captures

from addendum import encoding
from addendum.cache import capture_archives, capture_files
from addendum.cache.capture import Known, record_of
from addendum.cache.capture_files import iter_captures
from addendum.cache.record import RequestRecord
from addendum.cache.reported import usage_in, usage_of
from addendum.errors import ContentError
from addendum.log.values import Usage

CLAUDE = {
    "model": "claude-opus-5-5",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "a"}],
}
CHAT = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "a"}]}
ANSWER = {"usage": {"input_tokens": 5, "cache_read_input_tokens": 30, "output_tokens": 2}}
STREAM = (
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":5,'
    '"cache_read_input_tokens":30,"output_tokens":1}}}\n\n'
    'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":2,'
    '"input_tokens":null}}\n\n'
)
READ = (35, 30, None, 2)


def counted(usage: Usage) -> tuple[int | None, ...]:
    return usage.prompt, usage.cache_read, usage.cache_write, usage.output


def written(folder: Path, text: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# -- JSON ---------------------------------------------------------------------------------------


def test_lines_are_bodies_with_their_very_bytes(tmp_path: Path) -> None:
    line = json.dumps(CHAT, indent=None, separators=(" , ", " : "))
    path = written(tmp_path, f"{line}\n\n{json.dumps(CLAUDE)}\r\n")
    first, second = read_captures(path)
    assert first.body == line.encode()
    assert (first.where, second.where) == (f"{path}:1", f"{path}:3")
    assert first.known is None and first.usage == Usage()


def test_lines_may_be_objects_around_bodies(tmp_path: Path) -> None:
    said = {
        "url": "https://api.anthropic.com/v1/messages",
        "headers": {"X-Api-Key": "secret", "Anthropic-Beta": "b", "authorization": "secret"},
        "body": CLAUDE,
        "response": ANSWER,
        "time": "2026-11-30T10:00:00Z",
        "status": 200,
        "session": "one",
    }
    text = {**said, "body": json.dumps(CLAUDE), "usage": {"prompt": 3, "cache_read": True}}
    first, second = read_captures(written(tmp_path, f"{json.dumps(said)}\n{json.dumps(text)}"))
    assert first.headers == {"anthropic-beta": "b"}
    assert counted(first.usage) == READ
    assert (first.time, first.status, first.session) == (1796032800.0, 200, "one")
    assert json.loads(second.body) == CLAUDE
    assert counted(second.usage) == (3, None, None, None)


def test_a_file_may_hold_one_body_or_a_list(tmp_path: Path) -> None:
    for text in (
        json.dumps(CHAT),
        json.dumps(CHAT, indent=1),
        json.dumps([CHAT]),
        f"\ufeff{json.dumps([CHAT], indent=2)}",
    ):
        (found,) = read_captures(written(tmp_path, text))
        assert json.loads(found.body) == CHAT


def test_a_body_keeps_its_very_bytes_in_every_form(tmp_path: Path) -> None:
    body = '{"messages" :[1e2,"\\u00e9"], "model":"m"}'
    for text in (
        f'{{"body": {body}, "time": 1}}',
        f'[{{"body": {body}}}]',
        f'{{"requests": [{{"body": {body}}}]}}',
        json.dumps({"body": body}),
        har(entry("https://h/v1/messages", body)),
    ):
        (found,) = read_captures(written(tmp_path, text))
        assert found.body == body.encode()


def test_requests_are_put_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    lines = [
        json.dumps({"body": {**CHAT, "user": name}, "time": at})
        for name, at in (("b", 2), ("a", 1))
    ]
    found = read_captures(written(tmp_path, "\n".join(lines)))
    assert [json.loads(each.body)["user"] for each in found] == ["a", "b"]
    lines.append(json.dumps({"body": CHAT}))
    found = read_captures(written(tmp_path, "\n".join(lines)))
    assert [json.loads(each.body).get("user") for each in found] == ["b", "a", None]


# -- HAR and cassettes --------------------------------------------------------------------------


def har(*entries: dict[str, Any]) -> str:
    return json.dumps({"log": {"version": "1.2", "entries": list(entries)}}, indent=1)


def entry(url: str, body: Any, answer: str = "", **more: Any) -> dict[str, Any]:
    return {
        "startedDateTime": "2026-11-30T10:00:00.000Z",
        "request": {
            "method": "POST",
            "url": url,
            "headers": [{"name": "Authorization", "value": "secret"}],
            "postData": {"text": body if isinstance(body, str) else json.dumps(body)},
        },
        "response": {"status": 200, "content": {"text": answer, **more}},
    }


def test_a_har_gives_its_requests_to_models_only(tmp_path: Path) -> None:
    packed = base64.b64encode(STREAM.encode()).decode()
    path = written(
        tmp_path,
        har(
            {"request": {"method": "GET", "url": "https://x/models"}},
            entry("https://x/telemetry", {"events": []}),
            entry("https://api.anthropic.com/v1/messages/count_tokens", CLAUDE),
            entry("https://api.anthropic.com/v1/messages", CLAUDE, packed, encoding="base64"),
            entry("https://x/telemetry", "not json"),
            entry("https://api.openai.com/v1/chat/completions", CHAT),
        ),
    )
    first, second = read_captures(path)
    assert (first.where, second.where) == (f"{path}: entry 4", f"{path}: entry 6")
    assert counted(first.usage) == READ
    assert first.headers == {} and first.time == 1796032800.0
    assert second.usage == Usage()


def test_cassettes_are_read_in_the_forms_that_recorders_write(tmp_path: Path) -> None:
    body = json.dumps(CLAUDE)
    zipped = base64.b64encode(gzip.compress(json.dumps(ANSWER).encode())).decode()
    text = f"""
interactions:
- request: {{method: GET, uri: https://api.anthropic.com/v1/models, body: null}}
  response: {{status: {{code: 200}}, body: {{string: '{{}}'}}}}
- request:
    method: POST
    uri: https://api.anthropic.com/v1/messages
    headers: {{x-api-key: [secret], anthropic-version: ['2023-06-01']}}
    body: '{body}'
  response:
    status: {{code: 200, message: OK}}
    headers: {{content-encoding: [gzip]}}
    body:
      string: !!binary {zipped}
- request:
    method: POST
    uri: https://api.anthropic.com/v1/messages
    parsed_body: {body}
  response:
    status: {{code: 200}}
    parsed_body: {json.dumps(ANSWER)}
version: 1
"""
    path = written(tmp_path, text)
    first, second = read_captures(path)
    assert first.where == f"{path}: interaction 2"
    assert first.body == body.encode()
    assert first.headers == {"anthropic-version": "2023-06-01"}
    assert counted(first.usage) == counted(second.usage) == READ
    as_json = json.dumps(
        {"interactions": [{"request": {"uri": "https://x/v1/messages", "body": body}}]}
    )
    (third,) = read_captures(written(tmp_path, as_json))
    assert third.body == body.encode()


# -- what cannot be read ------------------------------------------------------------------------

GOOD = json.dumps(CHAT)
CUT = json.dumps([CHAT, CHAT], indent=1)[:-20]
ELSEWHERE = {"model": "gpt-6", "input": [], "previous_response_id": "r"}


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (f"{GOOD}\n{GOOD[:-9]}", ":2", "not valid JSON"),
        (f"{GOOD[:-9]}\n{GOOD}", ":1", "not valid JSON"),
        (GOOD[:-9], ":1", "not valid JSON"),
        (CUT, f":{len(CUT.splitlines())}", "not valid JSON"),
        (f"{GOOD}\n[1]", ":2", "no request to a model"),
        (f"{GOOD}\nnull", ":2", "no request to a model"),
        (f'{GOOD}\n{{"body": "plain text"}}', ":2", "its `body` is no JSON object"),
        (f'{GOOD}\n{{"body": "{{\\"messages\\": ["}}', ":2", "not valid JSON"),
        (f'{GOOD}\n{{"a": NaN}}', ":2", "not valid JSON"),
        (f'{GOOD}\n{{"a": 1e999}}', ":2", "not valid JSON"),
        (f"{GOOD}\n" + '{"a":' + "[" * 5000 + "]" * 5000 + "}", ":2", "nested deeper"),
        (json.dumps(ELSEWHERE), ":1", "its history lies with the provider"),
        (
            '{"body": {"messages": []}, "addendum": {"n": "x"}}',
            ":1",
            "not what an export writes",
        ),
        ("plain text", ":1", "neither JSON lines nor HAR"),
        ("", ":1", "neither JSON lines nor HAR"),
        (b"\x00\x01\x02", ":1", "neither JSON lines nor HAR"),
        (b"\xff\xfe{\x00}\x00", ":1", "it is UTF-16; save it as UTF-8"),
        (GOOD.encode() + b'\n{"messages":["\xff"]}', ":2", "not valid JSON"),
        ("interactions:\n- request: {uri: a\n- b", ":3", "not valid YAML"),
        ("interactions: [" + "[" * 3000, ":1", "not valid YAML"),
        ("interactions: []", ": no", "no request to a model in it"),
        (
            har(entry("https://api.openai.com/v1/chat/completions", '{"messages": [')),
            ": entry 1",
            "not valid JSON",
        ),
        (har(), ": no", "no request to a model in it"),
        ("[]", ": no", "no request to a model in it"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(
    tmp_path: Path, text: str | bytes, place: str, what: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ContentError) as caught:
        read_captures(path)
    message = str(caught.value)
    assert message.startswith(f"{path}{place}"), message
    assert what in message, message
    assert "\n" not in message and len(message) < 1000


def test_a_file_that_is_not_there_or_too_large_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ContentError, match=r"cannot read .*none: No such file"):
        read_captures(tmp_path / "none")
    with pytest.raises(ContentError, match="cannot read"):
        read_captures(tmp_path)
    monkeypatch.setattr(capture_files, "MAX_FILE", 10)
    with pytest.raises(ContentError, match="bytes are over the limit of 10"):
        read_captures(written(tmp_path, GOOD))
    monkeypatch.undo()
    monkeypatch.setattr(capture_files, "MAX_WHOLE", 10)
    with pytest.raises(ContentError, match="over the limit of 10"):
        read_captures(written(tmp_path, json.dumps([CHAT])))
    monkeypatch.setattr(capture_files, "MAX_WHOLE", 1000)
    monkeypatch.setattr(capture_files, "MAX_PARTS", 20)
    with pytest.raises(ContentError, match="40 parts of one JSON value are over the limit of 20"):
        read_captures(written(tmp_path, '{"log":{"entries":[' + "{}," * 18 + "{}]}}"))
    monkeypatch.setattr(encoding, "MAX_TEXT", 50)
    with pytest.raises(ContentError, match="file:1: the line is longer than 50 bytes"):
        read_captures(written(tmp_path, f"{json.dumps(CHAT)}\n{json.dumps(CHAT)}\n"))
    monkeypatch.setattr(capture_archives, "MAX_YAML", 10)
    with pytest.raises(ContentError, match="over the limit of 10"):
        read_captures(written(tmp_path, "interactions: []"))


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ContentError, match="it is no regular file; write it to one first"):
            read_captures(path)


def test_a_reference_that_repeats_itself_is_not_unfolded(tmp_path: Path) -> None:
    bomb = "\n".join([f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 30)])
    for what in ("[*a29]", "[{request: {uri: 'https://x.org/v1/messages', parsed_body: *a29}}]"):
        text = f"a0: &a0 [x]\n{bomb}\ninteractions: {what}\n"
        with pytest.raises(ContentError, match="stand for more than 268,435,456 bytes"):
            read_captures(written(tmp_path, text))
    for body in ("&a {messages: [*a]}", "&a [*a]"):
        itself = f"interactions:\n- request: {{uri: 'https://x.org/v1/messages', body: {body}}}\n"
        with pytest.raises(ContentError, match="stands for itself"):
            read_captures(written(tmp_path, itself))


def test_an_address_that_is_none_says_nothing(tmp_path: Path) -> None:
    for url in ("http://[::1/v1/messages", "http://host:99999999/v1/messages"):
        (found,) = read_captures(written(tmp_path, json.dumps({"url": url, "body": CHAT})))
        assert record_of(found, 1, "x").wire == "openai_chat"
        entry = {"request": {"url": url, "postData": {"text": json.dumps(CHAT)}}, "response": {}}
        assert read_captures(written(tmp_path, json.dumps({"log": {"entries": [entry]}})))


# -- usage --------------------------------------------------------------------------------------

CHAT_STREAM = (
    'data: {"usage": null}\n\ndata: {"usage": {"prompt_tokens": 9, "completion_tokens": 1, '
    '"prompt_tokens_details": {"cached_tokens": 8}}}\n\ndata: [DONE]\n\n'
)
RESPONSES_STREAM = (
    'data: {"response": {"usage": {"input_tokens": 9, "output_tokens": 1, '
    '"input_tokens_details": {"cached_tokens": 8}}}}\n\n'
)


@pytest.mark.parametrize(
    ("wire", "answer", "expected"),
    [
        ("anthropic_messages", json.dumps({"type": "message", "content": [], **ANSWER}), READ),
        ("anthropic_messages", STREAM, READ),
        ("anthropic_messages", STREAM.replace("\n", "\r\n"), READ),
        ("anthropic_messages", STREAM[:60], (None,) * 4),
        ("openai_chat", CHAT_STREAM, (9, 8, None, 1)),
        ("openai_responses", RESPONSES_STREAM, (9, 8, None, 1)),
        ("gemini", '[{"usageMetadata": {"promptTokenCount": 9}}]', (9, 0, None, 0)),
        (
            "bedrock_converse",
            '{"usage": {"inputTokens": 9, "outputTokens": 1}}',
            (9, None, None, 1),
        ),
        ("bedrock_converse", "<html>", (None,) * 4),
        ("openai_chat", "<html>", (None,) * 4),
        ("openai_chat", '{"error": {}}', (None,) * 4),
        ("anthropic_messages", '{"usage": {"input_tokens": "many"}}', (None,) * 4),
    ],
)
def test_usage_is_read_from_answers(wire: str, answer: str, expected: tuple[Any, ...]) -> None:
    assert counted(usage_in(wire, answer)) == expected
    assert counted(usage_in(wire, gzip.compress(answer.encode()), "gzip")) == expected


def test_an_answer_that_cannot_be_unpacked_is_unknown() -> None:
    assert usage_in("openai_chat", b"\x1f\x8bnothing", "gzip") == Usage()
    assert usage_in("openai_chat", b"\x28\xb5\x2f\xfd", "zstd") == Usage()
    bomb = gzip.compress(b" " * 50_000_000, 1)
    assert usage_in("openai_chat", bomb, "gzip") == Usage()


def test_usage_in_our_words_refuses_what_is_no_count() -> None:
    assert usage_of("openai_chat", {"prompt": -1, "cache_read": 2.5, "output": "x"}) == Usage()
    assert usage_of("openai_chat", None) == Usage()


def test_lines_out_of_order_are_read_one_at_a_time_by_their_places(tmp_path: Path) -> None:
    lines = [json.dumps({"time": at, "body": {**CHAT, "user": str(at)}}) for at in (3, 1, 2)]
    path = written(tmp_path, "\ufeff" + lines[0] + "\n\n" + "\r\n".join(lines[1:]))
    found = read_captures(path)
    assert [json.loads(each.body)["user"] for each in found] == [
        "1",
        "2",
        "3",
    ]
    assert [each.where for each in found] == [f"{path}:3", f"{path}:4", f"{path}:1"]


def test_a_file_is_read_no_further_than_it_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, f"{GOOD}\n{GOOD}\nnothing")
    reading = iter_captures(path)
    assert next(reading).where == f"{path}:1"
    assert next(reading).where == f"{path}:2"
    with pytest.raises(ContentError, match=":3: not valid JSON"):
        next(reading)


def test_what_is_known_of_a_request_is_kept_with_it() -> None:
    apart = {"body", "usage", "time_sent", "parent"}
    assert {*Known.__struct_fields__} == {*RequestRecord.__struct_fields__} - apart
