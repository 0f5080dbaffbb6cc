"""What users, shells and stores hand over as text: names, URLs, variables, arguments."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from cachesvc.core.address import NAME, check_name, name_from
from cachesvc.core.components import Components
from cachesvc.core.errors import StoreError, TccacheError, UsageError
from cachesvc.core.paths import path_issue
from cachesvc.core.spelled import HIDDEN, spelled
from cachesvc.local.host import COMPONENTS
from cachesvc.local.live import live_directory
from cachesvc.local.whole import existing
from cachesvc.repository.listing import bundles
from cachesvc.start.target import resolve_environment
from cachesvc.store import fsspec_store
from cachesvc.store.contract import Stat
from cachesvc.store.fsspec_store import FsspecStore
from cachesvc.store.location import open_store
from tccache.main import run

from .tries import quick_and_slow, try_all

NOW = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECRET = "hunter2hunter2"
SHOWN = re.compile(f"(?!\n)[{HIDDEN}]")
CODES = {0, 1, 2, 3, 4, 5, 6, 7}

TEXTS = [
    "", " ", ".", "..", "../../x", "/etc/passwd", "a\nerror: b", "\x1b[2Jx", "\x9b2Jx", "\u202ex",
    "x\0y", "\udcff\udcfe", "\ufeff", "x" * 5000, "--", "-", "-x", "--json", "~", "~nobody/x",
    "a b",
    "a:b", "0" * 64, "%s%n{0}", "$HOME", "é", "a" * 129, "x\u2028y",
]  # fmt: skip
WITHOUT_NUL = [text for text in TEXTS if "\0" not in text]

Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Said:
    """Runs a command line in a place of its own; its exit code, and all that it said."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "live"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)

    def command(*arguments: str, **environment: str) -> tuple[int, str]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run(arguments)
        out, err = capfd.readouterr()
        return code, out + err

    return command


def check(code: int, text: str) -> None:
    """The exit code is one of those that are documented, the text steers no terminal, and it was
    no surprise."""
    assert code in CODES
    assert not SHOWN.search(text), text
    assert "please report it" not in text, text


VERBS = ["ls", "show", "rm", "verify", "pull", "push", "lookup", "explain", "gc"]


@pytest.mark.parametrize("verb", VERBS)
def test_arguments(said: Said, verb: str, tmp_path: Path) -> None:
    """Whatever stands for a name or a store, a verb says in a sentence what is wrong with it."""
    (tmp_path / "store").mkdir(mode=0o700)
    for text in WITHOUT_NUL:
        check(*said(verb, "--store", str(tmp_path / "store"), "--", text))
        check(*said(verb, "--store", text, "--", "name"))
    for text in WITHOUT_NUL:
        check(*said(verb, "--trust", text, "--store", str(tmp_path / "store"), "--", "name"))
    assert sorted(os.listdir(tmp_path)) == sorted({*os.listdir(tmp_path)} & _ALLOWED)


_ALLOWED = {"store", "tmp", "cwd", "home", "live"}


def test_directories_as_arguments(said: Said, tmp_path: Path) -> None:
    """Odd directories and files for a push or a pull are read or refused, and shown spelled out."""
    store = ("--store", str(tmp_path / "store"))
    for text in WITHOUT_NUL:
        for flag in ("--inductor-dir", "--triton-dir", "--mega", "--extra", "--environment"):
            for value in (text, f"x={text}", str(tmp_path / "cwd" / f"d{text[:200]}")):
                check(*said("push", *store, flag, value, "--", "name"))
                check(*said("pull", *store, flag, value, "--", "name"))


def test_odd_directories_are_told(said: Said, tmp_path: Path) -> None:
    """Where something is found, the directory that it went to is named without what steers a
    terminal or what no stream can write, in words and as JSON."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "file").write_text("x")
    store = ("--store", str(tmp_path / "store"))
    assert said("push", *store, "--extra", f"x={tmp_path}/engine", "name")[0] == 0
    for text in ("\udcff", "\x1b[2J", "\u202e", "a\nb", "\x9b"):
        folder = str(tmp_path / "live" / text)
        for more in ((), ("--json",)):
            code, told = said("pull", *store, "--extra", f"x={folder}", *more, "name")
            check(code, told)
            assert code == 0
            assert "extra/x" in told
            assert folder not in told
        assert (tmp_path / "live" / text / "file").read_text() == "x"


VARIABLES = [
    "TCCACHE_STORE", "TCCACHE_TRUST", "TCCACHE_HOME", "TCCACHE_DISABLE", "TCCACHE_SIGN_WITH",
    "TCCACHE_SALT", "TCCACHE_DEADLINE", "TCCACHE_TIER", "TCCACHE_MAX_AGE", "TCCACHE_REVOKED",
    "TCCACHE_JSON", "TCCACHE_QUIET", "TCCACHE_VERBOSE", "TCCACHE_PULL_REQUIRE", "TCCACHE_SHARED",
    "TCCACHE_PULL_LABEL", "TCCACHE_PULL_ENVIRONMENT", "TCCACHE_PULL_INDUCTOR_DIR", "TMPDIR",
    "TCCACHE_PULL_EXTRA", "HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
]  # fmt: skip


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables(said: Said, variable: str, tmp_path: Path) -> None:
    """Whatever a variable holds, also bytes that are no text, a pull says what is wrong with it."""
    store = () if variable == "TCCACHE_STORE" else ("--store", str(tmp_path / "store"))
    for text in [*WITHOUT_NUL, "nan", "inf", "-1", "1e999", "9" * 400, "1e-400", "0x10"]:
        check(*said("pull", "name", *store, **{variable: text}))


def test_the_arguments_above_are_hostile() -> None:
    """What is handed over holds what would steer a terminal, and what no stream can write."""
    text = "".join(TEXTS)
    assert spelled(text) != text
    for odd in ("\n", "\x1b", "\x9b", "\u202e", "\udcff", "\u2028"):
        assert odd in text


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_names(tries: int) -> None:
    """Any text is a name as it is, or refused; and any text can be made a name."""

    def one(text: str) -> None:
        assert NAME.fullmatch(name_from(text))
        try:
            assert NAME.fullmatch(check_name(text))
        except UsageError as error:
            complaint = str(error)
        else:
            return
        assert complaint == spelled(complaint)
        assert len(complaint) < 400

    try_all(tries, st.text() | st.sampled_from(TEXTS) | st.text("aA0._-\n/", max_size=140), one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_keys_of_a_store(tries: int) -> None:
    """Of any names that a store lists, those of segments are taken and all others passed over."""
    digest = "0" * 64
    part = st.sampled_from([
        "bundles", "name", "any", digest, f"{digest}.json", f"{digest}.tar.zst", f"{digest}.sig",
        "..", "", ".", "a\n", digest + "\n", digest.upper() + "A", "x" * 129, "\u0660" * 64,
        ".name",
    ])  # fmt: skip

    def one(keys: list[list[str]]) -> None:
        listed = [Stat("/".join(parts), 1, NOW) for parts in keys]
        for bundle in bundles(listed):
            for stat in bundle.objects:
                assert stat.key.startswith(bundle.address.prefix)
                assert stat.key == spelled(stat.key)

    good = st.just(["bundles", "name", "any", digest, f"{digest}.json"])
    try_all(tries, st.lists(good | st.lists(part, min_size=4, max_size=6), max_size=6), one)


URLS = [
    "s3://{0}:{1}@bucket/x", "S3://{0}:{1}@bucket", "s3:/{0}:{1}@bucket/x",
    "s3://bucket/x?secret={1}", "s3://bucket/x?endpoint=http://{0}:{1}@host",
    "s3://bucket/x?endpoint=http://{0}:{1}@host:port", "file://{0}:{1}@host/x",
    "file:/{0}:{1}@host", "sftp://{0}:{1}@host/x", "https://{0}:{1}@host/x", "https://h/x?sig={1}",
    "nope://{0}:{1}@host/x", "no pe://{0}:{1}@host/x", "://{0}:{1}@host",
    "sftp://{0}:{1}@h\u2100/x",
    "https://{0}:{1}@[::1/x", "simplecache::https://{0}:{1}@host/x", "smb://{0}:{1}@host:port/x",
    "gs://{0}:{1}@host/x", "memory://{0}:{1}@host/x",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_credentials_in_a_url(url: str) -> None:
    """A password in a URL is in no message, nor in what a store calls itself."""
    try:
        store = open_store(url.format("user", SECRET), trusted=True)
    except TccacheError as error:
        complaint = str(error)
    else:
        complaint = store.url
    assert SECRET not in complaint
    assert complaint == spelled(complaint)


def test_what_a_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that repeats its URL in an error gives nothing away, encoded or not."""

    def fail(url: str) -> Any:
        raise RuntimeError(f"cannot take {url}, that is {SECRET}@host")

    monkeypatch.setattr(fsspec_store, "_open", fail)
    encoded = SECRET.replace("2", "%32")
    store = FsspecStore(f"memory://user:{encoded}@host/x?key={encoded}")
    with pytest.raises(StoreError, match=r"cannot take memory://user:\*\*\*@host") as caught:
        store.get("a", limit=1)
    assert SECRET not in str(caught.value)
    assert encoded not in str(caught.value)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_url(tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any text names a store or is refused as usage; neither makes or reads anything."""
    monkeypatch.chdir(tmp_path)
    schemes = [
        "",
        "s3://",
        "S3:",
        "file://",
        "file:",
        "memory://",
        "sftp://",
        "nope://",
        "x y://",
        "://",
    ]

    def one(parts: tuple[str, str]) -> None:
        with suppress(UsageError):
            open_store("".join(parts), trusted=True)

    rest = st.text(max_size=40) | st.sampled_from(TEXTS) | st.text("[]:/@%?#&=\0\n~.", max_size=20)
    try_all(tries, st.tuples(st.sampled_from(schemes), rest), one)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("tries", quick_and_slow(40, 1_000))
def test_homes(tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variables say that lead to the live directory, there is one, or a sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    names = (
        "TCCACHE_HOME",
        "XDG_CACHE_HOME",
        "HOME",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    )
    value = st.none() | st.sampled_from([
        "", "x", "file", "file/x", "loop", "loop/x", "/dev/null", "/dev/null/x", "/proc/self/x",
        "a\nb", "x" * 300, "x/" * 3000, "\udcff", "\x1b[2J", "..", ".", "~",
    ])  # fmt: skip

    def one(values: dict[str, str | None]) -> None:
        environ = {name: text for name, text in values.items() if text is not None}
        try:
            live = live_directory("0" * 64, environ)
        except TccacheError:
            return
        assert existing(live.root).exists()

    try_all(tries, st.fixed_dictionaries(dict.fromkeys(names, value)), one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_what_is_told_of_others(tries: int) -> None:
    """Components, as a stranger's manifest has them, are told without what steers a terminal."""

    def one(two: tuple[dict[str, str], dict[str, str]]) -> None:
        old, new = map(Components.of, two)
        for difference in old.diff(new):
            assert str(difference) == spelled(str(difference))

    texts = st.text() | st.sampled_from(TEXTS)
    try_all(tries, st.tuples(*[st.dictionaries(texts, texts, max_size=3)] * 2), one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_paths(tries: int, tmp_path: Path) -> None:
    """A path that is accepted lies below its section's folder, under the very name it has."""

    def one(path: str) -> None:
        if path_issue(path) is None:
            assert os.path.normpath(tmp_path / path) == str(tmp_path / path)
            assert path == spelled(path)
            assert "\\" not in path

    pieces = st.sampled_from([
        "triton", "inductor", "/", "//", ".", "..", "x", "\0", "\\", "\x1b", "\u202e", "\u0085",
        "~", "x" * 255, "\n", " ", "é", "\ud800", "C:",
    ])  # fmt: skip
    whole = st.lists(pieces | st.text(max_size=4), max_size=9).map("".join)
    try_all(tries, whole | whole.map(lambda path: f"triton/{path}"), one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_fingerprints(tries: int, tmp_path: Path) -> None:
    """A file that is said to be another machine's fingerprint is one, or refused in a sentence."""
    file = tmp_path / "environment.json"
    names = st.sampled_from([*COMPONENTS, "components", "schema", "\x1b[2J", "\ud800", "x" * 500])
    value: st.SearchStrategy[Any] = st.recursive(
        st.none() | st.integers() | st.floats() | st.sampled_from(TEXTS),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=9),
    )

    def one(said: Any) -> None:
        file.write_text(json.dumps(said))
        try:
            components, _ = resolve_environment(file)
        except UsageError as error:
            complaint = str(error)
        else:
            assert set(components) == set(COMPONENTS)
            return
        assert complaint == spelled(complaint)
        assert len(complaint) < 5_000

    whole = st.fixed_dictionaries(dict.fromkeys(COMPONENTS, st.sampled_from(TEXTS)))
    try_all(tries, value | whole | whole.map(lambda said: {"components": said}), one)
