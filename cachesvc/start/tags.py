"""Tags: words of the publisher's own that a manifest carries."""

from __future__ import annotations

from collections.abc import Iterable

from cachesvc.core.errors import UsageError


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags, or UsageError if one is empty or cannot be written as UTF-8."""
    return tuple(map(_checked, tags))


def _checked(tag: str) -> str:
    try:
        if tag.encode():
            return tag
    except UnicodeEncodeError:
        pass
    raise UsageError(f"{tag!a} is no tag: use text in UTF-8")
