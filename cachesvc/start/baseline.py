"""The baseline of a gate: an earlier bench, as it was written to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cachesvc.core.bench import Bench
from cachesvc.core.errors import UsageError
from cachesvc.core.gate import MARGIN, Baseline, Comparison, compare_with


def read_baseline(path: str | os.PathLike[str], target: str) -> Baseline:
    """The bench that `tccache bench --json` wrote to a file.

    Raises UsageError if it cannot be read, is none, or is of another target.
    """
    try:
        value = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the baseline {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON: give what `tccache bench --json` printed") from None
    baseline = Baseline.read(value, str(path))
    baseline.check_target(target)
    return baseline


def gate(bench: Bench, baseline: Baseline, margin: float = MARGIN) -> Comparison:
    """The ratios of a bench beside those of an earlier one.

    A regression is a ratio that is smaller than before by more than `margin`, from 0 to 1, or was
    not measured. Raises UsageError for another target or a margin that is none.
    """
    if not 0 <= margin < 1:
        raise UsageError(f"a margin of {margin} is none: give a part, from 0 to 1, such as 0.25")
    baseline.check_target(bench.target)
    return compare_with(baseline, bench.to_json(), margin)
