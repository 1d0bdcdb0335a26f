from __future__ import annotations

import inspect

from addendum.tools.docstrings import describe


def test_text_ends_at_the_first_section_and_entries_are_joined() -> None:
    text, parameters = describe(
        inspect.cleandoc(
            """Look something up.

            A second paragraph: with a colon.

            Args:
                query: What to look for,
                    on two lines.
                limit (int, optional): Most results.
                **extra: More.
                empty:

            Returns:
                limit: not a parameter.
            """
        )
    )
    assert text == "Look something up.\n\nA second paragraph: with a colon."
    assert parameters == {
        "query": "What to look for, on two lines.",
        "limit": "Most results.",
        "extra": "More.",
    }


def test_a_docstring_without_sections_or_text() -> None:
    assert describe("") == ("", {})
    assert describe("Only this.") == ("Only this.", {})


def test_a_deeper_line_with_a_colon_belongs_to_its_entry() -> None:
    assert describe("X.\n\nArgs:\n    a: one\n      b: two\n    c: three")[1] == {
        "a": "one b: two",
        "c": "three",
    }
