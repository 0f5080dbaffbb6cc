"""Listing: a segment exists once its manifest does; what is none of ours is passed over."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from cachesvc.core.address import Address
from cachesvc.repository.listing import Listed, bundles, object_key
from cachesvc.store.contract import Stat

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
E1, E2, MODEL, ONE, TWO = ("1" * 64, "2" * 64, "ab" * 32, "c" * 64, "d" * 64)
ADDRESS = Address("gpt", "any", E1)


def stat(key: str, size: int = 1, seconds: int = 0) -> Stat:
    return Stat(key, size, START + timedelta(seconds=seconds))


def test_segments_and_orphans() -> None:
    """A manifest makes a segment; a pack or signature alone is an orphan that nobody reads."""
    whole = [stat(object_key(ADDRESS, ONE, kind)) for kind in ("json", "sig", "tar.zst")]
    lost = [stat(object_key(ADDRESS, TWO, kind), 10, 5) for kind in ("sig", "tar.zst")]
    (bundle,) = bundles([*whole, *lost])
    assert bundle.address == ADDRESS
    assert bundle.segments == (Listed(ONE, whole[0], whole[2], whole[1]),)
    assert bundle.orphans == tuple(lost)
    assert bundle.size == 23
    assert bundle.modified == START + timedelta(seconds=5)


def test_a_manifest_alone_is_a_segment() -> None:
    """A segment whose pack is gone is still listed, so that its loss can be told."""
    (bundle,) = bundles([stat(object_key(ADDRESS, ONE, "json"))])
    assert bundle.segments[0].pack is None


def test_by_address() -> None:
    """Bundles come apart by name, model and environment, in order of their addresses."""
    addresses = [
        Address(name, model, environment)
        for name in ("a", "gpt")
        for model in (MODEL, "any")
        for environment in (E1, E2)
    ]
    found = bundles(stat(object_key(a, ONE, "json")) for a in reversed(addresses))
    assert [bundle.address for bundle in found] == sorted(addresses)


@pytest.mark.parametrize(
    "key",
    [
        "tccache.json",
        "leases/gpt",
        "bundles/gpt",
        f"bundles/gpt/any/{E1}/notes.txt",
        f"bundles/gpt/any/{E1}/{ONE}.json.bak",
        f"bundles/gpt/any/{E1}/{ONE}.zip",
        f"bundles/gpt/any/{E1}/{ONE.upper()}.json",
        f"bundles/gpt/any/{E1}/deeper/{ONE}.json",
        f"bundles/gpt/all/{E1}/{ONE}.json",
        f"bundles/gpt/any/{E1[:-1]}/{ONE}.json",
        f"bundles/.gpt/any/{E1}/{ONE}.json",
        f"other/bundles/gpt/any/{E1}/{ONE}.json",
    ],
)
def test_what_is_none_of_ours(key: str) -> None:
    """Names that this format does not have are passed over, never an error."""
    assert bundles([stat(key)]) == ()
