"""explain names what differs and nothing else; compare does so for two bundles."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import ANY_MODEL, Address
from cachesvc.core.components import Components, Difference
from cachesvc.core.errors import BundleNotFound, IntegrityError, UsageError
from cachesvc.core.explanation import Need
from cachesvc.core.manifest import Origin
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.local.host import read_environment
from cachesvc.repository.pack import Source
from cachesvc.repository.publish import Draft, Facts, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.start.explain import compare, explain
from cachesvc.store.location import open_store

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

MODEL = """
import torch
from types import SimpleNamespace
from shaping import shape

class Shaped(torch.nn.Module):
    def __init__(self, rows=2):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.config = SimpleNamespace(rows=rows, width=8)

    def forward(self, x):
        return shape(self.inner(x), self.config.rows)
"""
SHAPING = "def shape(x, rows):\n    return x.reshape(rows, 2, -1)\n"
PUBLISH = """
sys.dont_write_bytecode = True
sys.path.insert(0, given["folder"])
from shaped import Shaped
report = start(torch.compile(Shaped()), [ones()])
push(torch.compile(Shaped()), report)
"""
EXPLAIN = """
def explained(model, **options):
    options = {"store": given["store"], "label": given["label"], **options}
    found = cachesvc.explain(model, **options)
    return {**found.to_json(), "text": str(found)}
"""


@pytest.fixture(scope="module")
def shaped(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model whose forward calls a function of another module, and with the store
    into which a start of it was published."""
    folder = tmp_path_factory.mktemp("shaped")
    (folder / "shaped.py").write_text(MODEL)
    (folder / "shaping.py").write_text(SHAPING)
    starts.run(PUBLISH, store=folder / "store", label="shaped", given={"folder": str(folder)})
    return folder


def differences(told: Mapping[str, Any]) -> dict[str, list[tuple[str, str | None, str | None]]]:
    """What was named, by area, without the areas in which nothing was."""
    return {
        area: [(item["component"], item["old"], item["new"]) for item in items]
        for area, items in told["differences"].items()
        if items
    }


def explained_plain(starts: Starts, plain: Published, script: str, **how: Any) -> dict[str, Any]:
    told: dict[str, Any] = starts.run(EXPLAIN + script, store=plain.store, label="plain", **how)
    return told


def test_nothing_differs(starts: Starts, plain: Published) -> None:
    """The same model in another process, compiled or not: its own bundle, and no difference."""
    told = explained_plain(
        starts, plain, "result = [explained(torch.compile(Plain())), explained(Plain())]"
    )
    assert told[0] == told[1]
    assert told[0]["would_hit"]
    assert differences(told[0]) == {}
    assert told[0]["unknown"] == []
    assert told[0]["asked"] == told[0]["nearest"]
    first, second = told[0]["text"].splitlines()
    assert first.endswith("nothing differs, a start here finds it")
    assert second == "  the bundle covers the calls (float32[2, 4])"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "torch._inductor.config.epilogue_fusion = False",
            ("inductor epilogue_fusion", None, "False"),
        ),
        ("torch.set_num_threads(3)", ("threads", "1", "3")),
        (
            "os.environ['TRITON_DISABLE_LINE_INFO'] = '1'",
            ("variable TRITON_DISABLE_LINE_INFO", None, "1"),
        ),
        (
            "torch.set_float32_matmul_precision('high')",
            ("matmul precision", "highest", "high"),
        ),
    ],
)
def test_one_change_of_context(
    starts: Starts, plain: Published, change: str, named: tuple[str, str | None, str]
) -> None:
    """A start finds its bundle and the compiler may not use it: the setting is named, alone."""
    told = explained_plain(starts, plain, f"{change}\nresult = explained(Plain())")
    assert differences(told) == {"context": [named]}
    assert told["would_hit"]
    old = "absent" if named[1] is None else named[1]
    assert f"  context {named[0]}: {old} -> {named[2]}" in told["text"].splitlines()


@pytest.mark.parametrize(
    ("component", "new"), [("torch", "2.99.0+cu130"), ("device", "NVIDIA H200")]
)
def test_one_change_of_environment(
    starts: Starts, plain: Published, component: str, new: str
) -> None:
    """Another torch, another device: the bundle is not found, and that component is named, alone.
    What another machine's settings are is not guessed."""
    told = explained_plain(
        starts,
        plain,
        """
here = dict(cachesvc.read_environment())
result = explained(Plain(), environment={**here, **given["other"]})
""",
        given={"other": {component: new}},
    )
    old = read_environment()[component]
    assert differences(told) == {"environment": [(component, old, new)]}
    assert not told["would_hit"]
    assert told["unknown"] == ["context", "requirements"]
    assert f"  environment {component}: {old} -> {new}" in told["text"].splitlines()


def test_one_change_of_a_models_constant(starts: Starts, shaped: Path) -> None:
    """A number in its config object: both values, and nothing that merely holds the config."""
    told = explained_shaped(starts, shaped, "Shaped(rows=4)")
    changed = differences(told)
    assert changed.keys() == {"model"}
    assert {(old, new) for _, old, new in changed["model"]} == {("2", "4")}
    assert all("rows" in component for component, _, _ in changed["model"])
    assert not told["would_hit"]


def test_one_change_of_a_helpers_source(starts: Starts, shaped: Path, tmp_path: Path) -> None:
    """A line of a function in another module than the model's: that function, and no other."""
    folder = tmp_path / "edited"
    shutil.copytree(shaped, folder)
    assert differences(explained_shaped(starts, folder, "Shaped()")) == {}
    (folder / "shaping.py").write_text(SHAPING.replace("2, -1", "-1, 2"))
    changed = differences(explained_shaped(starts, folder, "Shaped()"))
    assert changed.keys() == {"model"}
    assert all("shape" in component for component, _, _ in changed["model"])
    assert not any("forward" in component for component, _, _ in changed["model"])


def explained_shaped(starts: Starts, folder: Path, model: str) -> dict[str, Any]:
    told: dict[str, Any] = starts.run(
        EXPLAIN
        + f"""
sys.dont_write_bytecode = True
sys.path.insert(0, given["folder"])
from shaped import Shaped
result = explained({model})
""",
        store=folder / "store",
        label="shaped",
        given={"folder": str(folder)},
    )
    return told


def test_a_salt_is_a_component(starts: Starts, plain: Published) -> None:
    """The user's own part of the digest is named as any other."""
    told = explained_plain(starts, plain, "result = explained(Plain(), salt='v2')")
    assert differences(told) == {"model": [("salt", None, "v2")]}


def test_the_same_model_under_another_name(starts: Starts, plain: Published) -> None:
    """A wrong label is a common reason to find nothing: the right one is said."""
    said = explained_plain(
        starts,
        plain,
        """
try:
    explained(Plain(), label="plane")
except cachesvc.BundleNotFound as error:
    result = str(error)
""",
    )
    assert "no bundle of plane in " in said
    assert "this very model lies there under plain: give that name with --label" in said


def test_a_target_is_loaded(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """module:function gives the model, and its workload's name the bundle's."""
    (tmp_path / "served.py").write_text(
        "import cachesvc\nfrom tiny_models import Plain, ones\n"
        "def workload():\n    return cachesvc.Workload('plain', Plain(), ((ones(),),))\n"
    )
    told = explained_plain(
        starts,
        plain,
        "sys.path.insert(0, given['folder'])\nresult = explained('served:workload', label=None)",
        given={"folder": str(tmp_path)},
    )
    assert told["would_hit"]
    assert (told["asked"]["name"], differences(told)) == ("plain", {})


HERE = dict(read_environment())
OTHER = {**HERE, "torch": "1.0", "device": "abacus"}


class Shelf:
    """A store of bundles made by hand, each a second younger than the one before."""

    def __init__(self, folder: Path) -> None:
        self.store = folder
        self._clock = 0

    def put(
        self,
        name: str = "m",
        model: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] = HERE,
        context: Mapping[str, str] | None = None,
        needs: tuple[Requirement, ...] = (),
        units: int = 1,
    ) -> Address:
        """Publishes one segment of some units under (name, model, environment)."""
        self._clock += 1
        created = f"2025-01-01T00:00:{self._clock:02}.000000Z"
        here, parts = Components.of(environment), Components.of(model or {})
        address = Address(name, parts.digest if parts else ANY_MODEL, here.digest)
        origin = Origin(created, address.model, Components.of(context or {}))
        drafts = [
            Draft(
                f"inductor/{n}.{self._clock}",
                (Source(f"inductor/{n}.{self._clock}", 1, lambda: io.BytesIO(b"x")),),
                origin,
                needs,
            )
            for n in range(units)
        ]
        facts = Facts(
            address=address,
            environment=here,
            model=parts,
            created=created,
            nonce=f"{self._clock:032x}",
            producer=Components(),
        )
        repository = Repository(open_store(self.store))
        publish(repository, facts, Reading(address, ()), drafts, Capabilities(unchecked=True))
        return address

    def explain(self, model: str = "m", **options: Any) -> Any:
        return explain(model, store=self.store, **options)

    def compare(self, a: object, b: object) -> Any:
        return compare(str(a), str(b), store=self.store)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "store")


def test_nothing_under_the_name(shelf: Shelf) -> None:
    """The error says which names there are, the likely one first; or that there is none at all."""
    with pytest.raises(BundleNotFound, match=r"no bundle of m in .*; the store holds no bundle"):
        shelf.explain()
    shelf.put("llama-prod")
    with pytest.raises(BundleNotFound, match=r"did you mean llama-prod\?"):
        shelf.explain("lama-prod")
    for number in range(12):
        shelf.put(f"x{number:02}")
    with pytest.raises(BundleNotFound, match=r"it holds llama-prod, x00, .*, x08 and 3 more: see"):
        shelf.explain("m")


def test_only_another_environment(shelf: Shelf) -> None:
    """Each component that differs, and no others; a name alone says nothing of the model."""
    shelf.put(environment=OTHER)
    told = shelf.explain()
    assert told.would_hit is False
    assert told.environment == (
        Difference("device", "abacus", HERE["device"]),
        Difference("torch", "1.0", HERE["torch"]),
    )
    assert told.model == told.requirements == ()
    assert "model" in told.unknown
    assert any("give module:function" in note for note in told.notes)


def test_a_bundle_of_this_environment_is_nearer(shelf: Shelf) -> None:
    """Than a newer one of another; among others the one with fewer differences."""
    far = shelf.put(model={"a": "1"}, environment=OTHER)
    near = shelf.put(model={"a": "1"}, environment={**HERE, "torch": "1.0"})
    shelf.put(model={"a": "2"}, environment=OTHER)
    assert shelf.explain().nearest == near
    here = shelf.put(model={"a": "3"})
    shelf.put(model={"a": "2"}, environment={**HERE, "torch": "1.0"})
    assert shelf.explain().nearest == here
    assert shelf.explain().would_hit is True
    assert shelf.explain(far.model).nearest == near


def test_only_so_many_manifests_are_read(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many bundles the newest are compared, and that is said."""
    monkeypatch.setattr("cachesvc.start.nearest._MOST", 2)
    for number in range(4):
        shelf.put(environment={**HERE, "torch": f"1.{number}"})
    told = shelf.explain()
    assert "only the newest 2 of 4 bundles were compared" in told.notes
    assert [item.old for item in told.environment] in (["1.2"], ["1.3"])


def test_a_digest_alone(shelf: Shelf) -> None:
    """The model is known to be the same; only environments can differ."""
    address = shelf.put(model={"a": "1"}, environment=OTHER)
    told = shelf.explain(address.model)
    assert (told.asked.name, told.asked.model) == (None, address.model)
    assert told.nearest == address
    assert "model" not in told.unknown
    assert [item.component for item in told.environment] == ["device", "torch"]
    with pytest.raises(BundleNotFound, match="no bundle of the model ffffffffffff in"):
        shelf.explain("f" * 64)


def test_an_unmet_requirement_is_named_with_both_values(shelf: Shelf) -> None:
    """What units need, how many they are, and what this host has instead."""
    shelf.put(units=3, needs=(Requirement("isa", "sve9"), Requirement("glibc", "9.99")))
    told = shelf.explain()
    glibc, isa = told.requirements
    assert isa == Need("isa", "sve9", "a CPU without it", 3)
    assert (glibc.component, glibc.old, glibc.units) == ("glibc", "9.99", 3)
    assert told.would_hit is False
    assert told.environment == ()
    assert "  requirement isa: 3 units need sve9, this host has a CPU without it" in str(told)


def test_some_units_fit(shelf: Shelf) -> None:
    """A start finds the rest; the units left out are still named."""
    shelf.put(units=1, needs=(Requirement("isa", "sve9"),))
    shelf.put(units=2)
    told = shelf.explain()
    assert told.would_hit is True
    assert [need.units for need in told.requirements] == [1]


def test_another_machines_abilities_are_not_guessed(shelf: Shelf) -> None:
    """This host is not asked about requirements for another environment."""
    shelf.put(environment=OTHER, needs=(Requirement("isa", "sve9"),), context={"threads": "7"})
    told = shelf.explain(environment=OTHER)
    assert (told.would_hit, told.differs) == (True, False)
    assert told.unknown == ("model", "context", "requirements")


def test_contexts_are_compared_with_the_nearest(shelf: Shelf) -> None:
    """A bundle of several processes: the one that was most like this one counts."""
    from cachesvc.runtime.context import read_context

    here = dict(read_context())
    shelf.put(context={**here, "threads": "77", "default dtype": "torch.int1"})
    shelf.put(context={**here, "threads": "99"})
    assert shelf.explain().context == (Difference("threads", "99", here["threads"]),)


def test_a_refused_segment_is_a_reason(shelf: Shelf) -> None:
    """The bundle lies there and cannot be read: said, and another one is the nearest."""
    shelf.put()
    (manifest,) = shelf.store.glob("bundles/**/*.json")
    manifest.write_bytes(b"{}")
    told = shelf.explain()
    assert (told.nearest, told.would_hit) == (None, False)
    assert any("does not have the digest that its name says" in note for note in told.notes)
    assert "no bundle can be read" in str(told)
    near = shelf.put(environment=OTHER)
    told = shelf.explain()
    assert (told.nearest, told.would_hit) == (near, False)
    assert any("does not have the digest that its name says" in note for note in told.notes)


def test_compare_two_bundles(shelf: Shelf) -> None:
    """Every area, old on the left; what is equal is not named."""
    old = shelf.put(
        model={"class": "M", "attributes .": '{"eps":1,"x":[1]}', "code M": f"sha256:{'a' * 64}"},
        context={"threads": "1", "same": "1"},
        needs=(Requirement("isa", "avx2"),),
        units=2,
    )
    new = shelf.put(
        model={"class": "M", "attributes .": '{"eps":2,"x":[1]}', "code M": f"sha256:{'b' * 64}"},
        environment={**HERE, "device": "abacus"},
        context={"threads": "2", "same": "1"},
    )
    told = shelf.compare(old, new)
    assert told.would_hit is None
    assert told.nearest == old
    assert told.environment == (Difference("device", HERE["device"], "abacus"),)
    assert told.model == (
        Difference("attributes . eps", "1", "2"),
        Difference("code M", f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"),
    )
    assert told.context == (Difference("threads", "1", "2"),)
    assert told.requirements == (Need("isa", "avx2", None, 2),)
    assert str(told).splitlines() == [
        f"{old} -> {new}: these differ",
        f"  environment device: {HERE['device']} -> abacus",
        "  model attributes . eps: 1 -> 2",
        f"  model code M: sha256:{'a' * 12} -> sha256:{'b' * 12}",
        "  context threads: 1 -> 2",
        "  requirement isa: avx2 -> absent",
    ]
    assert str(shelf.compare(old, old)) == f"{old} -> {old}: nothing differs"


def test_compare_groups_one_cause(shelf: Shelf) -> None:
    """The text says it once; the values have all of them."""
    names = [f"attributes layers.{number}" for number in range(33)]
    old = shelf.put(model=dict.fromkeys(names, '{"eps":1,"width":4}'))
    new = shelf.put(model=dict.fromkeys(names, '{"eps":2,"width":4}'))
    told = shelf.compare(old, new)
    assert len(told.model) == len(told.to_json()["differences"]["model"]) == 33
    assert told.sentences[1] == (
        "  model attributes eps: 1 -> 2 in 33 places (layers.0, layers.1, layers.2, ...)"
    )
    many = shelf.put(model={f"global {chr(97 + n)}": str(n) for n in range(26)})
    *_, last = shelf.compare(old, many).sentences[:22]
    assert last == "  model: 7 more differ, which JSON tells"


def test_compare_says_what_a_bundle_does_not_know(shelf: Shelf) -> None:
    """Directories that were pushed under a name alone have no model and no context."""
    whole, bare = shelf.put(model={"a": "1"}, context={"threads": "1"}), shelf.put("bare")
    told = shelf.compare(whole, "bare")
    assert told.unknown == ("model", "context")
    assert told.differs is False
    assert str(told).splitlines()[0] == (
        f"{whole} -> {bare}: nothing differs in environment, requirements"
    )
    assert len(told.notes) == 2


def test_compare_wants_one_bundle_each(shelf: Shelf) -> None:
    """None and several are told apart, and both say what to do; a broken one is not compared."""
    address = shelf.put(model={"a": "1"})
    shelf.put(model={"a": "2"})
    with pytest.raises(BundleNotFound, match=r"no bundle nothing in .*: `tccache ls` shows"):
        shelf.compare("nothing", address)
    with pytest.raises(UsageError, match=r"m means 2 bundles: m/.*; name one as NAME/MODEL/ENV"):
        shelf.compare(address, "m")
    for manifest in shelf.store.glob(f"bundles/m/{address.model}/**/*.json"):
        manifest.write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="cannot be read: "):
        shelf.compare(address, address)
