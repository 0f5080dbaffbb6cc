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
    from cachesvc.core.arms import ARMS as ARMS
    from cachesvc.core.bench import Bench as Bench
    from cachesvc.core.bench import BreakEven as BreakEven
    from cachesvc.core.bench import Composition as Composition
    from cachesvc.core.bench import Failure as Failure
    from cachesvc.core.bench import Trial as Trial
    from cachesvc.core.built import Built as Built
    from cachesvc.core.built import BuiltCall as BuiltCall
    from cachesvc.core.code import Code as Code
    from cachesvc.core.compiles import Compile as Compile
    from cachesvc.core.components import Components as Components
    from cachesvc.core.components import Difference as Difference
    from cachesvc.core.duration import read_duration as read_duration
    from cachesvc.core.errors import AccessDenied as AccessDenied
    from cachesvc.core.errors import BundleNotFound as BundleNotFound
    from cachesvc.core.errors import BusyError as BusyError
    from cachesvc.core.errors import IntegrityError as IntegrityError
    from cachesvc.core.errors import StoreError as StoreError
    from cachesvc.core.errors import TccacheError as TccacheError
    from cachesvc.core.errors import UntrustedError as UntrustedError
    from cachesvc.core.errors import UsageError as UsageError
    from cachesvc.core.explanation import Explanation as Explanation
    from cachesvc.core.finding import Diagnosis as Diagnosis
    from cachesvc.core.finding import Finding as Finding
    from cachesvc.core.gate import MARGIN as MARGIN
    from cachesvc.core.gate import Baseline as Baseline
    from cachesvc.core.gate import Change as Change
    from cachesvc.core.gate import Comparison as Comparison
    from cachesvc.core.graph import Contents as Contents
    from cachesvc.core.graph import Graph as Graph
    from cachesvc.core.graph import Kernel as Kernel
    from cachesvc.core.graph import KernelUse as KernelUse
    from cachesvc.core.graph import Part as Part
    from cachesvc.core.graph import Unreadable as Unreadable
    from cachesvc.core.incident import Incident as Incident
    from cachesvc.core.measure import Arm as Arm
    from cachesvc.core.measure import CallTime as CallTime
    from cachesvc.core.measure import Measurement as Measurement
    from cachesvc.core.measure import Sample as Sample
    from cachesvc.core.measure import Spread as Spread
    from cachesvc.core.overlap import Overlap as Overlap
    from cachesvc.core.overlap import Prefetch as Prefetch
    from cachesvc.core.regions import Region as Region
    from cachesvc.core.regions import Regions as Regions
    from cachesvc.core.report import CallReport as CallReport
    from cachesvc.core.report import Counts as Counts
    from cachesvc.core.report import Report as Report
    from cachesvc.core.report import Transfer as Transfer
    from cachesvc.core.report import Verdict as Verdict
    from cachesvc.core.size import read_size as read_size
    from cachesvc.core.spelled import spelled as spelled
    from cachesvc.core.variant import MODES as MODES
    from cachesvc.core.variant import Variant as Variant
    from cachesvc.core.workload_options import WorkloadOptions as WorkloadOptions
    from cachesvc.local.host import read_environment as read_environment
    from cachesvc.local.quarantine import SetAside as SetAside
    from cachesvc.page.page import check_page as check_page
    from cachesvc.page.page import write_page as write_page
    from cachesvc.repository.policy import Policy as Policy
    from cachesvc.runtime.regions import compile_regions as compile_regions
    from cachesvc.runtime.workloads import Workload as Workload
    from cachesvc.start.access import Access as Access
    from cachesvc.start.access import access as access
    from cachesvc.start.baseline import gate as gate
    from cachesvc.start.baseline import read_baseline as read_baseline
    from cachesvc.start.bench import bench as bench
    from cachesvc.start.build import build as build
    from cachesvc.start.collect import Collected as Collected
    from cachesvc.start.collect import collect as collect
    from cachesvc.start.collect_live import CollectedItem as CollectedItem
    from cachesvc.start.collect_live import CollectedLive as CollectedLive
    from cachesvc.start.collect_live import collect_live as collect_live
    from cachesvc.start.doctor import doctor as doctor
    from cachesvc.start.explain import compare as compare
    from cachesvc.start.explain import explain as explain
    from cachesvc.start.graphs import show_code as show_code
    from cachesvc.start.graphs import show_graphs as show_graphs
    from cachesvc.start.inspect import Detail as Detail
    from cachesvc.start.inspect import Listing as Listing
    from cachesvc.start.inspect import Removal as Removal
    from cachesvc.start.inspect import list_bundles as list_bundles
    from cachesvc.start.inspect import list_set_aside as list_set_aside
    from cachesvc.start.inspect import remove as remove
    from cachesvc.start.inspect import show as show
    from cachesvc.start.keys import Key as Key
    from cachesvc.start.keys import make_key as make_key
    from cachesvc.start.keys import read_key as read_key
    from cachesvc.start.live_verify import LiveProblem as LiveProblem
    from cachesvc.start.live_verify import LiveVerification as LiveVerification
    from cachesvc.start.live_verify import verify_live as verify_live
    from cachesvc.start.lookup import Found as Found
    from cachesvc.start.lookup import lookup as lookup
    from cachesvc.start.measure import demo as demo
    from cachesvc.start.monitor import Monitor as Monitor
    from cachesvc.start.monitor import monitor as monitor
    from cachesvc.start.prefetch import prefetch as prefetch
    from cachesvc.start.publishing import Pushed as Pushed
    from cachesvc.start.pull import Pulled as Pulled
    from cachesvc.start.pull import pull as pull
    from cachesvc.start.push import push as push
    from cachesvc.start.run import Ran as Ran
    from cachesvc.start.run import run as run
    from cachesvc.start.verify import Verification as Verification
    from cachesvc.start.verify import verify as verify
    from cachesvc.start.warm_start import warm_start as warm_start

_PLACES = {
    "core.arms": ("ARMS",),
    "core.bench": ("Bench", "BreakEven", "Composition", "Failure", "Trial"),
    "core.built": ("Built", "BuiltCall"),
    "core.code": ("Code",),
    "core.compiles": ("Compile",),
    "core.components": ("Components", "Difference"),
    "core.duration": ("read_duration",),
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
    "core.graph": ("Contents", "Graph", "Kernel", "KernelUse", "Part", "Unreadable"),
    "core.gate": ("MARGIN", "Baseline", "Change", "Comparison"),
    "core.finding": ("Diagnosis", "Finding"),
    "core.measure": ("Arm", "CallTime", "Measurement", "Sample", "Spread"),
    "core.incident": ("Incident",),
    "core.overlap": ("Overlap", "Prefetch"),
    "core.regions": ("Region", "Regions"),
    "core.report": ("CallReport", "Counts", "Report", "Transfer", "Verdict"),
    "core.size": ("read_size",),
    "core.spelled": ("spelled",),
    "core.variant": ("MODES", "Variant"),
    "core.workload_options": ("WorkloadOptions",),
    "local.host": ("read_environment",),
    "local.quarantine": ("SetAside",),
    "page.page": ("check_page", "write_page"),
    "repository.policy": ("Policy",),
    "runtime.regions": ("compile_regions",),
    "runtime.workloads": ("Workload",),
    "start.access": ("Access", "access"),
    "start.baseline": ("gate", "read_baseline"),
    "start.bench": ("bench",),
    "start.build": ("build",),
    "start.collect": ("Collected", "collect"),
    "start.collect_live": ("CollectedItem", "CollectedLive", "collect_live"),
    "start.doctor": ("doctor",),
    "start.explain": ("compare", "explain"),
    "start.graphs": ("show_code", "show_graphs"),
    "start.inspect": (
        "Detail",
        "Listing",
        "Removal",
        "list_bundles",
        "list_set_aside",
        "remove",
        "show",
    ),
    "start.keys": ("Key", "make_key", "read_key"),
    "start.live_verify": ("LiveProblem", "LiveVerification", "verify_live"),
    "start.lookup": ("Found", "lookup"),
    "start.measure": ("demo",),
    "start.monitor": ("Monitor", "monitor"),
    "start.pull": ("Pulled", "pull"),
    "start.prefetch": ("prefetch",),
    "start.publishing": ("Pushed",),
    "start.push": ("push",),
    "start.run": ("Ran", "run"),
    "start.verify": ("Verification", "verify"),
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
