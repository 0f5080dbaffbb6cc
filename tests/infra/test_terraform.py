"""The module makes a bucket that is closed, and roles that hold the policies of this folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hcl2
import pytest

from .iam import POLICIES, ROLES, policy

MODULE = POLICIES.parent / "terraform"
FILES = sorted(MODULE.glob("*.tf"))
TERRAFORM = shutil.which("terraform")
AS_TEXT = hcl2.SerializationOptions(
    strip_string_quotes=True, explicit_blocks=False, with_comments=False
)

with_terraform = pytest.mark.skipif(TERRAFORM is None, reason="terraform is not installed")


def parsed() -> dict[str, list[Any]]:
    """The blocks of all files, by kind; every file has to parse."""
    blocks: dict[str, list[Any]] = {}
    for path in FILES:
        for kind, found in hcl2.loads(path.read_text(), serialization_options=AS_TEXT).items():
            blocks.setdefault(kind, []).extend(found)
    return blocks


def named(kind: str) -> dict[str, Any]:
    return {name: body for block in parsed()[kind] for name, body in block.items()}


def resource(kind: str) -> dict[str, Any]:
    """The body of the one resource of a kind."""
    (found,) = (block[kind] for block in parsed()["resource"] if kind in block)
    (body,) = found.values()
    return dict(body)


def rules(kind: str) -> Iterator[Mapping[str, Any]]:
    yield from resource(kind)["rule"]


def text() -> str:
    return "\n".join(path.read_text() for path in FILES)


def test_every_variable_used_is_declared_and_every_one_declared_is_used() -> None:
    """A name that is written differently would only be found by the one who applies it."""
    used = set(re.findall(r"\bvar\.(\w+)", text()))
    checked = re.sub(r'(?ms)^variable "\w+" \{.*?^\}', "", text())
    assert used == set(named("variable")) == set(re.findall(r"\bvar\.(\w+)", checked))


def test_every_local_used_is_declared() -> None:
    """And none is left over."""
    declared = {name for block in parsed()["locals"] for name in block}
    assert set(re.findall(r"\blocal\.(\w+)", text())) == declared


def test_every_reference_names_a_resource_that_is_there() -> None:
    """By type and name."""
    blocks = parsed()
    made = {f"{kind}.{n}" for b in blocks["resource"] for kind, body in b.items() for n in body}
    read = {f"{kind}.{n}" for b in blocks["data"] for kind, body in b.items() for n in body}
    alone = {*re.findall(r"(?<![.\w])(aws_\w+\.\w+)", text())}
    assert alone <= made
    assert alone
    assert {*re.findall(r"\bdata\.(aws_\w+\.\w+)", text())} == read


def test_variables_and_outputs_say_what_they_mean() -> None:
    """Each has a description, and each variable a type."""
    for name, body in {**named("variable"), **named("output")}.items():
        assert body["description"].endswith("."), name
    assert all(body["type"] for body in named("variable").values())
    assert {*named("output")} == {"store_url", "role_arns", "policies"}


def test_every_file_named_is_there() -> None:
    """The policies are those beside the module: no copy, and none left out."""
    paths = re.findall(r'\b(?:file|templatefile)\(\s*"([^"]+)"', text())
    assert paths == ["${path.module}/../policies/${role}.json"]
    filled = {paths[0].replace("${path.module}", str(MODULE)).replace("${role}", r) for r in ROLES}
    assert {Path(path).resolve() for path in filled} == {*POLICIES.iterdir()}
    assert [path.name for path in MODULE.rglob("*.json")] == []
    assert set(re.findall(r"for role in \[(.*?)\]", text())) == {'"publisher", "reader", "janitor"'}


def test_roles_hold_the_policies() -> None:
    """As they are filled in, and nothing beside them but the use of the key."""
    held: dict[str, Any] = {}
    for block in parsed()["resource"]:
        held.update(block.get("aws_iam_role_policy", {}))
    assert set(held) == {"store", "key"}
    assert held["store"]["policy"] == "${local.policies[each.key]}"
    assert set(re.findall(r'"(kms:\w+)"', text())) == {"kms:Decrypt", "kms:GenerateDataKey"}
    assert "aws_iam_role_policy_attachment" not in text()


def test_the_bucket_is_closed_to_the_public() -> None:
    """Access lists and public policies are blocked; the bucket's owner owns every object."""
    block = resource("aws_s3_bucket_public_access_block")
    switches = {name: value for name, value in block.items() if name != "bucket"}
    assert switches == dict.fromkeys(
        (
            "block_public_acls",
            "block_public_policy",
            "ignore_public_acls",
            "restrict_public_buckets",
        ),
        True,
    )
    (rule,) = rules("aws_s3_bucket_ownership_controls")
    assert rule["object_ownership"] == "BucketOwnerEnforced"


def test_the_bucket_is_encrypted() -> None:
    """By keys that S3 keeps, or by the key that is given."""
    (rule,) = rules("aws_s3_bucket_server_side_encryption_configuration")
    (default,) = rule["apply_server_side_encryption_by_default"]
    assert default["sse_algorithm"] == '${var.kms_key == null ? "AES256" : "aws:kms"}'
    assert default["kms_master_key_id"] == "${var.kms_key == null ? null : var.kms_key.arn}"


def test_the_bucket_is_cleaned_up() -> None:
    """Parts of uploads that never ended, and what was deleted, do not stay for ever."""
    ended, deleted = rules("aws_s3_bucket_lifecycle_configuration")
    assert ended["status"] == deleted["status"] == "Enabled"
    (abort,) = ended["abort_incomplete_multipart_upload"]
    assert abort["days_after_initiation"] == "${var.incomplete_days}"
    (expiry,) = deleted["noncurrent_version_expiration"]
    assert expiry["noncurrent_days"] == "${var.noncurrent_days}"
    assert not any("days" in rule.get("expiration", [{}])[0] for rule in (ended, deleted))


def test_the_bucket_takes_no_plain_http() -> None:
    """And no write that could replace an object, whoever sends it."""
    said = resource("aws_s3_bucket_policy")["policy"]
    assert "local.never_overwrite" in said
    assert re.search(r'Effect\s*=\s*"Deny".*"aws:SecureTransport"\s*=\s*"false"', said, re.DOTALL)


@with_terraform
def test_the_files_are_formatted() -> None:
    """As terraform itself writes them."""
    command = [str(TERRAFORM), "fmt", "-check", "-diff", str(MODULE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@with_terraform
@pytest.mark.parametrize("prefix", ["ml-cache/prod", ""])
def test_what_terraform_makes_of_the_policies(tmp_path: Path, prefix: str) -> None:
    """The same JSON as filling it in by hand; what is denied to the publisher, denied to all."""
    shutil.copytree(POLICIES, tmp_path / "policies")
    (tmp_path / "terraform").mkdir()
    for name in ("policies.tf", "variables.tf"):  # those that need no provider
        shutil.copy(MODULE / name, tmp_path / "terraform")
    made = evaluated(
        tmp_path / "terraform",
        "{policies = local.policies, denied = local.never_overwrite}",
        bucket="b",
        prefix=prefix,
    )
    by_hand = {role: policy(role, "b", prefix or "PREFIX") for role in ROLES}
    if not prefix:
        by_hand = json.loads(json.dumps(by_hand).replace("PREFIX/", ""))
    assert {role: json.loads(said) for role, said in made["policies"].items()} == by_hand
    (denied,) = (s for s in by_hand["publisher"]["Statement"] if s["Effect"] == "Deny")
    assert made["denied"] == [{**denied, "Principal": "*"}]


@with_terraform
@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("prefix=/a", "no slash at either"),
        ("prefix=a//b", "no slash at either"),
        ('principals={writer=["arn:aws:iam::123456789012:root"]}', "publisher, reader and janitor"),
        ('principals={reader=["*"]}', "not everybody"),
        ("principals={reader=[]}", "somebody"),
        ('federated={reader={provider="p",audience="a",subjects=[]}}', "Name the subjects"),
        ('federated={reader={provider="p",audience="a",subjects=["*"]}}', "Name the subjects"),
    ],
)
def test_what_would_open_a_role_to_everybody(tmp_path: Path, variable: str, says: str) -> None:
    """It is refused before anything is made, and so is a prefix that no URL would name."""
    shutil.copy(MODULE / "variables.tf", tmp_path)
    done = console(tmp_path, "var.bucket", ["bucket=b", variable])
    assert says in " ".join(done.stderr.split())


@with_terraform
def test_a_role_for_each_that_may_be_assumed(tmp_path: Path) -> None:
    """By principals, by a provider, or by both."""
    shutil.copy(MODULE / "variables.tf", tmp_path)
    (tmp_path / "roles.tf").write_text(re.findall(r"(?ms)^locals \{.*?^\}", text())[-1])
    given = [
        'principals={reader=["arn:a"],publisher=["arn:b"]}',
        'federated={reader={provider="p",audience="a",subjects=["s"]}}',
    ]
    done = console(tmp_path, "jsonencode(local.roles)", ["bucket=b", *given])
    assert json.loads(json.loads(done.stdout)) == ["publisher", "reader"]


def evaluated(folder: Path, expression: str, **variables: str) -> Any:
    given = [f"{name}={value}" for name, value in variables.items()]
    return json.loads(json.loads(console(folder, f"jsonencode({expression})", given).stdout))


def console(folder: Path, expression: str, given: list[str]) -> subprocess.CompletedProcess[str]:
    """What terraform says of an expression; no provider is loaded."""
    return subprocess.run(
        [str(TERRAFORM), "console", "-no-color", *(f"-var={variable}" for variable in given)],
        cwd=folder,
        env={**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"},
        input=expression,
        capture_output=True,
        text=True,
        check=False,
    )
