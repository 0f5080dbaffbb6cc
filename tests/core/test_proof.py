"""Proofs: their outputs travel in manifests, and older manifests are read as before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import Fields, Issues
from cachesvc.core.outputs import OutputRecord, TensorRecord
from cachesvc.core.proof import MAX_OUTPUTS, Proof, carried
from cachesvc.core.report import Verdict

INF, NAN = float("inf"), float("nan")
DIGEST = "ab" * 32
TENSOR = TensorRecord("output[0]", "float32", (2, 3), 1.5, (0.25, -1.5, INF))
RECORD = OutputRecord("(float32[2, 4])", DIGEST, "cd" * 32, (TENSOR,), 1)
PROOF = Proof(47.4, 1.0, Verdict.WARM, ("outputs equal to eager",), (RECORD,))


def read(value: object) -> Proof:
    """The proof in a JSON value; raises IntegrityError for what is wrong with it."""
    issues = Issues()
    proof = Proof.read(Fields(json.loads(json.dumps(value)), "proof", issues))
    issues.raise_if_any("m")
    return proof


def test_round_trip() -> None:
    """A proof is read back equal, with what a newer writer said beside each field."""
    assert read(PROOF.to_json()) == PROOF
    value = PROOF.to_json()
    value["outputs"][0]["new"] = value["outputs"][0]["tensors"][0]["new"] = {"a": [1]}
    assert read(value).to_json() == value


def test_a_proof_of_an_older_writer() -> None:
    """Without outputs none are read, and none are written: the bytes stay what they were."""
    older = {"cold_s": None, "warm_s": 1.0, "verdict": "warm", "verified": []}
    assert read(older) == Proof(warm_s=1.0, verdict=Verdict.WARM)
    assert read(older).to_json() == older


@pytest.mark.parametrize("value", [INF, -INF])
def test_what_json_cannot_hold(value: float) -> None:
    """Infinities and NaN travel as text, so that every reader can read the manifest."""
    tensor = replace(TENSOR, sample=(value, NAN))
    written = tensor.to_json()
    assert written["sample"] == [f"{value:g}", "nan"]
    (back,) = read({**PROOF.to_json(), "outputs": [_with(written)]}).outputs
    assert str(back.tensors[0]) == str(tensor)


def _with(tensor: dict[str, Any]) -> dict[str, Any]:
    return {**RECORD.to_json(), "tensors": [tensor]}


@pytest.mark.parametrize(
    ("change", "issue"),
    [
        ({"sample": [0.5]}, "sample[0]: 0.5 has not the form"),
        ({"sample": ["1e5x"]}, "sample[0]: '1e5x' has not the form"),
        ({"sample": ["0x10"]}, "sample[0]: '0x10' has not the form"),
        ({"scale": "-nan"}, "scale: '-nan' has not the form"),
        ({"shape": [2, -1]}, "shape[1]: -1 is not a size"),
        ({"shape": [True]}, "shape[0]: True is not a size"),
        ({"shape": "2"}, "shape: is of a wrong kind"),
        ({"path": 5}, "path: is of a wrong kind"),
        ({"dtype": None}, "dtype: is of a wrong kind"),
    ],
)
def test_hostile_records(change: dict[str, Any], issue: str) -> None:
    """What is no record is refused, with its place."""
    value = {**PROOF.to_json(), "outputs": [_with({**TENSOR.to_json(), **change})]}
    with pytest.raises(IntegrityError) as caught:
        read(value)
    assert any(f"outputs[0].tensors[0].{issue}" in found for found in caught.value.issues)


def test_a_digest_that_is_none() -> None:
    """Inputs and weights are digests, or empty where they are not known."""
    unknown = replace(RECORD, inputs="", weights="")
    assert read({**PROOF.to_json(), "outputs": [unknown.to_json()]}).outputs == (unknown,)
    with pytest.raises(IntegrityError, match=r"outputs\[0\].inputs"):
        read({**PROOF.to_json(), "outputs": [{**RECORD.to_json(), "inputs": "abc"}]})


def test_a_later_push_keeps_the_outputs() -> None:
    """A push that merges has its own seconds and checks; the records of other calls, and of these
    calls with other weights, stay; of one output the youngest record does."""
    later = replace(RECORD, leaves=7)
    other = replace(RECORD, call="(float32[9, 4])")
    pushed = Proof(cold_s=3.0, outputs=(later,))
    merged = carried(pushed, [replace(PROOF, outputs=(RECORD, other))])
    assert merged == Proof(cold_s=3.0, outputs=(other, later))
    assert carried(None, [PROOF, Proof(1.0)]) == Proof(1.0, outputs=(RECORD,))
    assert carried(PROOF, []) == PROOF
    assert carried(None, []) is None


def test_records_do_not_grow_without_end() -> None:
    """A bundle that is built again and again with other weights keeps the youngest records."""
    records = [replace(RECORD, weights=f"{number:064x}") for number in range(MAX_OUTPUTS + 5)]
    merged = carried(None, [replace(PROOF, outputs=(record,)) for record in records])
    assert merged is not None
    assert merged.outputs == tuple(records[5:])
