"""pytest: a lab that stands in for providers, and an assertion about what a client sent to it.

    def test_my_agent(cache_lab):
        client = anthropic.Anthropic(base_url=cache_lab.base_url("anthropic"), api_key="any")
        my_agent(client).run("hello")
        assert_stable_prefix(cache_lab)

`assert_stable_prefix` is imported from here; the fixture comes with the plugin. Nothing else of
addendum is imported until one of them is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from addendum.lab.server import Capture, Lab

_SHOWN = 20
"""Findings that a failed assertion tells."""


class CacheLab:
    """A running lab, for the code under test.

    Attributes:
        lab: The lab itself: its clock, its script, failures on demand.
        base_urls: Base URLs by provider, as the vendors' SDKs take them.
    """

    def __init__(self, lab: Lab, base_urls: Mapping[str, str]) -> None:
        self.lab = lab
        self.base_urls = base_urls

    def base_url(self, provider: str) -> str:
        """Return the base URL of a provider.

        Raises:
            ConfigurationError: The lab has no such provider.
        """
        return self.lab.base_url(provider)

    @property
    def captures(self) -> list[Capture]:
        """Every request so far, in order of arrival, with the usage that was reported."""
        return self.lab.captures


@pytest.fixture
def cache_lab() -> Iterator[CacheLab]:
    """A lab on 127.0.0.1 with empty caches, in a thread of its own.

    Its free model answers in text and obeys `/call NAME JSON` in the last user message. Needs the
    extra `lab`.
    """
    from anyio.from_thread import start_blocking_portal

    from addendum.errors import install_hint

    try:
        from addendum.lab.server import PROVIDERS, open_lab
    except ModuleNotFoundError as error:
        pytest.fail(f"cache_lab needs {error.name}; {install_hint('lab')}", pytrace=False)

    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(open_lab()) as lab,
    ):
        yield CacheLab(lab, {name: lab.base_url(name) for name in PROVIDERS})


def assert_stable_prefix(
    requests: CacheLab | str | Path | Iterable[Any], allow: Collection[str] = ()
) -> None:
    """Fail unless each request begins with what was sent before it.

    Args:
        requests: A `cache_lab`; a file of captured requests (JSON lines, HAR, a cassette); or
            requests in the order sent: bodies, or requests of httpx2 or httpx.
        allow: What may change (`tools`, `system`, `messages`, `settings`, `model`), and rules that
            need not hold (`V10` for a client that sets no cache marks).

    Raises:
        AssertionError: It is not so; the message says where and why.
        ConfigurationError: Nobody knows a name in `allow`.
        ContentError: There is something else than requests to models.
    """
    __tracebackhide__ = True
    from addendum.checked import check_value
    from addendum.errors import ContentError
    from addendum.lab.checking import check_files, check_requests
    from addendum.masking import masked

    where = "assert_stable_prefix"
    check_value(where, "requests", requests, CacheLab | str | Path | Iterable[Any])
    check_value(where, "allow", allow, Collection[str])
    if isinstance(requests, str | Path):
        done = check_files([requests], allow)
    else:
        given = list(requests.captures if isinstance(requests, CacheLab) else requests)
        if not given:
            raise ContentError("there are no requests to check; has the client sent any?")
        done = check_requests(given, allow)
    if not done.findings:
        return
    lines = [
        f"  {each.where}: {each.rule} {f'{each.path}: ' if each.path else ''}{each.text}"
        for each in done.findings[:_SHOWN]
    ]
    more = len(done.findings) - _SHOWN
    lines += [f"  and {more} more"] if more > 0 else []
    count = len(done.findings)
    told = [f"the prefix is not stable ({count} finding{'s' * (count > 1)}):", *lines]
    raise AssertionError(masked("\n".join(told)))


__all__ = ["CacheLab", "assert_stable_prefix", "cache_lab"]
