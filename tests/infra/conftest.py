"""A server that knows who is asking: one user for each role, and one who may do everything."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest

from cachesvc.store import s3_wire
from tccache.main import run
from tests.store.conftest import _descriptions_are_read_once  # noqa: F401

from .iam import ROLES, Asked, asked_by, policy, without_conditions

PREFIX = "ml-cache/prod"
EVERYTHING = {"Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*"}
OWNER = {"Version": "2012-10-17", "Statement": [EVERYTHING]}


@dataclass
class Server:
    """An S3 service with IAM; `keys` holds what each user's environment needs.

    `asked` is what the stores of this process have asked for.
    """

    endpoint: str
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def client(self, user: str, service: str = "s3") -> Any:
        named = {name.lower(): value for name, value in self.keys.get(user, {}).items()}
        return boto3.client(service, endpoint_url=self.endpoint, **named)

    def make_users(self) -> None:
        iam = self.client("nobody", "iam")
        for user in (*ROLES, "owner"):
            iam.create_user(UserName=user)
            made = iam.create_access_key(UserName=user)["AccessKey"]
            self.keys[user] = {
                "AWS_ACCESS_KEY_ID": made["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"],
            }
        iam.put_user_policy(UserName="owner", PolicyName="all", PolicyDocument=json.dumps(OWNER))
        iam.close()

    def enforce(self) -> None:
        """From now on every request is checked."""
        place = f"{self.endpoint}/moto-api/reset-auth"
        with urlopen(Request(place, data=b"0", headers={"Content-Type": "text/plain"})) as answer:
            answer.read()

    def make_bucket(self) -> str:
        """An empty bucket, for which each role has its policy."""
        bucket = f"bucket-{uuid.uuid4().hex}"
        owner, iam = self.client("owner"), self.client("owner", "iam")
        owner.create_bucket(Bucket=bucket)
        for role in ROLES:
            document = json.dumps(without_conditions(policy(role, bucket, PREFIX)))
            iam.put_user_policy(UserName=role, PolicyName=bucket, PolicyDocument=document)
        owner.close()
        iam.close()
        return bucket

    def keep(self, request: Any, **_: object) -> None:
        self.asked.append(asked_by(request.method, request.url, request.headers))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """In a process of its own, as its rules hold for all that it serves."""
    command = [sys.executable, str(Path(__file__).parent / "moto_process.py")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        found = Server(process.stdout.readline().strip())  # type: ignore[union-attr]
        found.make_users()
        found.enforce()
        yield found
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture
def watched(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, keeping what is asked of it from now on."""
    make = s3_wire._client

    def client(options: Any) -> Any:
        made = make(options)
        made.meta.events.register("before-send.s3", server.keep)
        return made

    monkeypatch.setattr(s3_wire, "_client", client)
    server.asked.clear()
    return server


@dataclass(frozen=True)
class Ran:
    """What a run of the command left: its exit code and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Place:
    """A bucket and the store in it."""

    server: Server
    bucket: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{PREFIX}?endpoint={self.server.endpoint}"

    def tccache(self, role: str, *arguments: str | Path) -> Ran:
        """Runs a command line as a user with the role's policy."""
        line = [*map(str, arguments), "--store", self.url, "--trust", "store"]
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in self.server.keys[role].items():
                patch.setenv(name, value)
            code = run(line)
        return Ran(code, out.getvalue(), err.getvalue())

    def objects(self) -> dict[str, str]:
        """What lies in the bucket, each object by what it holds."""
        client = self.server.client("owner")
        found = client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        client.close()
        return {item["Key"]: item["ETag"] for item in found}


@pytest.fixture
def place(watched: Server) -> Place:
    """A bucket with nothing in it."""
    return Place(watched, watched.make_bucket())


@pytest.fixture
def filled(place: Place, tree: Path) -> Place:
    """A publisher has pushed `tree` as m."""
    pushed = place.tccache("publisher", "push", "m", "--inductor-dir", tree)
    assert pushed.code == 0, pushed.err
    return place


@pytest.fixture(scope="session")
def _shared(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Place:
    found = Place(server, server.make_bucket())
    tree = make_tree(tmp_path_factory.mktemp("tree"))
    pushed = found.tccache("publisher", "push", "m", "--inductor-dir", tree)
    assert pushed.code == 0, pushed.err
    return found


@pytest.fixture
def shared(_shared: Place, watched: Server) -> Iterator[Place]:
    """As `filled`, for tests that find everything allowed or denied and change nothing."""
    before = _shared.objects()
    yield _shared
    assert _shared.objects() == before


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def make_tree(root: Path) -> Path:
    """A small Inductor directory."""
    for name, text in (("ab/cabc.py", "kernel"), ("fxgraph/xy/fkey/hash", "graph")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    return root
