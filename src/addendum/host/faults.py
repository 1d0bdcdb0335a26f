"""Errors on the way to a person: those that should not have happened, and those of a server."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from addendum.masking import masked


def fault(error: Exception) -> str:
    """Return what is said of an error that should not have happened."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = " ".join(masked(str(error)).split())[:200]
    return f"internal error: {type(error).__name__}: {said}{place}; please report it"


def complain(message: str) -> None:
    """Print what went wrong in a program that goes on, as one line on stderr."""
    print(f"addendum: {' '.join(masked(message).split())}", file=sys.stderr, flush=True)
