"""collect: what its caller asks for, is told, and may not ask for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.errors import AccessDenied, StoreError, UntrustedError, UsageError
from cachesvc.repository import publish
from cachesvc.repository.policy import Policy
from cachesvc.start.access import Access
from cachesvc.start.collect import collect
from cachesvc.start.inspect import list_bundles, show
from cachesvc.start.keys import make_key
from cachesvc.start.pull import pull
from cachesvc.start.push import push
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.faulty import Fault, Faulty
from cachesvc.store.s3 import S3Store
from tests.repository.clocked import ADDRESS, DAY, LATE, Clocked, write_segment

Push = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> Clocked:
    return Clocked(DirectoryStore(tmp_path / "store"))


@pytest.fixture
def pushed(tmp_path: Path) -> Push:
    """Pushes a directory that grows by one unit each time."""
    units: list[int] = []

    def grow(store: Store, name: str = "m", **options: Any) -> None:
        file = tmp_path / "tree" / f"k{len(units)}"
        units.append(len(units))
        file.parent.mkdir(exist_ok=True)
        file.write_text("kernel")
        push(name, store=store, extra={"tool": file.parent}, **options)

    return grow


def test_a_run_deletes_and_a_dry_run_says_so(store: Clocked, pushed: Push) -> None:
    """Both tell the same; what is pulled afterwards is what was pulled before."""
    for _ in range(3):
        pushed(store)
    store.wait(LATE)
    planned = collect(store=store, dry_run=True)
    assert store.deleted == []
    done = collect(store=store)
    assert (done.deleted, done.kept, done.bytes_left) == (
        planned.deleted,
        planned.kept,
        planned.bytes_left,
    )
    assert (done.objects, len(store.deleted)) == (4, 4)
    (listing,) = list_bundles(store=store)
    assert (listing.segments, listing.bytes) == (1, done.bytes_left)
    assert sum(show("m", store=store)[0].sections["extra"][:1]) == 3


def test_nothing_is_asked_of_the_store_but_to_list_read_and_delete(
    store: Clocked, pushed: Push
) -> None:
    """A janitor that may not write can do all of it."""
    for _ in range(2):
        pushed(store)
    store.wait(LATE)
    counting = Counting(store)
    assert collect(store=counting, policy=Policy(older_than_s=0)).objects == 4
    assert set(counting.calls) <= {"list", "fetch", "delete"}


def test_merging(store: Clocked, pushed: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    """Additions are merged where a dry run says so, and superseded ones go in a later run."""
    with monkeypatch.context() as patch:
        patch.setattr(publish, "MERGE_LIMIT_BYTES", 0)
        for _ in range(3):
            pushed(store, tags=["prod"])
        pushed(store, "alone")
    (address,) = [a for a, _ in collect(store=store, merge=True, dry_run=True).merged]
    assert address.name == "m"
    assert len(show("m", store=store)[0].segments) == 3
    done = collect(store=store, merge=True)
    assert (done.merged, done.deleted, done.failure) == (((address, 3),), (), None)
    (detail,) = show("m", store=store)
    assert len(detail.segments) == 1
    assert detail.sections["extra"][0] == 3
    assert detail.tags == ("prod",)
    store.wait(LATE)
    assert collect(store=store, merge=True).objects == 6
    assert show("m", store=store)[0].segments == detail.segments


def test_a_merge_is_signed_and_takes_in_what_its_key_has_signed(
    store: Clocked, pushed: Push, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who trusts the key finds all of it in one segment; what others pushed stays beside it."""
    monkeypatch.setattr(publish, "MERGE_LIMIT_BYTES", 0)
    mine, other = (make_key(tmp_path / name).file for name in ("mine", "other"))
    for signer in (mine, mine, other):
        pushed(store, sign_with=signer, trust="store")
    with pytest.raises(UsageError, match="name a private key"):
        collect(store=store, merge=True, trust=f"{mine}.pub")
    done = collect(store=store, merge=True, sign_with=mine, trust=f"{mine}.pub")
    assert [number for _, number in done.merged] == [2]
    assert [kept for kept in done.kept if "is not trusted here" in kept.reason]
    store.wait(LATE)
    assert collect(store=store, trust="store").objects == 6
    assert len(show("m", store=store, trust=f"{mine}.pub")[0].segments) == 1
    assert len(show("m", store=store, trust=f"{other}.pub")[0].segments) == 1


def test_a_damaged_pack_keeps_one_bundle_from_being_merged(
    store: Clocked, pushed: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, the others are merged."""
    with monkeypatch.context() as patch:
        patch.setattr(publish, "MERGE_LIMIT_BYTES", 0)
        for name in ("m", "n"):
            for _ in range(2):
                pushed(store, name)
    pack = next(stat.key for stat in store.list() if stat.key.endswith("tar.zst"))
    store.put(pack, b"garbage")
    done = collect(store=store, merge=True)
    assert [address.name for address, _ in done.merged] == ["n"]
    assert ["it is not merged: " in kept.reason for kept in done.kept if not kept.segment] == [True]


@pytest.mark.parametrize("failure", ["denied", "before"])
def test_a_failure_is_told_beside_what_was_done(store: Clocked, pushed: Push, failure: Any) -> None:
    """The work ends there, and nothing is merged any more."""
    for _ in range(2):
        pushed(store)
    store.wait(LATE)
    faulty = Faulty(store, [Fault("delete", failure, first=2)])
    done = collect(store=faulty, merge=True)
    assert isinstance(done.failure, AccessDenied if failure == "denied" else StoreError)
    assert done.objects == len(store.deleted) == 1
    assert collect(store=store).failure is None


def test_policy_counts_by_the_stores_clock(store: Clocked, pushed: Push) -> None:
    """Of two bundles the one that was not written to goes, but not with a pin."""
    pushed(store, "old", tags=["prod"])
    store.wait(40 * DAY)
    pushed(store, "new")
    store.wait(LATE)
    pinned = Policy(older_than_s=30 * DAY, keep_tags=frozenset({"prod"}))
    assert collect(store=store, policy=pinned).objects == 0
    done = collect(store=store, policy=Policy(older_than_s=30 * DAY))
    assert {deletion.address.name for deletion in done.deleted} == {"old"}
    assert [listing.name for listing in list_bundles(store=store)] == ["new"]


def test_what_is_too_old_to_be_used_still_counts(store: Clocked, pushed: Push) -> None:
    """A pin holds, and what superseded something still does: how old a janitor lets things become
    is said by its policy. But nothing that is too old gets into a new segment."""
    for _ in range(2):
        pushed(store, "pinned", tags=["prod"])
    store.wait(LATE)
    pinned = Policy(older_than_s=0, keep_tags=frozenset({"prod"}))
    access = Access(trust=("store",), max_age_s=1e-6)
    done = collect(store=store, trust=access, policy=pinned)
    assert [deletion.cause for deletion in done.deleted] == ["superseded"]
    write_segment(store, {"extra/tool/old": {"a": b""}})
    write_segment(store, {"extra/tool/older": {"a": b""}})
    assert [n for _, n in collect(store=store, merge=True, dry_run=True).merged] == [2]
    assert collect(store=store, trust=access, merge=True, dry_run=True).merged == ()


def test_no_more_goes_than_was_agreed_to(store: Clocked) -> None:
    """What has come up since a dry run waits for the next one; what needs to stay by now stays."""
    write_segment(store, {"triton/K": {"a": b"1"}})
    rubbish = [f"{ADDRESS.prefix}{digit * 64}.tar.zst" for digit in "123"]
    for key in rubbish[:2]:
        store.put(key, b"pack")
    store.wait(LATE)
    agreed = collect(store=store, dry_run=True)
    assert agreed.objects == 2
    store.put(rubbish[2], b"pack")
    store.wait(LATE)
    store.delete(rubbish[1])
    store.put(rubbish[1], b"pack")
    assert collect(store=store, dry_run=True).objects == 2
    done = collect(store=store, agreed=agreed)
    assert [stat.key for item in done.deleted for stat in item.objects] == rubbish[:1]
    store.wait(LATE)
    everything = Policy(older_than_s=0)
    assert collect(store=store, policy=everything, dry_run=True).objects == 4
    assert collect(store=store, policy=everything, agreed=agreed).objects == 1


def test_no_more_is_merged_than_was_agreed_to(
    store: Clocked, pushed: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that got a second segment since a dry run stays as it is."""
    monkeypatch.setattr(publish, "MERGE_LIMIT_BYTES", 0)
    for name in ("m", "n", "m"):
        pushed(store, name)
    agreed = collect(store=store, merge=True, dry_run=True)
    pushed(store, "n")
    assert len(collect(store=store, merge=True, dry_run=True).merged) == 2
    done = collect(store=store, merge=True, agreed=agreed)
    assert [address.name for address, _ in done.merged] == ["m"]


def test_torch_versions_come_from_the_environment(store: Clocked) -> None:
    """As the manifests tell it, and they are the ones whose digest is in the address."""
    for version in ("2.8.0", "2.9.1"):
        environment = Components.of({"torch": version})
        write_segment(
            store,
            {"triton/K": {"a": b""}},
            address=Address("m", "any", environment.digest),
            environment=environment,
        )
    store.wait(LATE)
    (deletion,) = collect(store=store, policy=Policy(torch=("2.9",))).deleted
    assert deletion.reason == "the bundle is of torch 2.8.0"


@pytest.mark.parametrize("grace_s", [0, 3599, -1, float("nan")])
def test_a_grace_time_that_is_too_short(store: Clocked, grace_s: float) -> None:
    """A push may take half an hour from its pack to its manifest."""
    with pytest.raises(UsageError, match="give 3600 s or more"):
        collect(store=store, grace_s=grace_s)


def test_a_store_that_nobody_vouches_for() -> None:
    """A janitor too must be told whom it is to believe: it deletes what they call superseded."""
    with pytest.raises(UntrustedError):
        collect(store="s3://bucket/prefix")


def test_on_s3(pushed: Push, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the service's clock: what was just written stays, a day later it goes."""
    import boto3
    from moto import mock_aws

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="bucket")
        store = S3Store("s3://bucket/some/prefix")
        for _ in range(3):
            pushed(store, trust="store")
        assert collect(store=store, trust="store").objects == 0
        now = S3Store._now
        monkeypatch.setattr(S3Store, "_now", lambda self: now(self) + timedelta(days=2))
        assert collect(store=store, trust="store").objects == 4
        assert pull("m", store=store, trust="store", extra={"tool": tmp_path / "to"}).found
        assert sorted(path.name for path in (tmp_path / "to").glob("k*")) == ["k0", "k1", "k2"]
        everything = collect(store=store, trust="store", policy=Policy(max_bytes=0))
        assert everything.bytes_left == 0
        assert [stat.key for stat in store.list()] == ["tccache.json"]
