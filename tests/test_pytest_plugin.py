"""The pytest plugin, in suites of its own; and the example of a client that is not ours."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest
from examples.check_any_client import talk

from addendum import pytest_plugin
from addendum.errors import ConfigurationError, ContentError
from addendum.pytest_plugin import CacheLab, assert_stable_prefix

pytest_plugins = ("pytester",)

# So that these tests run where the package was installed before it had a plugin.
cache_lab = pytest_plugin.cache_lab

CLIENT = """
import httpx2
from addendum.pytest_plugin import assert_stable_prefix

MARK = {"cache_control": {"type": "ephemeral"}}

def ask(lab, system, *texts):
    messages = [
        {"role": "assistant" if at % 2 else "user", "content": [{"type": "text", "text": text}]}
        for at, text in enumerate(texts)
    ]
    messages[-1]["content"][0] |= MARK
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 9,
        "system": [{"type": "text", "text": system, **MARK}],
        "messages": messages,
    }
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01"}
    url = lab.base_url("anthropic") + "/v1/messages"
    return httpx2.post(url, json=body, headers=headers).raise_for_status().json()
"""


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=CLIENT + test)
    return pytester.runpytest_inprocess(
        "-p", "addendum.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:anyio"
    )


def test_a_stable_client_passes(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(cache_lab):
    long = "word " * 600
    answer = ask(cache_lab, long, "one")
    assert answer["usage"]["cache_read_input_tokens"] == 0
    answer = ask(cache_lab, long, "one", answer["content"][0]["text"], "two")
    assert answer["usage"]["cache_read_input_tokens"] > 600
    assert_stable_prefix(cache_lab)
    assert_stable_prefix([capture.body for capture in cache_lab.captures])

def test_each_test_has_a_lab_of_its_own(cache_lab):
    assert cache_lab.captures == []
    assert set(cache_lab.base_urls) >= {"anthropic", "deepseek", "openai-chat", "compatible"}
    assert cache_lab.base_urls["anthropic"] == cache_lab.base_url("anthropic")
""",
    )
    result.assert_outcomes(passed=2)


def test_an_unstable_client_fails_with_the_place(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import pytest

def test_it(cache_lab):
    ask(cache_lab, "at 9:01", "one")
    ask(cache_lab, "at 9:02", "one", "ok", "two")
    assert_stable_prefix(cache_lab, allow=("system",))
    assert_stable_prefix(cache_lab)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: the prefix is not stable (1 finding):",
            "E *request 2: V2 system?0?.text: the prompt text changed: 'at 9:01' became 'at 9:02'*",
        ]
    )
    # The traceback ends in the test itself.
    assert "pytest_plugin.py" not in result.stdout.str()


def test_an_extra_that_is_missing_is_named_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['uvicorn'] = None")
    pytester.makepyfile(test_it="def test_it(cache_lab):\n    pass")
    options = ("-p", "addendum.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:anyio")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['cache_lab needs uvicorn; pip install "addendum?lab?", or in *'])
    assert "Traceback" not in result.stdout.str()


def test_the_plugin_imports_nothing_until_it_is_used(pytester: pytest.Pytester) -> None:
    code = (
        "import sys, addendum.pytest_plugin\n"
        "heavy = ('httpx2', 'msgspec', 'starlette', 'uvicorn', 'addendum.lab', 'addendum.agent')\n"
        "found = [name for name in heavy if name in sys.modules]\n"
        "assert not found, found"
    )
    result = pytester.run(sys.executable, "-c", code)
    assert result.ret == 0, result.stderr.str()


# -- without the fixture ------------------------------------------------------------------------


def test_a_recorded_client_is_checked_from_its_file(cache_lab: CacheLab, tmp_path: Path) -> None:
    base = cache_lab.base_url("anthropic")
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    talk(base, str(good))
    assert_stable_prefix(good)
    assert [capture.usage["cache_read_input_tokens"] > 0 for capture in cache_lab.captures] == [
        False,
        True,
    ]
    talk(base, str(bad), prompts=("One. " * 600, "Two. " * 600))
    with pytest.raises(AssertionError, match=r"bad\.jsonl:2: V2 system\[0\]\.text"):
        assert_stable_prefix(str(bad))


def test_many_findings_are_cut() -> None:
    bodies = [
        {"model": "gpt-4.1", "messages": [{"role": "system", "content": f"at {at}"}, *_talk(at)]}
        for at in range(30)
    ]
    with pytest.raises(AssertionError, match=r"\(29 findings\)(.|\n)*  and 9 more$"):
        assert_stable_prefix(bodies)


def _talk(turns: int) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": str(at)} for at in range(2 * turns + 1)]


def test_misuse_is_no_failed_assertion() -> None:
    with pytest.raises(ContentError, match="no requests to check"):
        assert_stable_prefix([])
    with pytest.raises(ConfigurationError, match="nothing is called 'prompt' here"):
        assert_stable_prefix([{"model": "m", "messages": []}], allow=("prompt",))
    with pytest.raises(ContentError, match="cannot read"):
        assert_stable_prefix("no-such-file.jsonl")


def test_a_vendors_sdk_may_send_its_key_as_a_bearer_token(cache_lab: CacheLab) -> None:
    headers = {"authorization": "Bearer any", "anthropic-version": "2023-06-01"}
    messages = [{"role": "user", "content": "a"}]
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": messages}
    url = cache_lab.base_url("anthropic") + "/v1/messages"
    assert httpx2.post(url, json=body, headers=headers).status_code == 200
    assert "authorization" not in cache_lab.captures[0].headers
    del headers["authorization"]
    assert httpx2.post(url, json=body, headers=headers).status_code == 401
