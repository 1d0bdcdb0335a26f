"""Gateways that are closed when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from addendum.gateway.drive import Gateway


@pytest.fixture
def opened() -> Iterator[Callable[[str], Gateway]]:
    gateways: list[Gateway] = []

    def opens(url: str) -> Gateway:
        gateways.append(Gateway(url))
        return gateways[-1]

    yield opens
    for each in gateways:
        each.close()
