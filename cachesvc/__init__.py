"""tccache: start `torch.compile`d models warm, and prove it.

    import torch, cachesvc

    model = torch.compile(build_model())
    report = cachesvc.warm_start(model, inputs=[batch], store="s3://ml-cache/prod", trust="store")
    print(report)

Importing this package imports neither torch nor boto3; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachesvc.core.built import Built as Built
    from cachesvc.core.built import BuiltCall as BuiltCall
    from cachesvc.core.components import Components as Components
    from cachesvc.core.components import Difference as Difference
    from cachesvc.core.errors import AccessDenied as AccessDenied
    from cachesvc.core.errors import BundleNotFound as BundleNotFound
    from cachesvc.core.errors import BusyError as BusyError
    from cachesvc.core.errors import IntegrityError as IntegrityError
    from cachesvc.core.errors import StoreError as StoreError
    from cachesvc.core.errors import TccacheError as TccacheError
    from cachesvc.core.errors import UntrustedError as UntrustedError
    from cachesvc.core.errors import UsageError as UsageError
    from cachesvc.core.explanation import Explanation as Explanation
    from cachesvc.core.incident import Incident as Incident
    from cachesvc.core.measure import Arm as Arm
    from cachesvc.core.measure import Measurement as Measurement
    from cachesvc.core.measure import Sample as Sample
    from cachesvc.core.measure import Spread as Spread
    from cachesvc.core.report import CallReport as CallReport
    from cachesvc.core.report import Counts as Counts
    from cachesvc.core.report import Report as Report
    from cachesvc.core.report import Transfer as Transfer
    from cachesvc.core.report import Verdict as Verdict
    from cachesvc.local.host import read_environment as read_environment
    from cachesvc.local.quarantine import SetAside as SetAside
    from cachesvc.runtime.workloads import Workload as Workload
    from cachesvc.start.build import build as build
    from cachesvc.start.explain import compare as compare
    from cachesvc.start.explain import explain as explain
    from cachesvc.start.inspect import Detail as Detail
    from cachesvc.start.inspect import Listing as Listing
    from cachesvc.start.inspect import Removal as Removal
    from cachesvc.start.inspect import Verification as Verification
    from cachesvc.start.inspect import list_bundles as list_bundles
    from cachesvc.start.inspect import list_set_aside as list_set_aside
    from cachesvc.start.inspect import remove as remove
    from cachesvc.start.inspect import show as show
    from cachesvc.start.inspect import verify as verify
    from cachesvc.start.lookup import Found as Found
    from cachesvc.start.lookup import lookup as lookup
    from cachesvc.start.measure import demo as demo
    from cachesvc.start.publishing import Pushed as Pushed
    from cachesvc.start.pull import Pulled as Pulled
    from cachesvc.start.pull import pull as pull
    from cachesvc.start.push import push as push
    from cachesvc.start.run import Ran as Ran
    from cachesvc.start.run import run as run
    from cachesvc.start.warm_start import warm_start as warm_start

_PLACES = {
    "core.built": ("Built", "BuiltCall"),
    "core.components": ("Components", "Difference"),
    "core.errors": (
        "AccessDenied",
        "BundleNotFound",
        "BusyError",
        "IntegrityError",
        "StoreError",
        "TccacheError",
        "UntrustedError",
        "UsageError",
    ),
    "core.explanation": ("Explanation",),
    "core.measure": ("Arm", "Measurement", "Sample", "Spread"),
    "core.incident": ("Incident",),
    "core.report": ("CallReport", "Counts", "Report", "Transfer", "Verdict"),
    "local.host": ("read_environment",),
    "local.quarantine": ("SetAside",),
    "runtime.workloads": ("Workload",),
    "start.build": ("build",),
    "start.explain": ("compare", "explain"),
    "start.inspect": (
        "Detail",
        "Listing",
        "Removal",
        "Verification",
        "list_bundles",
        "list_set_aside",
        "remove",
        "show",
        "verify",
    ),
    "start.lookup": ("Found", "lookup"),
    "start.measure": ("demo",),
    "start.pull": ("Pulled", "pull"),
    "start.publishing": ("Pushed",),
    "start.push": ("push",),
    "start.run": ("Ran", "run"),
    "start.warm_start": ("warm_start",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - the one table says where each name lives


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
