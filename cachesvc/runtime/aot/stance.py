"""What the process wants of compiled models, as told by `torch.compiler.set_stance`."""

from __future__ import annotations

import sys

_EAGER = "force_eager"


def is_eager_wanted() -> bool:
    """Whether models are to be called as they were written. False where this torch keeps its
    stance elsewhere, and as long as its compiler is not imported, which a stance needs."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    stance = getattr(compiler, "_stance", None)
    return getattr(stance, "stance", None) == _EAGER
