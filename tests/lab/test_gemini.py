"""Gemini in the lab: what it refuses, how it counts, how it streams."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from addendum import encoding
from addendum.lab.exchange import Call, Reply, handle
from addendum.lab.gemini import Gemini
from addendum.lab.gemini_signatures import STAND_IN, sign
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.wire.gemini.parse import GeminiParser, parse_body
from addendum.wire.sse import SseParser

Json = dict[str, Any]
MODEL = "gemini-3.8-flash"
OLDER = "gemini-2.5-pro"
SIGNATURE = sign(MODEL, b"seed")


def ask(
    lab: Gemini,
    body: Json,
    *,
    model: str = MODEL,
    now: float = 0.0,
    operation: str = "generateContent",
    key: str = "k",
    script: Script | None = None,
) -> Reply:
    headers = {"x-goog-api-key": key} if key else {}
    path = f"/gemini/v1beta/models/{model}:{operation}"
    return handle(lab, Call(headers, encoding.encode(body), now, script=script, path=path))


def user(*parts: Json | str) -> Json:
    return {"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def call(name: str = "a", signature: str | None = SIGNATURE, call_id: str = "f1") -> Json:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"id": call_id, "name": name, "args": {}}, **signed}


def response(name: str = "a", call_id: str = "f1") -> Json:
    return {"functionResponse": {"id": call_id, "name": name, "response": {"output": "x"}}}


TOOLS: list[Json] = [
    {
        "functionDeclarations": [
            {
                "name": "a",
                "description": "A.",
                "parametersJsonSchema": {"type": "object", "properties": {"q": {}}},
            }
        ]
    }
]
GOOD: Json = {
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": TOOLS,
    "generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingLevel": "low"}},
    "contents": [user("hi"), model({"text": "ok"}, call()), user(response())],
}


def changed(**parts: Any) -> Json:
    return deepcopy({**GOOD, **parts})


def declared(**more: Any) -> Json:
    return changed(tools=[{"functionDeclarations": [{"name": "a", "description": "A.", **more}]}])


def test_the_good_body_is_taken() -> None:
    assert ask(Gemini(), GOOD).status == 200


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (changed(messages=[]), 'Unknown name "messages": Cannot find field'),
        (changed(contents=[]), "contents is not specified"),
        (changed(contents=[user()]), "contents.parts must not be empty"),
        (changed(contents=[user("")]), "must not be empty"),
        (changed(contents=[{"role": "system", "parts": [{"text": "x"}]}]), "valid role"),
        (changed(contents=[model({"text": "x"})]), "begin with a user turn"),
        (changed(contents=[user("x"), model({"text": "y"})]), "end with a user turn"),
        (changed(contents=[user({"text": "x", "functionCall": {}})]), "oneof field 'data'"),
        (changed(contents=[user(call())]), "right role"),
        (changed(contents=[user("x"), model(call()), user("y")]), "number of function response"),
        (changed(contents=[user(response())]), "number of function response parts is equal"),
        (
            changed(contents=[user("x"), model(call()), user(response("b"))]),
            "name the function calls",
        ),
        (
            changed(contents=[user("x"), model(call()), user(response(call_id="f2"))]),
            "name the function calls",
        ),
        (changed(contents=[user("x"), model(call()), user("y", response())]), "come first"),
        (
            changed(contents=[user("x"), model(call(signature=None)), user(response())]),
            "missing a thought_signature in functionCall parts",
        ),
        (
            changed(contents=[user("x"), model(call(signature="AAAA")), user(response())]),
            "Corrupted thought signature",
        ),
        (
            changed(
                contents=[
                    user("x"),
                    model(call(), call(signature=STAND_IN, call_id="f2")),
                    user(response(), response(call_id="f2")),
                ]
            ),
            "Thought signature is not valid",
        ),
        (changed(cachedContent="cachedContents/1"), "CachedContent not found"),
        (changed(generationConfig={"maxTokens": 1}), 'Unknown name "maxTokens"'),
        (declared(deferLoading=True), 'Unknown name "deferLoading"'),
        (declared(parameters={"type": "OBJECT", "properties": {}}), "should be non-empty"),
        (declared(parametersJsonSchema={"type": 1}), "JSON schema is invalid"),
        (declared(name="1a"), "Invalid function name"),
        (changed(tools=TOOLS + TOOLS), "Duplicate function declaration"),
    ],
)
def test_refusals(body: Json, match: str) -> None:
    reply = ask(Gemini(), body)
    assert reply.status in (400, 403)
    assert match in (reply.refusal or "")
    error = encoding.decode(reply.payload)["error"]
    assert error == {
        "code": reply.status,
        "message": reply.refusal,
        "status": "INVALID_ARGUMENT" if reply.status == 400 else "PERMISSION_DENIED",
    }


def test_signatures_by_model_and_turn() -> None:
    unsigned = [user("x"), model(call(signature=None)), user(response())]
    # Turns before the newest human message are not checked, older models ask for none.
    older = [*unsigned, model({"text": "ok"}), user("next")]
    assert ask(Gemini(), changed(contents=older)).status == 200
    assert ask(Gemini(), changed(contents=unsigned), model=OLDER).status == 200
    stand_in = [user("x"), model(call(signature=STAND_IN)), user(response())]
    assert ask(Gemini(), changed(contents=stand_in)).status == 200
    elsewhere = ask(Gemini(), GOOD, model="gemini-3.7-flash")
    assert elsewhere.refusal == "Corrupted thought signature."


def test_credentials_and_addresses() -> None:
    assert ask(Gemini(), GOOD, key="").status == 403
    assert ask(Gemini(), GOOD, operation="countTokens").status == 404
    assert ask(Gemini(), GOOD, model="gpt-4.1").status == 404


def cached(reply: Reply) -> int:
    assert reply.status == 200, reply.refusal
    reply.begin()
    return reply.usage.get("cachedContentTokenCount", 0)


LONG = "word " * 4_000


def test_a_shared_beginning_is_read_in_whole_steps() -> None:
    lab = Gemini()
    body: Json = {"contents": [user(LONG)]}
    assert cached(ask(lab, body)) == 0
    more: Json = {"contents": [user(LONG), model({"text": "ok"}), user("more")]}
    found = cached(ask(lab, more, now=1))
    assert found % 128 == 0
    assert 4096 <= found <= ask(lab, body).usage["promptTokenCount"]
    assert cached(ask(lab, more, key="other", now=1)) == 0
    assert cached(ask(lab, {**more, "tools": TOOLS}, now=1)) == 0
    thinking = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}
    assert cached(ask(lab, {**more, **thinking}, now=1)) == 0
    assert cached(ask(lab, more, now=1_000)) == 0


def test_minimums_by_model_and_product() -> None:
    body: Json = {"contents": [user("word " * 3_500)]}
    for lab, name, expected in (
        (Gemini(), MODEL, True),
        (Gemini(6144), MODEL, False),
        (Gemini(6144), OLDER, True),
    ):
        cached(ask(lab, body, model=name))
        assert bool(cached(ask(lab, body, model=name, now=1))) is expected


SCRIPT = Script((ScriptStep("go", (Entry("Said.", "thought", (ScriptCall("a", {"q": "é"}),)),)),))


@pytest.mark.parametrize("name", [MODEL, OLDER])
def test_a_stream_is_the_same_answer_as_a_body(name: str) -> None:
    body: Json = {
        "tools": TOOLS,
        "contents": [user("go")],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    }
    whole = parse_body(ask(Gemini(), body, model=name, script=SCRIPT).payload)
    reply = ask(Gemini(), body, model=name, operation="streamGenerateContent", script=SCRIPT)
    frames, parser = SseParser(), GeminiParser()
    for chunk in reply.events:
        for event in frames.feed(chunk):
            parser.feed(event)
    streamed = parser.finish()
    assert [encoding.decode(bytes(raw)) for raw in streamed.native] == [
        encoding.decode(bytes(raw)) for raw in whole.native
    ]
    assert (streamed.reasoning, streamed.text) == ("thought", "Said.")
    signed = [b"thoughtSignature" in bytes(raw) for raw in streamed.native]
    assert signed == [False, False, name == MODEL]


def test_text_is_signed_by_a_part_of_its_own() -> None:
    script = Script((ScriptStep("go", (Entry("Said.", "thought"),)),))
    found = parse_body(ask(Gemini(), {"contents": [user("go")]}, script=script).payload)
    parts = [encoding.decode(bytes(raw)) for raw in found.native]
    assert parts[0] == {"text": "Said."}
    assert parts[1]["text"] == ""
    assert parts[1]["thoughtSignature"]
