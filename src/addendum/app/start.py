"""Where the program begins: so little that an interrupt finds nothing to tell a story of."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit code of whoever is interrupted: 128 and the signal's number."""


def main() -> None:
    """Run the program; an interrupt while it is still being loaded ends it like any later one."""
    try:
        from addendum.app.main import main as program

        program()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
