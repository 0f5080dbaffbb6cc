"""Which code a key, a name or the start of one means; what a bundle holds as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cachesvc.core.code import choices, choose, merged
from cachesvc.core.errors import UsageError
from cachesvc.core.graph import Contents, Graph, Kernel, KernelUse, Part, Unreadable

SOURCE, OTHER = "inductor/ab/cabsource", "inductor/cd/cdother"
BUILDS = ("triton/KEYONE", "triton/KEYTWO")

GRAPH = Graph(
    key="fgraph",
    entries=("inductor/fxgraph/gr/fgraph/hash",),
    bytes=10,
    kind="forward",
    devices=("cuda",),
    inputs=("float32[8]",),
    operators=(("aten.relu", 2),),
    kernels=(
        KernelUse("triton_relu_0", ("aten.relu",), (SOURCE, *BUILDS)),
        KernelUse("cpp_fused_sum_1"),
    ),
    library_calls=(("mm", 1),),
    module="inductor/mo/cmodule",
    autograd=("inductor/aotautograd/akey",),
    compile_s=1.5,
    model="any",
    created="2026-01-02T03:04:05.678901Z",
)


def kernel(key: str, name: str, **other: object) -> Kernel:
    form = "py" if key.startswith("inductor") else "ptx"
    plain = Kernel(key, name, "Triton", 5, None, ("fgraph",), ((form, f"{key}/{name}.{form}"),))
    return replace(plain, **other)  # type: ignore[arg-type]


CONTENTS = Contents(
    "name",
    "any",
    "e" * 64,
    graphs=(GRAPH,),
    kernels=(
        kernel(SOURCE, "triton_relu_0"),
        kernel(OTHER, "triton_relu_01"),
        *(kernel(key, "triton_relu_0", source=SOURCE) for key in BUILDS),
    ),
    parts=(Part("triton", "kernel", 2, 10),),
    unreadable=(Unreadable("inductor/fxgraph/xx/f/hash", "it is no pickle"),),
)
AMONG = choices(CONTENTS)

MEANT = [
    # what is asked for, the key of what it means, the form
    ("fgraph", GRAPH.entries[0], "py"),
    ("fgr", GRAPH.entries[0], "py"),
    ("fgraph.fx", GRAPH.entries[0], "fx"),
    ("inductor/fxgraph/gr/fgraph/hash", GRAPH.entries[0], "py"),
    ("cmodule", GRAPH.entries[0], "py"),
    ("inductor/mo/cmodule", GRAPH.entries[0], "py"),
    ("triton_relu_0", SOURCE, "py"),
    ("triton_relu_01", OTHER, "py"),
    ("cabs", SOURCE, "py"),
    (OTHER, OTHER, "py"),
    ("KEYONE", BUILDS[0], "ptx"),
    ("triton/KEYT", BUILDS[1], "ptx"),
    ("KEYONE.ptx", BUILDS[0], "ptx"),
    ("cpp_fused_sum_1", "fgraph:cpp_fused_sum_1", "cpp"),
    ("fgraph:cpp_fused_sum_1", "fgraph:cpp_fused_sum_1", "cpp"),
]


@pytest.mark.parametrize(("asked", "key", "form"), MEANT)
def test_one_is_meant(asked: str, key: str, form: str) -> None:
    """Keys, their last parts, paths, names and starts lead to one; a whole name wins over the start
    of another, a source stands for its builds, and a form behind it is looked for."""
    choice, found = choose(AMONG, asked)
    assert (choice.key, found) == (key, form)
    assert found in dict(choice.forms)


def test_every_title_means_itself() -> None:
    """The keys that an error names can be given as they stand."""
    assert {choose(AMONG, choice.key)[0].key for choice in AMONG} == {c.key for c in AMONG}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            "triton_relu",
            "'triton_relu' may mean 2 .* inductor/ab/cabsource .*, inductor/cd/cdother",
        ),
        ("triton_relu_0.ptx", "may mean 2 .* triton/KEYONE .*, triton/KEYTWO"),
        ("nothing", "no code for 'nothing': give .*: fgraph, triton_relu_0, triton_relu_01, cpp"),
        ("KEYONE.py", "'KEYONE' has no code in the form 'py': it has ptx"),
        (".ptx", "no code for '.ptx': give a key"),
    ],
)
def test_none_or_several(asked: str, text: str) -> None:
    """An error says what there is, so that the next try succeeds."""
    with pytest.raises(UsageError, match=text):
        choose(AMONG, asked)


def test_long_lists_are_cut() -> None:
    """Of fifty candidates an error names eight and counts the rest."""
    many = replace(CONTENTS, kernels=tuple(kernel(f"inductor/ab/c{n}", "k") for n in range(50)))
    with pytest.raises(UsageError, match=r"may mean 50 .*inductor/ab/c7 \S+ Triton\), and 42 more"):
        choose(choices(many), "k")


def test_nothing_to_choose_from() -> None:
    """A bundle without graphs says so instead of naming an empty list."""
    with pytest.raises(UsageError, match="the bundle holds no graph and no kernel"):
        choose(choices(Contents("name", "any", "e" * 64)), "x")


def test_every_name_of_a_kernel_counts() -> None:
    """One C++ file serves graphs that have different names for it; all of them lead there."""
    uses = (
        KernelUse("cpp_fused_relu_0", units=(SOURCE,)),
        KernelUse("cpp_fused_relu_7", (), (SOURCE,)),
    )
    contents = replace(CONTENTS, graphs=(replace(GRAPH, kernels=uses),))
    found = {choose(choices(contents), use.name)[0].key for use in uses}
    assert found == {SOURCE}


def test_one_kernel_in_two_bundles() -> None:
    """The same file under other names in another bundle is one thing, called by all of them."""
    use = KernelUse("cpp_fused_relu_9", units=(SOURCE,))
    other = replace(CONTENTS, graphs=(replace(GRAPH, kernels=(use,)),))
    both = merged((*AMONG, *choices(other)))
    assert len(both) == len(AMONG)
    found = {choose(both, name)[0].key for name in ("triton_relu_0", use.name, "cabs")}
    assert found == {SOURCE}


def test_json() -> None:
    """Everything is a JSON value; counts and forms are objects by name."""
    value = json.loads(json.dumps(CONTENTS.to_json()))
    (graph,) = value["graphs"]
    assert graph["operators"] == {"aten.relu": 2}
    assert graph["origin"] == {"model": "any", "created": GRAPH.created}
    assert graph["kernels"][0]["units"] == [SOURCE, *BUILDS]
    assert value["kernels"][2]["source"] == SOURCE
    assert value["kernels"][2]["forms"] == {"ptx": "triton/KEYONE/triton_relu_0.ptx"}
    assert value["parts"] == [{"section": "triton", "kind": "kernel", "units": 2, "bytes": 10}]
    assert value["unreadable"][0]["reason"] == "it is no pickle"
