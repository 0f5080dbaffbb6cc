"""A bundle whose entries would create a file when they are unpickled: nothing of it ever runs
unless the key that is trusted has signed it. In a directory, and on S3."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest

from cachesvc.start.access import access
from cachesvc.start.keys import make_key
from cachesvc.start.pull import pull
from cachesvc.start.push import push

from .conftest import Bucket, Published, Starts

pytestmark = pytest.mark.xdist_group("hostile pushes")

HOW = ("unsigned", "by another key", "signed wrongly", "pack exchanged", "manifest exchanged")


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self._marker), "w")


class Attack:
    """Stores of one bundle each: of a real graph, and of one that creates the file `marker`."""

    def __init__(self, folder: Path, published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.marker = folder / "marker"
        monkeypatch.setenv("TCCACHE_HOME", str(folder / "home"))
        for name in ("trusted", "other"):
            make_key(folder / name)
        self.good, self.evil = folder / "good-tree", folder / "evil-tree"
        pull(published.label, store=published.store, inductor_dir=self.good)
        shutil.copytree(self.good, self.evil)
        entries = [*self.evil.rglob("fxgraph/*/*/*"), *self.evil.rglob("aotautograd/*/*")]
        assert len(entries) >= 2
        for entry in entries:
            entry.write_bytes(pickle.dumps(Evil(self.marker)))

    def push(self, tree: Path, store: str, key: str | None) -> str:
        said = access("store", self.folder / key if key else None)
        pushed = push("m", store=store, trust=said, inductor_dir=tree)
        assert pushed.publication.segment is not None
        return pushed.publication.segment

    def make(self, how: str) -> Path:
        """A store in a directory that holds the evil bundle."""
        store = self.folder / "stores" / how.replace(" ", "-")
        if how in ("unsigned", "by another key"):
            self.push(self.evil, str(store), "other" if how == "by another key" else None)
            return store
        good = self.push(self.good, str(store), "trusted")
        (pack,) = store.rglob("*.tar.zst")
        scratch = self.folder / "scratch"
        evil = self.push(self.evil, str(scratch), None)
        (source,) = scratch.rglob(f"{evil}.tar.zst")
        if how == "pack exchanged":
            shutil.copy(source, pack)
        else:
            name = good if how == "manifest exchanged" else evil
            shutil.copy(source, pack.with_name(f"{name}.tar.zst"))
            shutil.copy(source.with_name(f"{evil}.json"), pack.with_name(f"{name}.json"))
            if (
                name != good
            ):  # the evil manifest under its own name, beside the good one's signature
                shutil.copy(pack.with_name(f"{good}.sig"), pack.with_name(f"{evil}.sig"))
                for kind in ("tar.zst", "json", "sig"):
                    pack.with_name(f"{good}.{kind}").unlink()
        shutil.rmtree(scratch)
        return store


@pytest.fixture
def attack(plain: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attack:
    return Attack(tmp_path, plain, monkeypatch)


def upload(store: Path, bucket: Bucket, prefix: str) -> str:
    """Copies a store into the bucket, object by object; its URL there."""
    client = boto3.client("s3", endpoint_url=bucket.endpoint)
    for file in store.rglob("*"):
        if file.is_file():
            key = f"{prefix}/{file.relative_to(store).as_posix()}"
            client.put_object(Bucket=bucket.name, Key=key, Body=file.read_bytes())
    client.close()
    return f"s3://{bucket.name}/{prefix}?endpoint={bucket.endpoint}"


# Every store is started from before the model is called: what any of them had brought, the
# compiler would find, and unpickle.
SCRIPT = """
model = torch.compile(Plain())
tried = []
for store in given["stores"]:
    report = start(model, store=store, label="m", trust=given["trust"])
    tried.append([report.transfer.seeded, " ".join(report.notes)])
report = start(model, [ones()], store=given["stores"][-1], label="m", trust=given["trust"])
result = [tried, report.verdict.value, os.path.exists(given["marker"])]
"""


def test_what_is_not_rightly_signed_never_runs(
    starts: Starts, attack: Attack, bucket: Bucket
) -> None:
    """The model is compiled as if there were no bundle, and each refusal is told."""
    stores = [attack.make(how) for how in HOW]
    remote = [upload(store, bucket, store.name) for store in stores]
    tried, verdict, ran = starts.run(
        SCRIPT,
        given={
            "stores": [*map(str, stores), *remote],
            "trust": str(attack.folder / "trusted.pub"),
            "marker": str(attack.marker),
        },
    )
    assert not ran
    assert verdict == "cold"
    assert [seeded for seeded, _ in tried] == [0] * 2 * len(HOW)
    said = ("is not signed", "not trusted", "as its signature says", "size and digest", "digest")
    for (_, notes), expected in zip(tried, said * 2, strict=True):
        assert expected in notes


@pytest.mark.parametrize("key", ["missing.pub", "trusted.pub"])
def test_a_directory_that_was_filled_for_anybody(starts: Starts, attack: Attack, key: str) -> None:
    """What a prefetch, or an earlier start, has brought from whoever could write to the store is
    not where a start that trusts keys compiles; also where its key cannot even be read."""
    store = str(attack.folder / "signed")
    attack.push(attack.evil, store, None)
    seeded, before, verdict, after, ran = starts.run(
        """
model = torch.compile(Plain())
cachesvc.prefetch("m", store=given["store"], trust="store")
first = start(model, store=given["store"], label="m", trust="store")
report = start(model, [ones()], store=given["store"], label="m", trust=given["key"])
result = [
    first.transfer.present, first.live, report.verdict.value, report.live,
    os.path.exists(given["marker"]),
]
""",
        given={
            "store": store,
            "key": str(attack.folder / key),
            "marker": str(attack.marker),
        },
    )
    assert not ran
    assert (seeded > 0, verdict) == (True, "cold")
    assert before != after


@pytest.mark.parametrize("where", ["a directory", "S3"])
def test_what_is_rightly_signed_is_used(
    starts: Starts, attack: Attack, bucket: Bucket, where: str
) -> None:
    """A real bundle starts warm with the key alone, and no word for the store."""
    store: str = str(attack.folder / "signed")
    attack.push(attack.good, store, "trusted")
    if where == "S3":
        store = upload(Path(store), bucket, "signed")
    tried, verdict, ran = starts.run(
        SCRIPT,
        given={
            "stores": [store],
            "trust": str(attack.folder / "trusted.pub"),
            "marker": str(attack.marker),
        },
    )
    assert (tried[0][0] > 0, verdict, ran) == (True, "warm", False)


def test_the_bundle_would_run(starts: Starts, attack: Attack) -> None:
    """Signed by the key that is trusted, it creates the file: that is what a signature means, and
    what the others in here are kept from."""
    store = str(attack.folder / "signed")
    attack.push(attack.evil, store, "trusted")
    _, _, ran = starts.run(
        SCRIPT,
        given={
            "stores": [store],
            "trust": str(attack.folder / "trusted.pub"),
            "marker": str(attack.marker),
        },
    )
    assert ran
