"""Whom a caller trusts: what is said by arguments and variables, and what cannot be meant."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cachesvc.core.errors import TccacheError, UntrustedError, UsageError
from cachesvc.start.access import PRIVATE, Access, access
from cachesvc.start.keys import make_key, read_key
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import chosen_repository


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRUST", "SIGN_WITH", "MAX_AGE", "REVOKED", "STORE"):
        monkeypatch.delenv(f"TCCACHE_{name}", raising=False)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A store that others can write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """The public halves of A and B."""
    return make_key(tmp_path / "A").public[0], make_key(tmp_path / "B").public[0]


def test_the_environment_says_what_arguments_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are parted by colons and made absolute, since other processes are told the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCCACHE_TRUST", "a.pub:~/b.pub")
    monkeypatch.setenv("TCCACHE_SIGN_WITH", "/k")
    monkeypatch.setenv("TCCACHE_MAX_AGE", "90m")
    monkeypatch.setenv("TCCACHE_REVOKED", "")
    monkeypatch.setenv("HOME", "/home/me")
    said = access()
    assert said == Access((f"{tmp_path}/a.pub", "/home/me/b.pub"), ("/k",), 5400.0)
    assert access("store").trust == ("store",)
    assert access("store").sign_with == ("/k",)
    assert access(sign_with=Path("/l"), max_age_s=1, revoked=["/r"]) == Access(
        said.trust, ("/l",), 1, ("/r",)
    )


def test_an_access_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of this process's own is not measured by keys for another one."""
    monkeypatch.setenv("TCCACHE_TRUST", "/a.pub")
    monkeypatch.setenv("TCCACHE_SIGN_WITH", "/k")
    assert access(PRIVATE) == PRIVATE
    changed = access(PRIVATE, "/k", max_age_s=5, revoked="/gone")
    assert changed == Access(("store",), ("/k",), 5, ("/gone",))


@pytest.mark.parametrize(
    "trust",
    [
        "",
        [""],
        [],
        True,
        b"/a.pub",
        {"a": 1},
        ["store", "/a.pub"],
        ["/a.pub", "store"],
        "~nosuchuser/a.pub",
        "a\0b",
    ],
)
def test_what_cannot_be_meant(monkeypatch: pytest.MonkeyPatch, trust: str | list[str]) -> None:
    """An empty text is a variable that was not set, an empty list a pattern that found no file; the
    word and keys contradict each other. None of it falls back on something else."""
    monkeypatch.setenv("TCCACHE_TRUST", "/b.pub")
    with pytest.raises(UsageError):
        access(trust)


def test_a_file_of_the_name_of_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is a path."""
    monkeypatch.chdir(tmp_path)
    for path in (Path("store"), Path("./store"), "./store"):
        assert access(path).trust == (str(tmp_path / "store"),)
    assert access(sign_with="store").sign_with == (str(tmp_path / "store"),)


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1 month", "1e3s", "0s", "\u0661d"])
def test_an_age_that_is_none(monkeypatch: pytest.MonkeyPatch, age: str) -> None:
    """A number alone could mean any unit."""
    monkeypatch.setenv("TCCACHE_MAX_AGE", age)
    with pytest.raises(UsageError, match=r"duration|is none"):
        access()


def test_one_file_is_as_good_as_a_list_of_one() -> None:
    """In an Access, too; texts are not read letter by letter."""
    assert Access("store") == Access(("store",))
    assert Access("/k.pub", "/k", revoked="/r") == Access(("/k.pub",), ("/k",), None, ("/r",))
    assert Access("k.pub").trust == (str(Path("k.pub").absolute()),)


def test_more_keys_than_readers_take(tmp_path: Path) -> None:
    """Nothing is written that every reader would refuse."""
    for number in range(17):
        make_key(tmp_path / str(number))
    files = [tmp_path / str(number) for number in range(17)]
    with pytest.raises(UsageError, match="17 keys"):
        access("store", files).signing_keys()
    assert len(access("store", files[1:]).signing_keys()) == 16


def test_who_only_reads_needs_no_key_that_signs(tmp_path: Path, keys: tuple[str, str]) -> None:
    """One that a variable names for all verbs is read where it signs, or is all that is said."""
    said = access(tmp_path / "A.pub", tmp_path / "missing")
    assert chosen_repository(tmp_path, said).keys == ()
    with pytest.raises(UsageError, match="missing"):
        chosen_repository(tmp_path, said, signs=True)
    with pytest.raises(UsageError, match="missing"):
        chosen_repository(tmp_path, access(sign_with=tmp_path / "missing"))


def test_a_live_directory_waits_for_no_key_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One on a server that is away: nothing is brought, and nothing used that others may have
    filled."""
    said = access(make_key(tmp_path / "A").public_file)
    readable = scope_of(said)
    never = threading.Event()
    monkeypatch.setattr(Access, "signing_keys", lambda _: never.wait(60) and ())
    assert scope_of(said, seconds=0.01) not in (None, readable)
    never.set()
    assert scope_of(access("store"), seconds=0.01) is None


def test_a_shared_store_needs_somebody_to_vouch(
    shared: Path, tmp_path: Path, keys: tuple[str, str]
) -> None:
    """The word, a key that is trusted, or a key of one's own that signs: then that one is."""
    with pytest.raises(UntrustedError):
        chosen_repository(shared, None)
    assert chosen_repository(shared, "store").trust.is_everyone
    one, two = keys
    assert chosen_repository(shared, tmp_path / "A.pub").trust.keys == {one}
    signing = chosen_repository(shared, access(sign_with=tmp_path / "B"), signs=True)
    assert (signing.trust.keys, signing.signing) == ({two}, {two})
    both = chosen_repository(shared, access(tmp_path / "A.pub", tmp_path / "B"), signs=True)
    assert (both.trust.keys, both.signing) == ({one}, {two})
    word = chosen_repository(shared, access("store", tmp_path / "B"), signs=True)
    assert (word.trust.keys, word.signing) == (None, {two})


def test_keys_hold_everywhere(tmp_path: Path, keys: tuple[str, str]) -> None:
    """Also in a directory that only this user can write to."""
    assert chosen_repository(tmp_path / "mine", None).trust.is_everyone
    assert chosen_repository(tmp_path / "mine", tmp_path / "A.pub").trust.keys == {keys[0]}


def test_keys_are_read_before_any_request(tmp_path: Path, shared: Path) -> None:
    """A wrong file is told at once, as what it is."""
    make_key(tmp_path / "A")
    for said in (tmp_path / "no.pub", tmp_path / "A"):
        with pytest.raises(UsageError, match=str(said)):
            chosen_repository(shared, said)
    (tmp_path / "A").chmod(0o644)
    with pytest.raises(UntrustedError, match="chmod 600"):
        chosen_repository(shared, access("store", tmp_path / "A"), signs=True)


def test_a_list_of_what_is_revoked(tmp_path: Path, keys: tuple[str, str]) -> None:
    """Digests, with comments or without; what is neither is told by its line."""
    gone = tmp_path / "gone"
    gone.write_text(f"# lost in May\n\n{keys[1]}  # B's laptop\n{'0' * 64}\n")
    files = [tmp_path / "A.pub", tmp_path / "B.pub"]
    trust = chosen_repository(tmp_path, access(files, revoked=gone)).trust
    assert trust.revoked == {keys[1], "0" * 64}
    assert trust.accepted == {keys[0]}
    for text in ("0" * 63, "0" * 65, "G" * 64, f"{'0' * 64}x", f"{'0' * 64} {'1' * 64}"):
        gone.write_text(f"{'0' * 64}\n{text}\n")
        with pytest.raises(UsageError, match="line 2"):
            chosen_repository(tmp_path, access(files, revoked=gone))
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="cannot read the list"):
            chosen_repository(tmp_path, access(files, revoked=missing))


def test_a_key_is_shown_by_its_public_half(tmp_path: Path, keys: tuple[str, str]) -> None:
    """Whichever of its files is named."""
    private, public = read_key(tmp_path / "A"), read_key(tmp_path / "A.pub")
    assert private.public == public.public == (keys[0],)
    assert (private.private, public.private) == (True, False)
    body = (tmp_path / "A").read_text().split("\n")[1]
    assert body not in str(private.to_json())
    with pytest.raises(TccacheError, match="No such"):
        read_key(tmp_path / "C")
