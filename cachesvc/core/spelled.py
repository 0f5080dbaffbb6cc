"""Text of others, for people: nothing in it steers a terminal or hides what a line says."""

from __future__ import annotations

import re

# Controls; line ends that only some programs know; marks that turn the direction of writing; what
# cannot be written as UTF-8 at all.
HIDDEN = r"\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
"""A set of characters for a regular expression: those that are spelled out."""

_HIDDEN = re.compile(f"[{HIDDEN}]")


def spelled(text: str) -> str:
    """The text with such characters spelled out, as Python spells them; the rest stays."""
    return _HIDDEN.sub(lambda found: repr(found[0])[1:-1], text)
