"""Check arguments against a tool's parameter schema, and repair what is only written differently.

A schema comes from outside, so it may be wrong, hostile or both. Nothing is ever fetched: a
reference must lead into the schema itself. Patterns run on a linear-time engine; one that needs
look-around gets a backtracking engine with a limit. Before a check that could explode, the pairs
of (subschema, part of the value) it may visit are counted, up to a limit.

Everything that makes a schema unusable ends in `SchemaUnusable`; everything that is wrong with
the arguments ends in `Problem`s.
"""

from __future__ import annotations

from addendum.tools.coercion import coerce

__all__ = ["Checked", "Problem", "SchemaUnusable", "Validator", "coerce", "validator_for"]

MAX_PROBLEMS = 10
"""Problems that one check reports."""

MAX_SCHEMA = 256 * 1024
"""Bytes that a parameter schema may have."""
