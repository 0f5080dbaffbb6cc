"""Differences for people: cut down to what changed, and put together by their cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachesvc.core.changes import narrowed, sentence, sentences
from cachesvc.core.components import Difference


def cut(component: str, old: Any, new: Any) -> list[str]:
    texts = (value if isinstance(value, str) else json.dumps(value) for value in (old, new))
    return [str(part) for part in narrowed([Difference(component, *texts)])]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["attributes head b: 2 -> 3"]),
        ({"a": 1}, {"b": None},
         ["attributes head a: 1 -> absent", "attributes head b: absent -> null"]),
        ({"c": {"fields": {"eps": 1e-6}}}, {"c": {"fields": {"eps": 1e-5}}},
         ["attributes head c.fields.eps: 1e-06 -> 1e-05"]),
        ({"m": [["k", 1], ["l", 2]]}, {"m": [["k", 1], ["l", 3]]}, ["attributes head m.l: 2 -> 3"]),
        ({"a": 1}, {"a": True}, ["attributes head a: 1 -> true"]),
        ({"a": 1}, {"a": 1.0}, ["attributes head a: 1 -> 1.0"]),
        ({"a": "1"}, {"a": 1}, ['attributes head a: "1" -> 1']),
        ({"a": "x"}, {"a": ""}, ["attributes head a: x -> ''"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["attributes head a: [1,2] -> [1,3]"]),
        ({"a": ["x", "y"]}, {"a": ["y", "z"]}, ['attributes head a: ["x"] -> ["z"]']),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, ['attributes head a: ["x","y"] -> ["y","x"]']),
        ([{"b": 1}, {"b": 2}], [{"b": 1}, {"b": 3}], ["attributes head b: 2 -> 3"]),
        ([{"b": 1}, {"b": 2}], [{"b": 0}, {"b": 3}],
         ["attributes head [0].b: 1 -> 0", "attributes head [1].b: 2 -> 3"]),
        ({"a": "sha256:1"}, {"a": "sha256:2"}, ["attributes head a: sha256:1 -> sha256:2"]),
    ],
)  # fmt: skip
def test_only_what_changed_inside_is_kept(old: Any, new: Any, said: list[str]) -> None:
    """The way to a changed value, with both values; equal neighbours are not repeated."""
    assert cut("attributes head", old, new) == said


def test_rows_are_named_by_their_first_text() -> None:
    """As parameters and modules are kept: a list of place, facts, and what it is tied to."""
    old = [["in.weight", {"shape": [4, 4], "dtype": "f"}, None], ["out", {"dtype": "f"}, None]]
    new = [["in.weight", {"shape": [5, 4], "dtype": "f"}, None], ["out", {"dtype": "f"}, "in"]]
    assert cut("parameters", old, new) == [
        "parameters in.weight shape: [4,4] -> [5,4]",
        'parameters out: {"dtype":"f"} -> [{"dtype":"f"},"in"]',
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sha256:aa", "sha256:bb"),
        ("text", '{"a":1}'),
        ("{broken", '{"a":1}'),
        ('{"a":NaN}', '{"a":1}'),
        ('{"a":"\\ud800"}', '{"a":1}'),
        ('{"a": 1}', '{"a":1}'),
        ("[" * 100_000, "[1]"),
        ("[" * 900 + "]" * 900, "[" * 900 + "1" + "]" * 900),
    ],
)
def test_what_cannot_be_read_stays_whole(old: str, new: str) -> None:
    """Components come from other writers: any text is named as it is, nothing raises."""
    whole = Difference("attributes head", old, new)
    (part,) = narrowed([whole])
    assert part == whole or len(part.old or "") < len(old)


def test_one_sided_components_stay_whole() -> None:
    """A component that a side lacks is absent there."""
    whole = Difference("attributes head", None, '{"a":1}')
    assert narrowed([whole]) == (whole,)


def test_the_same_change_in_many_modules_is_said_once() -> None:
    """With how many they are and the first of them; another change beside it stands alone."""
    norms = [Difference(f"attribute layers.{n}.norm.eps", "1e-06", "1e-05") for n in range(33)]
    other = Difference("attribute head.scale", "1e-06", "1e-05")
    assert [*sentences([*norms, other])] == [
        "attribute eps: 1e-06 -> 1e-05 in 33 places"
        " (layers.0.norm, layers.1.norm, layers.2.norm, ...)",
        "attribute head.scale: 1e-06 -> 1e-05",
    ]
    roots = [Difference(f"attribute {place}eps", "1", "2") for place in ("", "layer.")]
    assert [*sentences(roots)] == ["attribute eps: 1 -> 2 in 2 places (., layer)"]


def test_the_same_change_elsewhere_names_its_kind() -> None:
    """What changed may stand after the place."""
    weights = [Difference(f"parameters {n}.weight dtype", "f32", "bf16") for n in "ab"]
    assert [*sentences(weights)] == [
        "parameters dtype: f32 -> bf16 in 2 places (a.weight, b.weight)"
    ]


def test_several_models_are_kept_apart() -> None:
    """Each has its name before its components; a change in both is not one cause."""
    assert cut("draft: parameters", [["w", {"shape": [1]}]], [["w", {"shape": [2]}]]) == [
        "draft: parameters w shape: [1] -> [2]"
    ]
    changes = [
        Difference(f"{part}: attributes {layer} eps", "1", "2") for part in "01" for layer in "ab"
    ]
    assert [*sentences(changes)] == [
        "0: attributes eps: 1 -> 2 in 2 places (a, b)",
        "1: attributes eps: 1 -> 2 in 2 places (a, b)",
    ]


@pytest.mark.parametrize(("old", "new", "state"), [
    ("{}", "{}", "changed"), (None, "{}", "new"), ("{}", None, "gone"),
])  # fmt: skip
def test_functions_of_one_package_are_counted(old: str | None, new: str | None, state: str) -> None:
    """Digests tell nothing to people, so many of one package are one line; few are listed."""
    changed = [
        Difference(
            f"function pkg.mod.f{n}",
            old and old.format(f"{n:016x}"),
            new and new.format(f"{n + 50:016x}"),
        )
        for n in range(20)
    ]
    assert [*sentences(changed)] == [
        f"function: 20 of pkg {state} (pkg.mod.f0, pkg.mod.f1, pkg.mod.f2, ...)"
    ]
    assert len([*sentences(changed[:3])]) == 3


def test_long_values_are_cut_where_they_differ() -> None:
    """Both ends of an arrow must not look the same; digests show their first digits."""
    old, new = "x" * 300 + "old" + "y" * 300, "x" * 300 + "new" + "y" * 300
    said = sentence(Difference("attributes head", old, new))
    assert "xold" in said
    assert "xnew" in said
    assert len(said) < 300
    digests = sentence(Difference("code m.A", f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"))
    assert digests == f"code m.A: sha256:{'a' * 12} -> sha256:{'b' * 12}"
