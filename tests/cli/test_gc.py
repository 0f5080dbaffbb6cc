"""gc and the repair of verify, as their user meets them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cachesvc.store.directory import DirectoryStore

from .conftest import ENTRY

Command = Callable[..., Any]
FIELDS = "live dry_run deleted merged kept objects bytes bytes_left failure"


@pytest.fixture
def two(tccache: Command, store: Path, tree: Path) -> Path:
    """A store with a segment that another one supersedes."""
    (tree / "fxgraph" / "xy" / "later").mkdir()
    (tree / "fxgraph" / "xy" / "later" / "hash").write_text("later")
    assert tccache("push", "m", "--store", store, "--inductor-dir", tree).code == 0
    return store


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the store is two days ahead of what was written to it."""
    now = DirectoryStore._now

    def ahead(self: DirectoryStore) -> datetime:
        return now(self) + timedelta(days=2)

    monkeypatch.setattr(DirectoryStore, "_now", ahead)


def names(store: Path) -> list[str]:
    return sorted(path.name for path in store.rglob("*.*") if path.is_file())


def test_a_young_store_is_left_alone(tccache: Command, two: Path) -> None:
    """And the command says why, for each segment that will go one day."""
    before = names(two)
    ran = tccache("gc", "--store", two, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "is younger than the grace time" in ran.out
    assert "deleted 0 objects, 0 B; " in ran.out
    assert names(two) == before


def test_gc_deletes(tccache: Command, two: Path, later: None) -> None:
    """A dry run says all and deletes nothing; what remains serves as before."""
    before = names(two)
    dry = tccache("gc", "--store", two, "--dry-run", "--json").json
    assert set(dry) == {"schema", *FIELDS.split()}
    assert (dry["schema"], dry["dry_run"], dry["objects"]) == ("tccache.gc/1", True, 2)
    assert [item["cause"] for item in dry["deleted"]] == ["superseded"]
    assert names(two) == before
    said = tccache("gc", "--store", two, "--dry-run").out
    assert "would delete m/any/" in said
    done = tccache("gc", "--store", two, "--yes", "--json").json
    assert done == {**dry, "dry_run": False}
    assert len(names(two)) == len(before) - 2
    assert tccache("verify", "--store", two, "--json").json["segments"] == 1
    assert tccache("pull", "m", "--store", two, "--require").code == 0


def test_policies_are_flags(tccache: Command, two: Path, tree: Path, later: None) -> None:
    """Each deletes whole bundles, and a tag pins them."""
    tagged = ["push", "t", "--store", two, "--inductor-dir", tree, "--tag", "prod"]
    assert tccache(*tagged).code == 0
    for flags in (["--older-than", "1d"], ["--max-bytes", "0MB"], ["--torch", "1.0"]):
        ran = tccache("gc", "--store", two, "--dry-run", "--json", "--keep-tag", "prod", *flags)
        gone = {item["name"] for item in ran.json["deleted"] if item["cause"] == "policy"}
        assert gone == {"m"}, flags
    over = tccache("gc", "--store", two, "--yes", "--keep-tag", "prod", "--max-bytes", "1kB")
    assert "warning: the store holds" in over.err
    assert "is under `kept`" in over.err
    assert "has the tag prod, though it takes room of which there is too little" in over.out
    assert [item["name"] for item in tccache("ls", "--store", two, "--json").json["bundles"]] == [
        "t"
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--grace", "59m"], "give 3600 s or more"),
        (["--grace", "1"], "is no duration"),
        (["--older-than", "soon"], "is no duration"),
        (["--max-bytes", "10"], "is no size"),
        (["--max-bytes", "1XB"], "is no size"),
        (["--keep-last", "0"], "--keep-last"),
        (["--live", "--merge"], "--merge is about stores"),
        (["--live", "--torch", "2.9"], "--torch is about stores"),
        (["--live", "--grace", "24h"], "--grace is about stores"),
        (["--live", "--trust", "none.pub"], "--trust is about stores"),
        (["--live", "--sign-with", "none"], "--sign-with is about stores"),
        (["--live", "--max-age", "1d"], "--max-age is about stores"),
        (["--live", "--revoked", "none"], "--revoked is about stores"),
        ([], "there is no terminal to ask at"),
    ],
)
def test_what_is_refused(tccache: Command, two: Path, flags: list[str], said: str) -> None:
    """In one line, before anything is looked at."""
    yes = ["--yes"] if flags else []
    where = [] if "--live" in flags else ["--store", two]
    ran = tccache("gc", *where, *yes, *flags)
    assert ran.code == 2
    assert ran.is_one_error
    assert said in ran.err


def test_a_store_beside_live(
    tccache: Command, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag is refused, a variable that says where the store is in general is passed over."""
    for verb in ("gc", "verify"):
        ran = tccache(verb, "--live", "--store", two)
        assert (ran.code, ran.is_one_error) == (2, True)
        assert "--store is about stores" in ran.err
    monkeypatch.setenv("TCCACHE_STORE", str(two))
    monkeypatch.setenv("TCCACHE_GC_GRACE", "5h")
    assert tccache("gc", "--live", "--yes").code == 0
    assert tccache("verify", "--live").code == 0


def test_a_denied_deletion(
    tccache: Command, two: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 6, having said what was done until then."""
    from cachesvc.core.errors import AccessDenied

    real = DirectoryStore._delete

    def denied(self: DirectoryStore, key: str) -> None:
        if key.endswith("tar.zst"):
            raise AccessDenied(f"cannot delete {key}")
        real(self, key)

    monkeypatch.setattr(DirectoryStore, "_delete", denied)
    ran = tccache("gc", "--store", two, "--yes", "--json")
    assert ran.code == 6
    assert (ran.json["objects"], ran.json["failure"][:13]) == (1, "cannot delete")
    assert ran.err.startswith("error: cannot delete")


def asked(answer: str, *arguments: object) -> tuple[int, str]:
    """Runs the command at a terminal, where somebody answers; its exit code and standard error."""
    here, there = pty.openpty()
    line = [sys.executable, "-c", ENTRY, *map(str, arguments)]
    with (
        os.fdopen(here, "wb", buffering=0) as terminal,
        subprocess.Popen(line, stdin=there, stdout=-1, stderr=-1, text=True) as process,
    ):
        os.close(there)
        terminal.write(f"{answer}\n".encode())
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_it_asks_at_a_terminal(two: Path) -> None:
    """What would be deleted is shown first; a no deletes nothing."""
    orphan = next(two.glob("bundles/**/*.json")).with_name("f" * 64 + ".tar.zst")
    orphan.write_bytes(b"pack")
    os.utime(orphan, (0, 0))
    code, err = asked("n", "gc", "--store", two)
    assert (code, orphan.exists()) == (1, True)
    assert "would delete m/any/" in err
    assert "Delete 1 object, 4 B?" in err
    assert asked("y", "gc", "--store", two)[0] == 0
    assert not orphan.exists()


def test_it_asks_before_it_merges(two: Path, tree: Path, tccache: Command) -> None:
    """That writes to the store too."""
    only = next(two.glob("bundles/**/*.json"))
    for path in two.glob("bundles/**/*.*"):
        if not path.name.startswith(only.name.split(".")[0]):
            path.unlink()
    (tree / "fxgraph" / "xy" / "more").mkdir()
    (tree / "fxgraph" / "xy" / "more" / "hash").write_text("more")
    before = names(two)
    line = (
        "import cachesvc, cachesvc.repository.publish as p; p.MERGE_LIMIT_BYTES = 0;"
        f"cachesvc.push('m', store={str(two)!r}, inductor_dir={str(tree)!r})"
    )
    subprocess.run([sys.executable, "-c", line], check=True)
    beside = names(two)
    assert len(beside) == len(before) + 2
    code, err = asked("n", "gc", "--store", two, "--merge")
    assert (code, names(two)) == (1, beside)
    assert "Merge the segments of 1 bundle?" in err
    assert asked("y", "gc", "--store", two, "--merge")[0] == 0
    assert len(names(two)) == len(beside) + 2


def test_verify_repairs(tccache: Command, two: Path) -> None:
    """Problems are exit 4 until a repair has deleted what is damaged."""
    packs = list(two.rglob("*.tar.zst"))
    for pack in packs:
        pack.write_bytes(b"garbage")
    assert tccache("verify", "--store", two).code == 4
    dry = tccache("verify", "--store", two, "--repair", "--dry-run", "--json")
    assert (dry.code, len(dry.json["repaired"]), dry.json["dry_run"]) == (4, 2, True)
    assert "would delete" in tccache("verify", "--store", two, "--repair", "--dry-run").out
    done = tccache("verify", "--store", two, "--repair", "--yes", "--json")
    assert (done.code, done.json["ok"], done.json["problems"]) == (0, True, [])
    assert names(two) == ["tccache.json"]


def test_a_damaged_pack_stops_no_push(tccache: Command, two: Path, tree: Path) -> None:
    """It is named with what mends the store, and what is new is there."""
    for pack in two.rglob("*.tar.zst"):
        pack.write_bytes(b"garbage")
    (tree / "fxgraph" / "xy" / "more").mkdir()
    (tree / "fxgraph" / "xy" / "more" / "hash").write_text("more")
    pushed = tccache("push", "m", "--store", two, "--inductor-dir", tree, "--json")
    assert (pushed.code, pushed.json["added"]) == (0, 1)
    assert "is damaged, so it stays beside the new one: " in pushed.err
    assert "tccache verify --repair" in pushed.err
    assert tccache("verify", "--store", two, "--repair", "--yes").code == 0
    assert len([name for name in names(two) if name.endswith(".json")]) == 2
    again = tccache("push", "m", "--store", two, "--inductor-dir", tree, "--json")
    assert (again.code, again.json["added"], again.err) == (0, 3, "")


def test_a_repair_asks_too(two: Path) -> None:
    """A sound store is not asked about; a no leaves a damaged one as it is."""
    assert asked("", "verify", "--store", two, "--repair")[0] == 0
    for pack in two.rglob("*.tar.zst"):
        pack.write_bytes(b"garbage")
    before = names(two)
    code, err = asked("n", "verify", "--store", two, "--repair")
    assert (code, names(two)) == (1, before)
    assert "Delete 4 objects" in err


def test_live_directories(tccache: Command, tmp_path: Path, tree: Path) -> None:
    """No store is asked; what no process uses goes, and a dry run says so."""
    place = tmp_path / "store"
    assert tccache("push", "m", "--store", place, "--inductor-dir", tree).code == 0
    assert tccache("pull", "m", "--store", place).code == 0
    files = list((tmp_path / "home").rglob("cabc.py"))
    assert len(files) == 1
    dry = tccache("gc", "--live", "--max-bytes", "0MB", "--dry-run", "--json").json
    assert (dry["live"], len(dry["removed"]), files[0].exists()) == (True, 1, True)
    kept = tccache("gc", "--live", "--yes")
    assert (kept.code, files[0].exists()) == (0, True)
    assert kept.out.splitlines()[-1] == "deleted 0 live directories, 0 leftovers, 0 B"
    done = tccache("gc", "--live", "--max-bytes", "0MB", "--yes")
    assert (done.code, files[0].exists()) == (0, False)
    assert done.out.splitlines()[-1].startswith("deleted 1 live directory, 0 leftovers")


def test_a_live_directory_is_verified(tccache: Command, tmp_path: Path, tree: Path) -> None:
    """Exit 4 for what is not as it was seeded, until a repair has removed it."""
    place = tmp_path / "store"
    assert tccache("push", "m", "--store", place, "--inductor-dir", tree).code == 0
    assert tccache("pull", "m", "--store", place).code == 0
    sound = tccache("verify", "--live", "--json")
    assert (sound.code, sound.json["live"], sound.json["units"]) == (0, True, 2)
    (file,) = (tmp_path / "home").rglob("fkey/hash")
    file.write_text("grapH")
    damaged = tccache("verify", "--live")
    assert damaged.code == 4
    assert "problem: inductor/fxgraph/xy/fkey: " in damaged.out
    dry = tccache("verify", "--live", "--repair", "--dry-run", "--json")
    assert (dry.code, dry.json["dry_run"], sound.json["dry_run"]) == (4, True, False)
    assert file.exists()
    repaired = tccache("verify", "--live", "--repair", "--yes")
    assert (repaired.code, file.exists()) == (0, False)
    assert "deleted inductor/fxgraph/xy/fkey" in repaired.out
    assert tccache("verify", "m", "--live").code == 2


def test_the_repair_of_a_live_directory_asks(tccache: Command, tmp_path: Path, tree: Path) -> None:
    """With what was found, and a no removes nothing."""
    place = tmp_path / "store"
    assert tccache("push", "m", "--store", place, "--inductor-dir", tree).code == 0
    assert tccache("pull", "m", "--store", place).code == 0
    (file,) = (tmp_path / "home").rglob("fkey/hash")
    file.write_text("grapH")
    code, err = asked("n", "verify", "--live", "--repair")
    assert (code, file.exists()) == (1, True)
    assert "Delete 1 damaged unit" in err


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_verify_alone_deletes_nothing_to_ask_about(tccache: Command, two: Path, flag: str) -> None:
    """A flag that would do nothing is a mistake."""
    ran = tccache("verify", "--store", two, flag)
    assert (ran.code, ran.is_one_error) == (2, True)
