"""Every form behind every separator, however deep, however written; harmless text stays."""

from __future__ import annotations

import html
import json
from typing import Any
from urllib.parse import quote

import pytest
from tests.masking.samples import HARMLESS, SEPARATORS, all_of_them, blob, key, keys, left, nested

from addendum.masking import masked, masked_json, masked_value, secrets_in
from addendum.masking.forms import forms


def escaped(text: str) -> str:
    """JSON text in which every letter is an escape."""
    return '{"said":"' + "".join(f"\\u{ord(each):04x}" for each in text if ord(each) < 65536) + '"}'


@pytest.mark.parametrize("nesting", range(4))
def test_no_key_is_left_behind_any_separator(nesting: int) -> None:
    text = all_of_them(nesting)
    assert left(text) == [each.form for each in keys()]
    shown = masked(text)
    assert left(shown) == []
    assert masked_json(text.encode()) == shown.encode()
    for _ in range(nesting):
        shown = json.loads(shown)["said"]
    # What is no key is there still, line by line.
    lines = shown.split(" said\n")
    assert len(lines) == len(keys()) * len(SEPARATORS)
    assert all(line.startswith("say ") and "[redacted " in line for line in lines)


@pytest.mark.parametrize("form", forms().every, ids=lambda form: form.name)
def test_a_key_is_found_in_every_encoding(form: Any) -> None:
    own = key(form)
    said = f"of {own.text} now"
    ways = {
        "escapes of JSON": escaped(said),
        "escapes in JSON in JSON": json.dumps({"said": escaped(said)}),
        "escapes in prose": "it wrote " + escaped(said),
        "an address": f"https://h.example/?q={quote(said, safe='')}",
        "every letter in an address": "q=" + "".join(f"%{each:02x}" for each in said.encode()),
        "HTML": f"<p>{html.escape(said)}</p>",
        "numbers of HTML": "".join(f"&#{ord(each)};" for each in said),
        "prose with JSON": f"result: {nested(said, 1)} and {nested(said, 2)}",
        "Python": repr({"said": said}),
        "lines of JSON": "\n".join([nested(said, 1)] * 3),
        "a name of a field": json.dumps({own.text: {own.text: [own.text]}}),
        "a line of a log": f"2026-12-01 ERROR [{own.text}] failed",
    }
    for way, text in ways.items():
        assert own.secret in secrets_in(text) or secrets_in(text), way
        shown = masked(text)
        for part in own.parts:
            assert part not in shown and quote(part, safe="") not in shown, (way, shown)
        decoded = "".join(each for each in shown if each not in "\\u0&#;%")
        assert "[redacted " in shown and own.secret not in decoded, way


@pytest.mark.parametrize("one", HARMLESS, ids=range(len(HARMLESS)))
def test_what_is_no_secret_stays(one: str) -> None:
    for text in (one, json.dumps({"said": one}), json.dumps({"said": json.dumps([one, one])})):
        assert masked(text) == text
        assert masked_json(text.encode()) == text.encode()


def test_what_a_provider_sealed_stays_even_where_it_has_the_form_of_a_key() -> None:
    key = "sk-ant-api03-" + "Q9" * 20
    seal = f"EqAAAA{key}{blob(30, 1)}"
    kept = [
        {"type": "thinking", "thinking": "hm", "signature": seal},
        {"signature": seal, "thinking": "", "type": "thinking"},
        {"type": "redacted_thinking", "data": seal},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal},
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": seal}}},
        {"functionCall": {"name": "look"}, "thoughtSignature": seal},
    ]
    for value in kept:
        assert masked_value(value) == value
        assert masked_value({"in": json.dumps(value)}) == {"in": json.dumps(value)}
    # A key is no seal, and neither are the same names in something else, nor words.
    for value in (
        {"type": "thinking", "thinking": "", "signature": key},
        {"encrypted_content": key},
        {"signature": key},
        {"data": key},
        {"type": "tool_use", "input": {"signature": key}},
        {"type": "thinking", "thinking": key, "signature": seal},
        {"encrypted_content": f"see: {key}"},
    ):
        assert "Q9Q9" not in json.dumps(masked_value(value)).replace(seal, "")


SECRET = "hunter-2_Zq!"
NAMED = {
    "a field": json.dumps({"password": SECRET}),
    "a field with blanks around": f'{{ "password" :\n  "{SECRET}" }}',
    "a list in a field": json.dumps({"X-Api-Key": [SECRET]}),
    "a list of headers": json.dumps([{"name": "Authorization", "value": SECRET}]),
    "a list of headers, value first": json.dumps([{"value": SECRET, "name": "X-Api-Key"}]),
    "a list of variables": json.dumps({"env": [{"name": "DB_PASSWORD", "value": SECRET}]}),
    "a list of pairs": json.dumps([["authorization", SECRET]]),
    "a field of another vendor": json.dumps({"cohere_api_key": SECRET}),
    "a field in camel case": json.dumps({"clientSecret": SECRET}),
    "a field with a number": json.dumps({"password2": SECRET, "API_KEY_1": SECRET}),
    "a scheme": json.dumps({"Authorization": f"Token {SECRET}"}),
    "an environment": f"DEBUG=1\nDB_PASSWORD={SECRET}\nPORT=80",
    "an export": f"export OPENAI_API_KEY='{SECRET}'",
    "settings": f'password = "{SECRET}"',
    "settings without quotes": f"password = {SECRET}",
    "YAML": f"db:\n  user: ann\n  password: {SECRET}\n",
    "code": f"client = Client(api_key='{SECRET}', timeout=3)",
    "a dictionary of Python": repr({"api_key": SECRET}),
    "pairs of Python": repr([("x-api-key", SECRET)]),
    "bytes of Python": repr([(b"authorization", SECRET.encode())]),
    "a header": f"GET / HTTP/1.1\r\nX-Api-Key: {SECRET}\r\nAccept: */*",
    "a header with a scheme": f"authorization: Bearer {SECRET}",
    "cookies": f"Cookie: sid={SECRET}; theme=dark",
    "an option": f"psql --password {SECRET} -h db",
    "an option with a sign": f"tool --api-key={SECRET}",
    "curl": f"curl -H 'X-Api-Key: {SECRET}' https://h.example",
    "an address": f"https://h.example/x?a=1&api_key={SECRET}&b=2",
    "an address of Google": f"https://h.example/x?key={SECRET}",
    "a signed address": f"https://h.example/x?X-Amz-Signature={SECRET}&b=2",
    "an address in JSON": json.dumps({"url": f"https://h.example/?token={SECRET}"}),
    "an encoded address": quote(f"https://h.example/?token={SECRET}&a=1", safe=""),
    "a database": f"postgres://ann:{SECRET}@db.example:5432/app",
    "a database of nobody": f"redis://:{SECRET}@cache:6379/0",
    "a connection": f"Server=db;User Id=ann;Password={SECRET};Encrypt=true",
    "storage": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};",
    "XML": f"<config><password>{SECRET}</password></config>",
    "attributes of XML": f'<add key="Password" value="{SECRET}"/>',
    "AWS": f"aws_secret_access_key = {SECRET}",
    "npm": f"//packages.example/:_authToken={SECRET}",
    "JSON in prose": f'the server said {{"ok":true,"access_token":"{SECRET}"}} and stopped',
    "JSON in JSON in prose": f"said {json.dumps(json.dumps({'refresh_token': SECRET}))} twice",
    "an encoded object": quote(json.dumps({"password": SECRET}), safe=""),
}


@pytest.mark.parametrize("way", NAMED)
def test_a_value_is_a_secret_by_the_name_beside_it(way: str) -> None:
    text = NAMED[way]
    for nesting in range(3):
        shown = masked(nested(text, nesting))
        assert SECRET not in shown and "hunter" not in shown and quote(SECRET) not in shown, shown
        for _ in range(nesting):
            shown = json.loads(shown)["said"]
        # Only the value went.
        assert masked(shown) == shown and len(shown) >= len(text) - len(SECRET)


WRITTEN = (
    *(f"{{n}}: {quote}{{v}}{quote}" for quote in ("", '"', "'", "`")),
    *(f"{{n}}{sign}{quote}{{v}}{quote}" for sign in ("=", " = ", " => ") for quote in ('"', "'")),
    '{n} := "{v}"',
    '{n}: "Bearer {v}"',
    '"{n}": "{v}"',
    "'{n}': '{v}'",
    '{{{n}: "{v}", other: 1}}',
    "{{{n}: {v}}}",
    "- {n}: {v}\n  other: 1",
    "{n}: {v}, other: 1",
    "{n}: {v} # a note",
    "f({n}='{v}')",
    '{n}="""{v}"""',
    "{n} = '''{v}'''",
    "<{n}>{v}</{n}>",
    "?a=1&{n}={v}",
    "--{n} {v}",
    "--{n}={v}",
)
SPELT = (
    "X-Api-Key x_auth_token set-cookie api_keys MY_API_KEY DB_PASSWORD clientSecret APIKey".split()
)


@pytest.mark.parametrize("written", WRITTEN)
def test_every_name_is_one_however_it_is_written(written: str) -> None:
    read = [
        (name, nesting)
        for name in (*forms().ends, *forms().whole, *SPELT)
        for nesting in range(3)
        if SECRET in masked(nested(written.format(n=name, v=SECRET), nesting))
    ]
    assert read == []


def test_a_number_is_a_password_and_stays_json() -> None:
    said = '{"a":1,"password":12345678,"token":12345678,"pwd" : -1234 }'
    for nesting in range(3):
        shown = masked(nested(said, nesting))
        for _ in range(nesting):
            shown = json.loads(shown)["said"]
        value = json.loads(shown)
        assert value["token"] == 12345678
        assert value["password"].startswith("[redacted ") and value["pwd"].startswith("[redacted ")


def test_a_private_key_is_hidden_with_its_headers_and_without_its_end() -> None:
    body = "\n".join(blob(48, at) for at in range(4))
    begin = "-----BEGIN RSA PRIVATE KEY-----"
    encrypted = f"{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0123\n\n{body}\n-----END"
    cut = f"{begin}\n{body}"
    armoured = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{body}\n=AAAA\n-----END PGP"
    for text in (encrypted, cut, armoured, f"{cut}\n{cut}\n-----END {cut}"):
        for written in (text, text.replace("\n", "\\n"), json.dumps([text]), nested(text, 2)):
            shown = masked(written)
            assert not any(line in shown for line in body.split("\n")), shown
            assert "-----BEGIN" in shown


def test_the_same_name_twice_hides_both_values() -> None:
    said = '{"password":"first-one-1","password":"second-one-2"}'
    assert "one" not in masked(said) and "one" not in masked(nested(said, 2))


def test_keys_that_touch_are_all_found() -> None:
    for first in keys():
        text = f"{first.text}{key(forms().every[0], 7).text}|" * 2
        assert left(masked(text)) == [], first.form


def test_what_is_not_json_or_not_text_is_masked_too() -> None:
    own = keys()[0]
    for data in (
        b'{"cut": "' + own.text.encode(),
        b"\xff\xfe" + own.text.encode() + b"\xff",
        f'{{"a": "{own.text}"}} trailing'.encode(),
        f"[{nested(own.text, 1)},".encode(),
    ):
        shown = masked_json(data)
        assert own.secret.encode() not in shown and b"[redacted " in shown
    assert masked_json(b"\xff\x00 nothing") == b"\xff\x00 nothing"
