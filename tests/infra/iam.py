"""What AWS decides by one policy, conditions too: as much of its rules as the policies here use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

POLICIES = Path(__file__).parents[2] / "infra" / "policies"
ROLES = ("janitor", "publisher", "reader")

Policy = dict[str, Any]


def policy(role: str, bucket: str = "BUCKET", prefix: str = "PREFIX") -> Policy:
    """The policy of a role, filled in as infra/README.md says."""
    text = (POLICIES / f"{role}.json").read_text()
    filled: Policy = json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix))
    return filled


def without_conditions(whole: Policy) -> Policy:
    """What is left for a service that knows no conditions: what they allow, not what they deny."""
    kept = (s for s in whole["Statement"] if s["Effect"] == "Allow" or "Condition" not in s)
    statements = [{name: s[name] for name in s if name != "Condition"} for s in kept]
    return {**whole, "Statement": statements}


@dataclass(frozen=True)
class Asked:
    """One request as a policy sees it: what it would do, to what, and its condition keys."""

    action: str
    resource: str
    keys: Mapping[str, str] = field(default_factory=dict)


def allows(whole: Policy, asked: Asked) -> bool:
    """Some statement allows the request and none denies it."""
    effects = {s["Effect"] for s in whole["Statement"] if _concerns(s, asked)}
    return "Allow" in effects and "Deny" not in effects


def _concerns(statement: Policy, asked: Asked) -> bool:
    return (
        _like(asked.action, statement["Action"])
        and _like(asked.resource, statement["Resource"])
        and all(_holds(*item, asked.keys) for item in statement.get("Condition", {}).items())
    )


def _holds(operator: str, wanted: Mapping[str, Any], keys: Mapping[str, str]) -> bool:
    match operator:
        case "StringLike":
            return all(
                name in keys and _like(keys[name], values) for name, values in wanted.items()
            )
        case "Null":
            return all((name not in keys) is (value == "true") for name, value in wanted.items())
        case "Bool":
            return all(keys.get(name) == value for name, value in wanted.items())
    raise NotImplementedError(operator)


def _like(text: str, patterns: Iterable[str]) -> bool:
    as_regex = (re.escape(p).replace(r"\*", ".*").replace(r"\?", ".") for p in patterns)
    return any(re.fullmatch(pattern, text) for pattern in as_regex)


def asked_by(method: str, url: str, headers: Mapping[str, Any]) -> Asked:
    """The request with the bucket in its path, as the service reads it."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    here = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    match method, bool(key):
        case "GET", False:
            return Asked("s3:ListBucket", here, {"s3:prefix": query["prefix"][0]})
        case "GET" | "HEAD", True:
            return Asked("s3:GetObject", here)
        case "DELETE", True:
            parts_too = "uploadId" in query
            return Asked("s3:AbortMultipartUpload" if parts_too else "s3:DeleteObject", here)
        case "PUT" | "POST", True:
            return Asked("s3:PutObject", here, _write_keys(method, query, headers))
    raise NotImplementedError(f"{method} {url}")


def _write_keys(
    method: str, query: Mapping[str, Any], headers: Mapping[str, Any]
) -> dict[str, str]:
    """An upload in parts makes its object by its last request, which is a POST with its id."""
    creates = (method == "PUT") is ("uploadId" not in query)
    keys = {"s3:ObjectCreationOperation": str(creates).lower()}
    condition = headers.get("If-None-Match")
    if condition is not None:
        keys["s3:if-none-match"] = condition.decode() if isinstance(condition, bytes) else condition
    return keys
