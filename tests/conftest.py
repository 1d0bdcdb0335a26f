"""What all tests share."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# Many tests start processes. Where nothing may be written down, as in many images, each of these
# would compile all sources again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The one place that says how hypothesis runs. No test is measured by the clock: a busy machine
# fails none. The examples are the same in each run, so that a red test is the change's own doing;
# `--hypothesis-profile=fresh` draws others.
settings.register_profile(
    "addendum", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fresh", settings.get_profile("addendum"), derandomize=False, print_blob=True
)
settings.load_profile("addendum")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
