"""Which shapes of a request an endpoint refuses: data, by wire, provider and row of models.

A shape is a feature of a history that some endpoints take and others refuse. An epoch records those
that it avoids, so that a fact corrected later changes no byte of it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

Shape: TypeAlias = Literal[
    "user-after-user",
    "user-after-result",
    "empty-answer",
    "nameless-result",
    "long-call-id",
    "text-parts",
    "null-content",
    "usage-option",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
]
"""What a history may hold and an endpoint may refuse.

- `user-after-user`: Two messages of the user's that follow each other. Those that are sent for the
  first time together make one message; behind one that stayed without an answer stands a short one
  of the assistant's.
- `user-after-result`: A message of the user's behind a result. A short one of the assistant's
  stands between.
- `empty-answer`: An answer without text and calls. It says that it has none.
- `nameless-result`: A result that does not name its tool. It does.
- `long-call-id`: An id of a call that is no nine letters and digits. A digest stands for it.
- `text-parts`: Text in parts where one string would do.
- `null-content`: An answer with calls whose content is null or is not there. It is empty text.
- `usage-option`: `stream_options`, by which usage is asked for in a stream. It is not asked for,
  and where an endpoint then reports none, nothing is known.
- `reasoning_content`, `reasoning`, `reasoning_details`: These fields of earlier answers.
"""

SHAPES: frozenset[str] = frozenset(get_args(Shape))


class ShapeRules(Struct, frozen=True, forbid_unknown_fields=True):
    """What a history may not hold, so that an endpoint takes it.

    Attributes:
        refuses: The shapes that it refuses.
        source: Where this comes from.
        checked: Day on which that was read, `YYYY-MM-DD`.
    """

    refuses: tuple[Shape, ...] = ()
    source: str = ""
    checked: str = ""
