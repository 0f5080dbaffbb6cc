"""The policies grant what the verbs need and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

POLICIES = Path(__file__).parents[2] / "infra" / "policies"
BUCKET = "arn:aws:s3:::BUCKET"
OBJECTS = {f"{BUCKET}/PREFIX/tccache.json", f"{BUCKET}/PREFIX/bundles/*"}
READ = {"s3:ListBucket", "s3:GetObject"}
WRITE = {"s3:PutObject", "s3:AbortMultipartUpload"}


def statements(name: str) -> list[dict[str, Any]]:
    policy = json.loads((POLICIES / f"{name}.json").read_text())
    assert policy["Version"] == "2012-10-17"
    return list(policy["Statement"])


def test_there_are_two_policies() -> None:
    """A third one is not looked at by the tests below."""
    assert {path.stem for path in POLICIES.iterdir()} == {"reader", "publisher"}


@pytest.mark.parametrize(("name", "actions"), [("reader", READ), ("publisher", READ | WRITE)])
def test_the_actions_are_exactly_these(name: str, actions: set[str]) -> None:
    """No wildcard, and no delete for either: a leaked key cannot empty a store."""
    granted = [action for statement in statements(name) for action in statement["Action"]]
    assert sorted(granted) == sorted(actions)


@pytest.mark.parametrize("name", ["reader", "publisher"])
def test_every_statement_allows_and_says_nothing_unknown(name: str) -> None:
    """A NotAction or NotResource would grant by what it leaves out."""
    for statement in statements(name):
        assert statement["Effect"] == "Allow"
        assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}


@pytest.mark.parametrize("name", ["reader", "publisher"])
def test_nothing_outside_the_prefix_is_touched(name: str) -> None:
    """Other data in the bucket can be neither listed nor read nor written."""
    for statement in statements(name):
        if statement["Action"] == ["s3:ListBucket"]:
            assert statement["Resource"] == [BUCKET]
            assert statement["Condition"] == {"StringLike": {"s3:prefix": ["PREFIX/*"]}}
        else:
            assert set(statement["Resource"]) == OBJECTS


def test_a_publisher_may_do_all_that_a_reader_may() -> None:
    """A push reads first what is there."""
    assert all(statement in statements("publisher") for statement in statements("reader"))
