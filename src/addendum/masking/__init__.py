"""Credentials out of what leaves: found in values, whatever their encoding, and replaced.

    forms  ->  find             ->  mask
    data       where secrets        what stands
               stand in a text      in their place

A text is looked at as it is, and as what it decodes to: JSON text is taken apart, and JSON in its
strings as well; backslashes, percent signs and entities are undone, a few times over. What is found
is replaced where it stands; every other character stays as it was.

Nothing of addendum is imported here: everything else, errors too, may pass through it.
"""

from __future__ import annotations

from addendum.masking.mask import masked, masked_json, masked_value, secrets_in
from addendum.masking.stream import Incoming

__all__ = ["Incoming", "masked", "masked_json", "masked_value", "secrets_in"]
