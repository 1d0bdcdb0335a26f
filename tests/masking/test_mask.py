"""What stands in a secret's place, and that nothing else changes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.masking.samples import all_of_them, key, keys, left, nested

from addendum.masking import Incoming, masked, masked_json, secrets_in
from addendum.masking.forms import forms

PLACEHOLDER = re.compile(r"\[redacted [0-9a-f]{8}\**\]")


def test_it_is_as_long_as_the_secret_was() -> None:
    for own in keys():
        shown = masked(f"a {own.text} b")
        assert len(shown) == len(f"a {own.text} b") or len(own.secret) < 19, own.form
    assert masked("password=hunter2") == masked("password=hunter2")
    assert re.fullmatch(r"password=\[redacted [0-9a-f]{8}\]", masked("password=hunter2"))


def test_the_same_secret_is_the_same_and_another_one_another() -> None:
    form = next(each for each in forms().every if each.name == "Anthropic")
    first, other = (key(form, seed).text for seed in (1, 2))
    said = json.dumps(
        {"a": first, "b": [f"x{first}"], "c": json.dumps({"d": f"\n{first}"}), "e": other}
    )
    found = PLACEHOLDER.findall(masked(said))
    assert len(found) == 4 and len(set(found[:3])) == 1 and found[3] != found[0]
    assert masked(masked(said)) == masked(said)
    assert secrets_in(said) == (first, other)


def test_processes_of_one_user_agree_and_others_do_not(tmp_path: Path) -> None:
    code = "from addendum.masking import masked; print(masked('password=hunter2'))"

    def said(home: Path) -> str:
        environ = {**os.environ, "XDG_DATA_HOME": str(home)}
        run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True)
        return run.stdout.decode()

    first, second = tmp_path / "first", tmp_path / "second"
    assert said(first) == said(first) != said(second)
    file = first / "addendum" / "mask.key"
    assert len(file.read_bytes()) == 32 and file.stat().st_mode & 0o077 == 0
    assert [each.name for each in file.parent.iterdir()] == ["mask.key"]
    # Where no key can be kept, one passes.
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    assert "[redacted " in said(blocked)
    file.write_bytes(b"short")
    assert "[redacted " in said(first)


BITS = [
    *(own.text for own in keys()),
    *'"\\\n {}[]:,=;',
    *["password", "token", "é", "\0", "😀", '"api_key": "x y z"', "%22", "&quot;", "\\u0041"],
    *["Cookie: a=b", "-----END", "value", "[redacted 12345678]", "hunter2!", "Authorization"],
    "-----BEGIN PRIVATE KEY-----",
]
TEXTS = st.lists(st.sampled_from(BITS), max_size=6).map("".join)
NAMES = st.sampled_from(["text", "password", "token", "name", "value", "type", 'k"y', "signature"])
VALUES = st.recursive(
    TEXTS | st.integers(-9999999, 9999999) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3)
        | inner.map(json.dumps)
    ),
    max_leaves=5,
)


def outline(value: Any) -> Any:
    if isinstance(value, dict):
        return {masked(name): outline(each) for name, each in value.items()}
    if isinstance(value, list):
        return [outline(each) for each in value]
    return None if isinstance(value, str | int) and not isinstance(value, bool) else [value]


@given(VALUES, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_json_stays_json_and_its_rest_as_it_was(
    value: Any, ascii_only: bool, signs: tuple[str, str]
) -> None:
    said = json.dumps(value, ensure_ascii=ascii_only, separators=signs)
    shown = masked_json(said.encode()).decode()
    assert outline(json.loads(shown)) == outline(json.loads(said))
    assert left(shown) == []
    assert masked(shown) == shown
    # Between the placeholders stands what stood there.
    place = 0
    for part in PLACEHOLDER.split(shown):
        part = part.strip('"\\')  # a number in JSON in a text becomes a text there
        found = said.find(part, place)
        assert found >= 0, (said, shown)
        place = found + len(part)


@given(TEXTS, st.integers(0, 1_000_000))
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
def test_a_text_that_comes_in_pieces_is_masked_as_one(text: str, seed: int) -> None:
    dice, incoming, shown = random.Random(seed), Incoming(), ""
    rest = text
    while rest:
        size = dice.randint(1, 40)
        shown += incoming.feed(rest[:size])
        assert left(shown) == []
        rest = rest[size:]
    shown += incoming.end()
    assert left(shown) == []
    assert PLACEHOLDER.sub("", shown).count("\n") <= text.count("\n")


def test_no_part_of_a_key_is_seen_while_it_comes() -> None:
    for own in keys():
        incoming, seen = Incoming(), ""
        for letter in f"it is {own.text} here and more":
            seen += incoming.feed(letter)
        # Not even the beginning of it was there at any time: what was shown stays.
        first = own.parts[0][:12]
        assert first not in seen + incoming.end(), own.form
    incoming = Incoming()
    assert incoming.feed("Hello wor") == "Hello " and incoming.feed("ld. 你好") == "world. 你好"
    assert incoming.end() == ""


HOSTILE = [
    *['"', "\\", '\\"', "\\u0041", "%41", "&quot;", "{", '{"a":', '"password":"', "'", "`", "@"],
    *[
        "token=",
        "token ",
        "token\n",
        'token="\\',
        "token=`",
        "token=$",
        "?key=",
        "password:",
        "sk-",
    ],
    *["eyJ", "eyJ.eyJ", "eyJabcdefghij.", "://", "://a:b", "://:", "-u a:b ", "Bearer ", "Q~"],
    *["-----BEGIN PRIVATE KEY-----", "-----END", "AKIA", "AIza", "JQQJ99", "0:A", "MT" * 13 + "."],
    *[
        "authorization: a ",
        "cookie: a=b; ",
        "--password ",
        "<password>",
        "api key ",
        "İtoken=",
        "a",
    ],
    *["Basic YW5uOmh1bnRlcjI=", "xoxb-1", "SG.", ".atlasv1.", '"token", "', " ", "A1_-", "_test_"],
]


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_takes_long(part: str) -> None:
    """Time grows with length: four times the text takes no more than about four times as long."""

    def seconds(size: int) -> float:
        text = (part * (size // len(part) + 1))[:size]
        said = (text, json.dumps({"t": text}), json.dumps({"t": json.dumps({"t": text})}))
        began = time.process_time()
        for each in said:
            masked(each)
        return time.process_time() - began

    short, long = seconds(20_000), seconds(80_000)
    assert long < 12 * short + 0.5, (short, long)
    assert long < 5


def test_a_large_body_is_scanned_at_some_megabytes_a_second() -> None:
    turn = {
        "role": "user",
        "content": "Look at the harbour of the town and tell what you see. " * 40,
    }
    image = {"type": "image", "source": {"data": "iVBORw0KGgo" * 20_000}}
    body = json.dumps({"messages": [*[turn] * 1000, image, *[turn] * 1000]}).encode()
    began = time.process_time()
    assert masked_json(body) == body
    assert time.process_time() - began < len(body) / 1_000_000


def test_depth_has_an_end() -> None:
    own = keys()[0]
    said = own.text
    for _ in range(14):
        said = json.dumps([said])
        assert own.secret not in masked(said)
    assert own.secret not in masked("[" * 5000 + own.text)
    assert left(masked(nested(all_of_them(0)[:20_000], 6))) == []
