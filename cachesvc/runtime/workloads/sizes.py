"""The sizes of the workloads that come with this library."""

from __future__ import annotations

TINY, SMALL, LARGE = "tiny", "small", "large"
SIZES = (TINY, SMALL, LARGE)
"""A model for a test, one that two cores compile in a minute or so, one that a GPU is made for.

Large ones compute in float16. In bfloat16, as fast, what is right and what is wrong lie too close:
rounding alone moves the outputs of a model of 16 layers by up to three parts in a hundred.
"""


def bundle_name(kind: str, size: str, train: bool = False) -> str:
    """`demo-gpt`, `demo-gpt-large`, `demo-gpt-tiny-train`: other models lie under other names, so
    that a start never falls back from one to the other."""
    parts = [kind, *([] if size == SMALL else [size]), *(["train"] if train else [])]
    return "-".join(parts)
