"""The verdict on a start, from the compiler's own counters, and the report that carries it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Protocol

from cachesvc.core.components import Components
from cachesvc.core.digest import Json
from cachesvc.core.incident import Incident, sentences
from cachesvc.core.overlap import Overlap


class Verdict(str, Enum):
    """What a start turned out to be."""

    WARM = "warm"
    PARTIAL = "partial"
    COLD = "cold"
    INERT = "inert"
    EAGER = "eager"
    UNPROVEN = "unproven"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Counts:
    """What the compiler counted between two moments of one process; all are numbers of events.

    `graphs` are Dynamo's; `graph_*` are the FX graph cache's; `autograd_*` are AOTAutograd's.
    `generated` are graphs that Inductor generated code for, counted also where caches are off.
    `cpp_builds` and `triton_builds` are native compilations: cache counters can say hit while
    they run; `cpp_hits` are C++ libraries that lay there already. `unsaved` are graphs that were
    compiled and could not be written to a cache, `eager` are graphs that could not be compiled and
    run as they were written. `aot_hits` are calls that functions compiled ahead of time have made,
    `aot_misses` those that a model which has such functions made past them. `unread` names
    counters that this torch does not have.
    """

    graphs: int = 0
    graph_hits: int = 0
    graph_misses: int = 0
    graph_bypasses: int = 0
    generated: int = 0
    autograd_hits: int = 0
    autograd_misses: int = 0
    autograd_bypasses: int = 0
    autotunings: int = 0
    cpp_builds: int = 0
    triton_builds: int = 0
    cpp_hits: int = 0
    unsaved: int = 0
    eager: int = 0
    graph_breaks: int = 0
    aot_hits: int = 0
    aot_misses: int = 0
    unread: tuple[str, ...] = ()

    @property
    def native_builds(self) -> int:
        return self.cpp_builds + self.triton_builds

    @property
    def compiled(self) -> int:
        """Graphs that the backend compiled, stored afterwards or not."""
        begun = max(self.graph_misses + self.graph_bypasses, self.generated)
        return max(0, begun - self.eager)

    @property
    def hits(self) -> int:
        """Graphs that came from a cache, and calls of functions compiled ahead of time.

        An AOTAutograd entry leads to its FX graphs, which count too, unless it holds them itself
        (a bundled entry): then nobody asks the FX graph cache.
        """
        return max(self.graph_hits, self.autograd_hits) + self.aot_hits

    @property
    def requests(self) -> int:
        """Graphs that the backend was asked for."""
        return self.hits + self.compiled

    def minus(self, before: Counts) -> Counts:
        """What was counted since `before`."""
        numbers = (item.name for item in fields(self) if item.name != "unread")
        delta = {name: getattr(self, name) - getattr(before, name) for name in numbers}
        return Counts(**delta, unread=self.unread)

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        numbers = (item.name for item in fields(self) if item.name != "unread")
        total = {name: getattr(self, name) + getattr(other, name) for name in numbers}
        return Counts(**total, unread=tuple(sorted({*self.unread, *other.unread})))


def judge(counts: Counts, *, called: bool, seeded: bool, compiled_before: bool = False) -> Verdict:
    """The verdict of a start.

    `called`: example calls were made. `seeded`: units of a bundle lay in the live directory.
    `compiled_before`: this process had compiled graphs before the counting began, so calls that
    ask the compiler for nothing may run on those and prove nothing.

    `warm` is said only if every layer that was asked answered from the cache and no native code
    was built; a counter that could not be read leaves the start unproven.
    """
    if not called and not counts.graphs and not counts.requests:
        return Verdict.UNPROVEN
    if not counts.requests and not counts.native_builds:
        return Verdict.UNPROVEN if compiled_before and not counts.graphs else Verdict.EAGER
    if not counts.hits and not counts.cpp_hits:
        return Verdict.INERT if seeded else Verdict.COLD
    if counts.compiled or counts.eager or counts.autograd_misses or counts.autograd_bypasses:
        return Verdict.PARTIAL
    if counts.native_builds or counts.autotunings:
        return Verdict.PARTIAL
    return Verdict.UNPROVEN if counts.unread else Verdict.WARM


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a pull moved: bytes over the wire, units by what became of them, seconds by stage.

    `repaired` of the seeded units replaced files that were damaged; `set_aside` are not seeded
    because they have failed on this machine, each with the reason.
    """

    packs: int = 0
    bytes: int = 0
    seeded: int = 0
    in_place: int = 0
    kept: int = 0
    repaired: int = 0
    left_out: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    pull_s: float = 0.0
    seed_s: float = 0.0

    @property
    def present(self) -> int:
        """Units of the bundle that lie in the live directory now."""
        return self.seeded + self.in_place


@dataclass(frozen=True, slots=True)
class CallReport:
    """One example call: its seconds, and what the compiler counted meanwhile.

    `covered`: the bundle was made with such a call; None where it does not say, or there is none.
    `checked` is what the output was compared with, or why it was not; empty if nobody asked.
    """

    signature: str
    seconds: float
    counts: Counts
    covered: bool | None = None
    checked: str = ""

    @property
    def verdict(self) -> Verdict:
        """This call's own; `warm` too for one that ran on what an earlier call had compiled."""
        found = judge(self.counts, called=True, seeded=True, compiled_before=True)
        return Verdict.WARM if found is Verdict.UNPROVEN and not self.counts.unread else found

    def to_json(self) -> dict[str, Json]:
        return {
            "signature": self.signature,
            "seconds": self.seconds,
            "verdict": self.verdict.value,
            "covered": self.covered,
            "checked": self.checked,
            "counts": counts_json(self.counts),
        }


class Publishing(Protocol):
    """A publication beside the caller."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, at most `timeout` seconds; whether it has ended."""

    def state(self) -> str:
        """`under way`, the segment, or what went wrong, in a sentence."""


@dataclass(frozen=True)
class Report:
    """What a warm start did and what came of it.

    `verdict`, `counts` and `incidents` are fixed if calls were made, else read from the compiler's
    own records each time they are asked for, so that a start without calls settles at the first
    ones. `fallback`: the bundle is that of another model of the same name. `set_aside` are units
    that failed here and are not used, each with the reason; the keys of those that this start has
    under suspicion are `suspects`, and are not published. `made_apart`: a call was only right with
    what was compiled outside the live directory. `prefetched` is the ledger of the prefetch that
    this start went on with. `model` are the components of the model digest as the model was before
    its first call; `read_model` gives the model itself while it lives, else None.
    """

    name: str
    read_counts: Callable[[], Counts] = field(repr=False, compare=False)
    called: bool = False
    bundle: str | None = None
    store: str | None = None
    tier: str | None = None
    tier_reason: str = ""
    live: str | None = None
    late: bool = False
    compiled_before: bool = False
    transfer: Transfer = Transfer()
    stages: tuple[tuple[str, float], ...] = ()
    first_call_s: float | None = None
    cold_s: float | None = None
    calls: tuple[CallReport, ...] = ()
    fallback: bool = False
    set_aside: tuple[str, ...] = ()
    read_incidents: Callable[[], tuple[Incident, ...]] = field(default=tuple, repr=False)
    notes: tuple[str, ...] = ()
    model: Components = Components()
    suspects: frozenset[str] = frozenset()
    made_apart: bool = False
    prefetched: Overlap | None = None
    publishing: Publishing | None = field(default=None, compare=False)
    read_model: Callable[[], object] = field(default=lambda: None, repr=False, compare=False)

    @property
    def counts(self) -> Counts:
        return self.read_counts()

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Graph breaks, recompiles and bypasses, with reason and place."""
        return self.read_incidents()

    @property
    def coverage(self) -> tuple[str, ...]:
        """The signatures of the calls that were made."""
        return tuple(call.signature for call in self.calls)

    @property
    def verdict(self) -> Verdict:
        return self._judge(self.counts)

    @property
    def seeded(self) -> bool:
        return self.transfer.present > 0

    def _judge(self, counts: Counts) -> Verdict:
        return judge(
            counts,
            called=self.called,
            seeded=self.seeded,
            compiled_before=self.compiled_before,
        )

    def to_json(self) -> dict[str, Json]:
        """The report as plain JSON values; seconds are floats."""
        counts = self.counts
        return {
            "verdict": self._judge(counts).value,
            "name": self.name,
            "bundle": self.bundle,
            "store": self.store,
            "tier": self.tier,
            "tier_reason": self.tier_reason,
            "live": self.live,
            "late": self.late,
            "counts": counts_json(counts),
            "transfer": _transfer_json(self.transfer),
            "stages": dict(self.stages),
            "first_call_s": self.first_call_s,
            "cold_s": self.cold_s,
            "coverage": list(self.coverage),
            "calls": [call.to_json() for call in self.calls],
            "incidents": [incident.to_json() for incident in self.incidents],
            "fallback": self.fallback,
            "set_aside": list(self.set_aside),
            "prefetched": None if self.prefetched is None else self.prefetched.to_json(),
            "published": None if self.publishing is None else self.publishing.state(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        counts = self.counts
        verdict = self._judge(counts)
        line = f"{verdict}: {', '.join(filter(None, self._facts(counts)))}"
        return "\n".join([line, *(f"  {text}" for text in self._sentences(counts))])

    def _sentences(self, counts: Counts) -> Iterator[str]:
        if self.prefetched is not None:
            yield str(self.prefetched)
        if self.tier_reason:
            yield f"tier {self.tier}: {self.tier_reason}"
        yield from self.notes
        yield from (f"set aside, {text}" for text in self.set_aside)
        yield from _meaning(counts)
        yield from _uncovered(self.calls)
        yield from (f"{call.signature}: {call.checked}" for call in self.calls if call.checked)
        yield from sentences(self.incidents)
        if self.publishing is not None:
            yield f"publication: {self.publishing.state()}"

    def _facts(self, counts: Counts) -> Iterator[str]:
        yield self._moved()
        if counts.aot_hits or counts.aot_misses:
            calls = counts.aot_hits + counts.aot_misses
            yield f"{counts.aot_hits}/{calls} calls compiled ahead of time"
        if graphs := counts.requests - counts.aot_hits:
            yield f"{graphs - counts.compiled}/{graphs} graphs from cache"
        if counts.requests:
            yield f"{counts.compiled} compiled"
        if counts.native_builds:
            yield f"{counts.native_builds} native builds"
        if self.first_call_s is not None:
            was = "" if self.cold_s is None else f" (cold was {self.cold_s:.1f} s)"
            yield f"first call {self.first_call_s:.2f} s{was}"
        elif not counts.requests:
            yield "no call yet"

    def _moved(self) -> str:
        if self.bundle is None:
            return "nothing pulled"
        seconds = self.transfer.pull_s + self.transfer.seed_s
        if self.transfer.packs:
            return f"{megabytes(self.transfer.bytes)} in {seconds:.1f} s"
        return f"{self.transfer.in_place} units in place"


def megabytes(size: int) -> str:
    """A number of bytes for people: `512 B`, `1.9 MB`."""
    if size < 1000:
        return f"{size} B"
    if size < 1_000_000:
        return f"{size / 1000:.1f} kB"
    return f"{size / 1_000_000:.1f} MB"


def _meaning(counts: Counts) -> Iterator[str]:
    """A sentence for each count that keeps a start from being warm, with its consequence."""
    if counts.compiled:
        yield f"{counts.compiled} graphs were compiled here: publish this start to have them cached"
    if counts.graph_bypasses:
        yield f"Inductor cannot cache {counts.graph_bypasses} graphs; each start compiles them"
    if counts.eager:
        yield f"{counts.eager} graphs could not be compiled here and run as they were written"
    if counts.unsaved:
        yield f"{counts.unsaved} graphs were compiled and could not be saved: see torch's warnings"
    if counts.generated > counts.graph_misses + counts.graph_bypasses:
        yield "Inductor compiled without asking its cache: a setting or flag switches the cache off"
    if counts.autograd_bypasses:
        yield f"AOTAutograd cannot cache {counts.autograd_bypasses} graphs; each start traces them"
    if counts.autograd_misses and not counts.graph_misses:
        yield f"AOTAutograd had no entry for {counts.autograd_misses} graphs and traced them again"
    if counts.native_builds and not counts.compiled:
        yield (
            f"native code was built {counts.native_builds} times though the caches hit: compiled"
            " libraries are missing there (publish the cache directories, not only a mega-cache)"
        )
    if counts.autotunings and not counts.compiled:
        yield f"{counts.autotunings} autotunings were measured again"
    if counts.graph_breaks:
        yield f"{counts.graph_breaks} graph breaks split the model; each part is its own graph"
    if counts.unread:
        yield f"not counted here: {', '.join(counts.unread)}; so warmth is not proven"


def _uncovered(calls: Iterable[CallReport]) -> Iterator[str]:
    for call in calls:
        if call.covered is False and call.counts.compiled:
            yield (
                f"the bundle was not made with a call like {call.signature}: publish this start, or"
                " give the call when the bundle is made"
            )


def counts_json(counts: Counts) -> dict[str, Json]:
    """All counts, and the native builds in all."""
    values: dict[str, Json] = {item.name: getattr(counts, item.name) for item in fields(counts)}
    return {**values, "unread": list(counts.unread), "native_builds": counts.native_builds}


def _transfer_json(transfer: Transfer) -> dict[str, Json]:
    values: dict[str, Json] = {item.name: getattr(transfer, item.name) for item in fields(transfer)}
    lists: dict[str, Json] = {
        "left_out": list(transfer.left_out),
        "set_aside": list(transfer.set_aside),
    }
    return {**values, **lists}
