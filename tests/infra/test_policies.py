"""The policies grant what the verbs need and nothing else."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from .iam import POLICIES, ROLES, Asked, allows, asked_by, policy, without_conditions

BUCKET = "arn:aws:s3:::BUCKET"
MARK = f"{BUCKET}/PREFIX/tccache.json"
PACK = f"{BUCKET}/PREFIX/bundles/m/any/e/s.tar.zst"
OBJECTS = {MARK, f"{BUCKET}/PREFIX/bundles/*"}
READ = {"s3:ListBucket", "s3:GetObject"}
GRANTED = {
    "reader": READ,
    "publisher": READ | {"s3:PutObject", "s3:AbortMultipartUpload"},
    "janitor": READ | {"s3:DeleteObject"},
}
NEW = {"s3:ObjectCreationOperation": "true", "s3:if-none-match": "*"}
OVER = {"s3:ObjectCreationOperation": "true"}
PART = {"s3:ObjectCreationOperation": "false"}
roles = pytest.mark.parametrize("role", ROLES)


def test_there_are_three_policies() -> None:
    """A fourth one is not looked at by the tests below."""
    assert {path.name for path in POLICIES.iterdir()} == {f"{role}.json" for role in ROLES}
    assert set(GRANTED) == set(ROLES)


@roles
def test_the_actions_are_exactly_these(role: str) -> None:
    """No wildcard, and nothing that a verb does not ask for."""
    allowed = (s for s in policy(role)["Statement"] if s["Effect"] == "Allow")
    assert sorted(action for s in allowed for action in s["Action"]) == sorted(GRANTED[role])


@roles
def test_a_statement_says_nothing_unknown(role: str) -> None:
    """A NotAction or NotResource would grant by what it leaves out."""
    whole = policy(role)
    assert whole["Version"] == "2012-10-17"
    for statement in whole["Statement"]:
        assert {"Sid", "Effect", "Action", "Resource"} <= statement.keys()
        assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert statement["Effect"] in {"Allow", "Deny"}
    assert len({s["Sid"] for s in whole["Statement"]}) == len(whole["Statement"])


@roles
def test_nothing_outside_the_prefix_is_touched(role: str) -> None:
    """Other data in the bucket can be neither listed nor read, written or deleted."""
    for statement in policy(role)["Statement"]:
        if statement["Action"] == ["s3:ListBucket"]:
            assert statement["Resource"] == [BUCKET]
            assert statement["Condition"] == {"StringLike": {"s3:prefix": ["PREFIX/*"]}}
        elif statement["Effect"] == "Allow":
            assert set(statement["Resource"]) <= OBJECTS
            assert "Condition" not in statement
    for prefix in ("", "PREFI", "PREFIX-other/", "other/PREFIX/"):
        assert not allows(policy(role), Asked("s3:ListBucket", BUCKET, {"s3:prefix": prefix}))
    assert not allows(policy(role), Asked("s3:ListBucket", BUCKET))
    assert allows(policy(role), Asked("s3:ListBucket", BUCKET, {"s3:prefix": "PREFIX/bundles/"}))


@roles
@pytest.mark.parametrize("other", ["publisher", "janitor"])
def test_who_writes_or_deletes_may_read(role: str, other: str) -> None:
    """A push and a gc read first what is there, by the same statements as a reader."""
    for statement in policy("reader")["Statement"]:
        assert statement in policy(role)["Statement"]
        assert statement in policy(other)["Statement"]


def test_no_two_roles_are_one() -> None:
    """Nobody can both write and delete, so nobody alone can put other bytes under a name."""
    changes = [GRANTED[role] - READ for role in ROLES]
    assert all(not one & other for one, other in combinations(changes, 2))


@pytest.mark.parametrize("resource", [MARK, PACK])
def test_a_publisher_only_writes_what_is_new(resource: str) -> None:
    """What makes an object has the condition that there is none; parts, and their beginning, which
    take no condition, are let through."""
    may = policy("publisher")
    assert allows(may, Asked("s3:PutObject", resource, NEW))
    assert allows(may, Asked("s3:PutObject", resource, PART))
    assert not allows(may, Asked("s3:PutObject", resource, OVER))
    assert not allows(may, Asked("s3:DeleteObject", resource))
    assert not allows(may, Asked("s3:PutObjectAcl", resource))


def test_what_is_denied_covers_all_that_is_allowed() -> None:
    """A grant from another policy gives no way around: the denial names the whole prefix."""
    (denied,) = (s for s in policy("publisher")["Statement"] if s["Effect"] == "Deny")
    assert denied["Resource"] == [f"{BUCKET}/PREFIX/*"]
    wider = {"Sid": "W", "Effect": "Allow", "Action": ["s3:*"], "Resource": [f"{BUCKET}/*"]}
    both = {"Statement": [wider, denied]}
    assert not allows(both, Asked("s3:PutObject", f"{BUCKET}/PREFIX/leases/x", OVER))
    assert allows(both, Asked("s3:PutObject", f"{BUCKET}/PREFIX/leases/x", NEW))


@pytest.mark.parametrize(
    ("method", "query", "headers", "action", "keys"),
    [
        ("PUT", "", {"If-None-Match": b"*"}, "s3:PutObject", NEW),
        ("PUT", "", {}, "s3:PutObject", OVER),
        ("PUT", "?uploadId=u&partNumber=1", {}, "s3:PutObject", PART),
        ("POST", "?uploads", {}, "s3:PutObject", PART),
        ("POST", "?uploadId=u", {"If-None-Match": "*"}, "s3:PutObject", NEW),
        ("POST", "?uploadId=u", {}, "s3:PutObject", OVER),
        ("DELETE", "?uploadId=u", {}, "s3:AbortMultipartUpload", {}),
        ("DELETE", "", {}, "s3:DeleteObject", {}),
        ("HEAD", "", {}, "s3:GetObject", {}),
    ],
)
def test_how_a_request_is_read(
    method: str, query: str, headers: dict[str, str], action: str, keys: dict[str, str]
) -> None:
    """The tests of the roles stand on this: what each request means to a policy."""
    asked = asked_by(method, f"http://host/BUCKET/PREFIX/bundles/a{query}", headers)
    assert asked == Asked(action, f"{BUCKET}/PREFIX/bundles/a", keys)


@roles
def test_what_a_server_without_conditions_enforces(role: str) -> None:
    """The same actions on the same objects."""
    rest = without_conditions(policy(role))["Statement"]
    assert all("Condition" not in s and s["Effect"] == "Allow" for s in rest)
    assert {action for s in rest for action in s["Action"]} == GRANTED[role]


def test_the_page_says_how_to_fill_them_in() -> None:
    """Every policy is linked, and the line of the page leaves no placeholder."""
    page = (POLICIES.parent / "README.md").read_text()
    assert {*re.findall(r"\(policies/(\w+)\.json\)", page)} == set(ROLES)
    assert "sed -e 's|BUCKET|my-bucket|' -e 's|PREFIX|ml-cache/prod|'" in page
    for path in (Path(POLICIES, f"{role}.json") for role in ROLES):
        for line in path.read_text().splitlines():
            assert max(line.count("BUCKET"), line.count("PREFIX")) <= 1, line
