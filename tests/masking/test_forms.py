"""The data: each form has a source, a day and a sample that it fits, and none is listed twice."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from importlib import resources

import pytest
from tests.masking.samples import key

from addendum.masking.forms import Form, forms

FILE = tomllib.loads((resources.files("addendum.masking") / "forms.toml").read_text("utf-8"))
ASKED = (
    "Anthropic OpenAI OpenRouter Google AWS GitHub GitLab Slack Stripe Hugging npm PyPI web token "
    "private key Bearer Basic xAI Groq Perplexity Replicate Azure password Telegram Discord "
    "SendGrid Twilio DigitalOcean Databricks"
)


def test_every_row_has_its_source_and_day() -> None:
    rows = [*FILE["form"], *FILE["block"], FILE["names"], FILE["sealed"]]
    assert len(rows) > 60
    for row in rows:
        assert len(row["source"]) > 10 and date.fromisoformat(row["checked"]), row
    names = [row["name"] for row in (*FILE["form"], *FILE["block"])]
    assert len(set(names)) == len(names) == len(forms().every)
    said = " ".join(names)
    assert [each for each in ASKED.split() if each not in said] == []


@pytest.mark.parametrize("form", forms().every, ids=lambda form: form.name)
def test_a_sample_fits_its_form_and_has_an_anchor(form: Form) -> None:
    for seed in range(20):
        own = key(form, seed)
        match = form.pattern.search(own.text)
        assert match is not None, own.text
        if form.end:
            assert form.end in own.text
        else:
            start, end = match.span(match.re.groups)
            assert own.text[start - form.before : end].strip() == own.secret
        assert not form.anchors or match[0].startswith(form.anchors)
        found = [forms().anchors.which(each) for each in forms().anchors.pattern.finditer(own.text)]
        assert all(own.text.startswith(literal, at) for literal, at in found)
        starts = {
            (each.name, at - offset)
            for literal, at in found
            for each, offset in forms().by_anchor[literal]
        }
        assert (form.name, match.start()) in starts or form in forms().free


def test_every_anchor_is_found_wherever_it_stands() -> None:
    finder = forms().anchors
    for form in forms().every:
        for anchor in form.anchors:
            for text in (anchor, f"aa{anchor}", f"{anchor}zz", f"{anchor}{anchor}"):
                assert finder.pattern.search(text), anchor
    for word, _ in forms().words.literals:
        assert forms().words.pattern.search(f"my_{word} = x"), word
        assert forms().words.pattern.search(f"my_{word}_2=x"), word
        assert not forms().words.pattern.search(f"{word}ish"), word


def test_no_expression_can_begin_anywhere() -> None:
    # One that begins with a repetition without an end would be tried at every place of a long run.
    for form in forms().every:
        assert not re.match(r"\(?\[[^\]]+\][*+]", form.pattern.pattern), form.name
        assert ".*" not in form.pattern.pattern, form.name
