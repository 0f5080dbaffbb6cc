"""Signatures: over the manifest's exact bytes, checked before anything is made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError
from cachesvc.core.trust import Trust
from cachesvc.repository.keys import SigningKey, make_key
from cachesvc.repository.signing import MOST_SIGNATURES, Signature, sign
from cachesvc.store.contract import Store
from cachesvc.store.streams import Source, Target
from cachesvc.store.wrapper import Wrapper

MANIFEST = b'{"a manifest": "of any bytes"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[SigningKey, SigningKey]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder / "A"), make_key(folder / "B")


def signers(manifest: bytes, data: bytes, where: str) -> frozenset[str]:
    return Signature.parse(data, where).signers(manifest)


def entry(key: SigningKey, data: bytes = MANIFEST, **changes: Any) -> dict[str, Any]:
    made = {"algorithm": "ed25519", "key": key.public, "signature": key.sign(data).hex()}
    return {**made, **changes}


def holding(*entries: Any, **changes: Any) -> bytes:
    return json.dumps({"format": 1, "signatures": list(entries), **changes}).encode()


def test_who_has_signed(keys: tuple[SigningKey, SigningKey]) -> None:
    """All of those who have, and the object is the same whoever comes first."""
    one, two = keys
    signature = sign(MANIFEST, [one, two])
    assert signers(MANIFEST, signature, "here") == {one.public, two.public}
    assert sign(MANIFEST, [two, one]) == signature
    assert signers(MANIFEST, sign(MANIFEST, [one]), "here") == {one.public}
    assert signers(MANIFEST, sign(MANIFEST, []), "here") == frozenset()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_manifest_is_signed(
    keys: tuple[SigningKey, SigningKey], data: st.DataObject
) -> None:
    """Not with a bit flipped, cut, or longer."""
    signature = sign(MANIFEST, keys)
    place = data.draw(st.integers(0, len(MANIFEST) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                MANIFEST[:place] + bytes([MANIFEST[place] ^ 1]) + MANIFEST[place + 1 :],
                MANIFEST[:place],
                MANIFEST + MANIFEST[place:],
            ]
        )
    )
    assert signers(changed, signature, "here") == frozenset()


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_changed_signature_names_nobody_new(
    keys: tuple[SigningKey, SigningKey], data: st.DataObject
) -> None:
    """Damage leaves some of who has signed, or is told as damage; it makes no signer."""
    good = sign(MANIFEST, keys)
    place = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255))
    try:
        found = signers(MANIFEST, good[:place] + bytes([byte]) + good[place + 1 :], "here")
    except IntegrityError:
        return
    assert found <= {key.public for key in keys}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_damage(data: bytes) -> None:
    """IntegrityError is the only one that comes."""
    with suppress(IntegrityError):
        assert signers(MANIFEST, data, "here") == frozenset()


def test_signatures_that_count_for_nothing(keys: tuple[SigningKey, SigningKey]) -> None:
    """Wrong ones, others' under this key, and those of algorithms to come; the right ones count."""
    one, two = keys
    stolen = entry(one, signature=two.sign(MANIFEST).hex())
    other = entry(one, b"another manifest")
    coming = {"algorithm": "ml-dsa", "key": "some", "signature": "other form", "more": 1}
    data = holding(stolen, other, coming, entry(two), entry(two))
    assert signers(MANIFEST, data, "here") == {two.public}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": "1"},
        {"format": None},
        {"format": True},
        {"signatures": {}},
        {"signatures": [7]},
        {"signatures": [{"algorithm": "ed25519"}]},
        {"signatures": [{"algorithm": "ed25519", "key": "A" * 64, "signature": "0" * 128}]},
        {"signatures": [{"algorithm": "ed25519", "key": "0" * 64, "signature": "0" * 127}]},
        {"signatures": [{"algorithm": "x", "key": "k", "signature": "s"}] * (MOST_SIGNATURES + 1)},
    ],
    ids=range(10),
)
def test_what_holds_no_signatures(change: dict[str, Any]) -> None:
    """It is said where and what; a newer format by its number."""
    with pytest.raises(IntegrityError, match="here"):
        signers(MANIFEST, holding(**change), "here")


# --- what a reader makes of them


@pytest.mark.parametrize("signed", ["not", "by another", "over other bytes", "damaged", "rightly"])
def test_only_what_is_rightly_signed_is_read(
    anywhere: Store,
    make_desk: Callable[..., Any],
    keys: tuple[SigningKey, SigningKey],
    signed: str,
) -> None:
    """Of anything else no pack is ever asked for, and no manifest but where a signature by the key
    must be looked at."""
    one, two = keys
    by = {"not": (), "by another": (two,)}.get(signed, (one,))
    desk = make_desk(anywhere, signing=by)
    segment = desk.push(desk.draft("triton/K", a=b"1")).segment
    key = f"{desk.address.prefix}{segment}.sig"
    assert (anywhere.stat(key) is None) == (signed == "not")
    if signed == "over other bytes":
        anywhere.put(key, holding(entry(one)))
    elif signed == "damaged":
        anywhere.put(key, b"{")
    asked: list[str] = []

    class Watching(Wrapper):
        def _fetch(self, key: str, target: Target) -> int | None:
            asked.append(key)
            return super()._fetch(key, target)

    reader = make_desk(Watching(anywhere), trust=Trust(frozenset({one.public})))
    reading = reader.read()
    if signed == "rightly":
        assert reader.contents() == {"triton/K/a": b"1"}
        assert reading.segments[0].signers == {one.public}
        return
    assert reading.segments == ()
    (refused,) = reading.refused
    assert refused.untrusted == (signed != "damaged")
    assert segment in refused.reason
    assert reader.contents() == {}
    brought = {key.partition(".")[2] for key in asked}
    expected = {"by another": {"sig"}, "damaged": {"sig"}, "over other bytes": {"sig", "json"}}
    assert brought == expected.get(signed, set())


def test_the_signature_comes_before_the_manifest(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """What a manifest says is not even parsed if nobody who is trusted has signed it."""
    desk = make_desk(anywhere)
    desk.push(desk.draft("triton/K", a=b"1"))
    anywhere.put(f"{desk.address.prefix}{'0' * 64}.json", b"[" * 1000)
    reading = make_desk(anywhere, trust=Trust(frozenset({keys[0].public}))).read()
    assert [item.untrusted for item in reading.refused] == [True, True]
    assert all("is not signed" in item.reason for item in reading.refused)


def test_a_signed_manifest_lies_where_it_says(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """One of another address is refused, though the signature is right."""
    desk = make_desk(anywhere, signing=keys[:1])
    segment = desk.push(desk.draft("triton/K", a=b"1")).segment
    moved = type(desk.address)("victim", "any", desk.address.environment)
    for kind in ("json", "sig", "tar.zst"):
        data = anywhere.get(f"{desk.address.prefix}{segment}.{kind}", limit=1 << 20)
        anywhere.put(f"{moved.prefix}{segment}.{kind}", data or b"")
    reader = make_desk(anywhere, address=moved, trust=Trust(frozenset({keys[0].public})))
    (refused,) = reader.read().refused
    assert "belongs to" in refused.reason
    assert not refused.untrusted


# --- who counts for whom


def test_what_is_not_trusted_supersedes_nothing(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """Nor does it change the union: filtering by trust comes first."""
    one, two = keys
    mine = make_desk(anywhere, signing=(one,), trust=Trust(frozenset({one.public})))
    good = mine.push(mine.draft("triton/K", a=b"good"))
    for attacker in (make_desk(anywhere, clock=50), make_desk(anywhere, clock=60, signing=(two,))):
        reading = attacker.read()
        manifest = next(s for s in reading.segments if s.name == good.segment).manifest
        attacker.push(
            attacker.draft("triton/K", a=b"evil", b=b"more"),
            reading=type(reading)(reading.address, ()),
        )
        assert manifest.address == attacker.address
    assert mine.contents() == {"triton/K/a": b"good"}
    assert [segment.name for segment in mine.read().segments] == [good.segment]
    assert len(mine.read().refused) == 2


def test_nobody_signs_what_others_have_made(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """Foreign segments stay beside, unsigned or signed by others, whoever is trusted."""
    one, two = keys
    plain = make_desk(anywhere)
    plain.push(plain.draft("triton/plain", a=b"1"))
    second = make_desk(anywhere, clock=10, signing=(two,))
    second.push(second.draft("triton/second", a=b"2"))
    first = make_desk(anywhere, clock=20, signing=(one,))
    pushed = first.push(first.draft("triton/first", a=b"3"))
    assert (pushed.carried, pushed.superseded) == (0, ())
    assert set(make_desk(anywhere, trust=Trust(frozenset({one.public}))).contents()) == {
        "triton/first/a"
    }
    assert set(make_desk(anywhere).contents()) == {
        *("triton/plain/a", "triton/second/a", "triton/first/a")
    }


def test_a_key_merges_what_it_has_signed(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """As an unsigned push merges what is unsigned, and takes nobody's signature away."""
    one, _ = keys
    desk = make_desk(anywhere, signing=(one,))
    old = desk.push(desk.draft("triton/a", a=b"1"))
    both = make_desk(anywhere, clock=10, signing=keys)
    both.push(both.draft("triton/both", a=b"2"))
    new = make_desk(anywhere, clock=20, signing=(one,))
    pushed = new.push(new.draft("triton/b", a=b"3"))
    assert pushed.superseded == (old.segment,)
    for key in keys:
        found = make_desk(anywhere, trust=Trust(frozenset({key.public}))).contents()
        assert "triton/both/a" in found
        assert len(found) == (3 if key is one else 1)
    plain = make_desk(anywhere, clock=30)
    assert plain.push(plain.draft("triton/c", a=b"4")).superseded == ()


def test_a_signing_push_is_covered_by_what_is_signed_alone(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """So a store that was pushed to without keys gets signed bundles by pushing once more; then
    there is nothing to do, and a push that does not sign has nothing to add to it."""
    plain = make_desk(anywhere)
    plain.push(plain.draft("triton/a", a=b"1"))
    signing = make_desk(anywhere, clock=10, signing=keys[:1])
    assert signing.push(signing.draft("triton/a", a=b"1")).added == 1
    assert signing.push(signing.draft("triton/a", a=b"1")).segment is None
    assert plain.push(plain.draft("triton/a", a=b"1")).segment is None


def test_a_proof_is_not_carried_from_others(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """Records of outputs are a statement too, which only their own maker signs."""
    from cachesvc.core.proof import Proof

    plain = make_desk(anywhere)
    plain.push(plain.draft("triton/a", a=b"1"), proof=Proof(cold_s=5.0))
    signing = make_desk(anywhere, clock=10, signing=keys[:1])
    signing.push(signing.draft("triton/b", a=b"1"))
    reader = make_desk(anywhere, trust=Trust(frozenset({keys[0].public})))
    (segment,) = reader.read().segments
    assert segment.manifest.proof is None


# --- rotation, revocation, age


def test_a_key_takes_over_from_another(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """Sign with both, or trust both, for a while: nobody is without a bundle at any moment."""
    old, new = keys
    trusts = [Trust(frozenset({old.public})), Trust(frozenset({new.public}))]
    desk = make_desk(anywhere, signing=(old, new))
    desk.push(desk.draft("triton/a", a=b"1"))
    for trust in (*trusts, Trust(frozenset({old.public, new.public}))):
        assert make_desk(anywhere, trust=trust).contents() == {"triton/a/a": b"1"}


def test_what_is_revoked(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """A segment by its name, also where the store as a whole is trusted; a key with all of its."""
    one, two = keys
    first = make_desk(anywhere, signing=(one,))
    bad = first.push(first.draft("triton/a", a=b"1")).segment
    second = make_desk(anywhere, clock=10, signing=(two,))
    second.push(second.draft("triton/b", a=b"2"))
    every = frozenset({one.public, two.public})
    for trust in (
        Trust(None, revoked=frozenset({bad})),
        Trust(None, revoked=frozenset({one.public})),
        Trust(every, revoked=frozenset({bad})),
        Trust(every, revoked=frozenset({one.public})),
    ):
        reader = make_desk(anywhere, trust=trust)
        assert reader.contents() == {"triton/b/a": b"2"}
        (refused,) = reader.read().refused
        assert refused.untrusted


def test_what_is_revoked_is_not_carried_on(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """Units that a later push has carried out of a revoked segment are not used either, are not
    carried further by who knows of it, and are pushed anew."""
    desk = make_desk(anywhere, signing=keys[:1])
    bad = desk.push(desk.draft("triton/a", a=b"evil")).segment
    desk.push(desk.draft("triton/b", a=b"2"))
    trust = Trust(frozenset({keys[0].public}), revoked=frozenset({bad}))
    knowing = make_desk(anywhere, clock=10, trust=trust, signing=keys[:1])
    assert desk.contents() == {"triton/a/a": b"evil", "triton/b/a": b"2"}
    assert knowing.contents() == {"triton/b/a": b"2"}
    knowing.push(knowing.draft("triton/c", a=b"3"))
    assert set(desk.contents()) == {"triton/b/a", "triton/c/a"}
    assert knowing.push(knowing.draft("triton/a", a=b"good")).added == 1
    assert knowing.contents()["triton/a/a"] == b"good"


def test_an_old_segment_that_was_put_back(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """It is rightly signed; its age is what tells, where one is asked for."""
    desk = make_desk(anywhere, signing=keys[:1])
    desk.push(desk.draft("triton/a", a=b"1"))  # made in January 2025, by its clock
    key = frozenset({keys[0].public})
    assert make_desk(anywhere, trust=Trust(key)).contents()
    since = datetime.now(timezone.utc) - datetime(2025, 1, 1, tzinfo=timezone.utc)
    for allowed, found in ((since + timedelta(hours=1), 1), (since - timedelta(hours=1), 0)):
        reader = make_desk(anywhere, trust=Trust(key, max_age_s=allowed.total_seconds()))
        assert len(reader.contents()) == found
    (refused,) = reader.read().refused
    assert "2025-01-01" in refused.reason


def test_what_is_old_is_not_made_young_by_carrying_it_on(
    anywhere: Store, make_desk: Callable[..., Any], keys: tuple[SigningKey, SigningKey]
) -> None:
    """A push that absorbs an old segment, or one that was put back, renews only its own units; who
    asks for an age does not count the others as there, so that they are pushed anew."""
    desk = make_desk(anywhere, signing=keys[:1])
    desk.push(desk.draft("triton/old", a=b"1"))
    desk.clock = 1800
    desk.push(desk.draft("triton/new", a=b"2"))
    since = datetime.now(timezone.utc) - datetime(2025, 1, 1, 0, 20, tzinfo=timezone.utc)
    trust = Trust(frozenset({keys[0].public}), max_age_s=since.total_seconds())
    aware = make_desk(anywhere, clock=1900, trust=trust, signing=keys[:1])
    assert set(desk.contents()) == {"triton/old/a", "triton/new/a"}
    assert set(aware.contents()) == {"triton/new/a"}
    assert aware.push(aware.draft("triton/old", a=b"3")).added == 1
    assert aware.contents() == {"triton/old/a": b"3", "triton/new/a": b"2"}


def test_what_is_asked_has_a_digest() -> None:
    """So that what was verified once counts only for those who ask for no more."""
    one, two = "1" * 64, "2" * 64
    digests = [
        Trust(None).digest,
        Trust(frozenset({one})).digest,
        Trust(frozenset({one, two})).digest,
        Trust(frozenset({one}), revoked=frozenset({two})).digest,
        Trust(None, revoked=frozenset({two})).digest,
        Trust(frozenset()).digest,
    ]
    assert digests[0] is None
    assert len(set(digests)) == len(digests)
    assert Trust(frozenset({one}), max_age_s=1).digest == digests[1]


def test_the_files_of_a_signed_segment(
    anywhere: Store,
    make_desk: Callable[..., Any],
    keys: tuple[SigningKey, SigningKey],
) -> None:
    """Pack, then signature, then manifest: no reader meets one without its signature."""
    puts: list[str] = []

    class Watching(Wrapper):
        def _put(self, key: str, source: Source) -> None:
            puts.append(key.partition(".")[2])
            super()._put(key, source)

    desk = make_desk(Watching(anywhere), signing=keys[:1])
    desk.push(desk.draft("triton/a", a=b"1"))
    assert puts == ["tar.zst", "sig", "json"]
