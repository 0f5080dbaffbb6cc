"""What goes wrong is one sentence on stderr, nothing on stdout, and the exit code of its kind."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cachesvc

Command = Callable[..., Any]

LINES: dict[str, tuple[list[str], int, str]] = {
    "no such verb": (["pul"], 2, "pul"),
    "no such flag": (["pull", "m", "--frob"], 2, "--frob.*tccache pull --help"),
    "no model": (["push"], 2, "MODEL.*tccache push --help"),
    "too many models": (["pull", "a", "b"], 2, "unexpected extra argument"),
    "a flag without its value": (["pull", "m", "--store"], 2, "--store"),
    "no store": (["ls"], 2, "TCCACHE_STORE"),
    "an empty store": (["ls", "--store", ""], 2, "--store.*empty"),
    "a blank store": (["ls", "--store", " "], 2, "no store is named"),
    "an empty model": (["ls", "--store", "store", ""], 2, "MODEL.*empty"),
    "an empty label": (["pull", "m", "--label", ""], 2, "--label.*empty"),
    "an empty directory name": (["push", "m", "--inductor-dir", ""], 2, "--inductor-dir.*empty"),
    "an empty tag": (["push", "m", "--tag", ""], 2, "--tag.*empty"),
    "a store that is a file": (["ls", "--store", "file"], 2, "is a file"),
    "a scheme nobody knows": (["ls", "--store", "foo://x"], 2, "foo://"),
    "almost a URL": (["ls", "--store", "s3:/b"], 2, "two slashes"),
    "a bucket without a name": (["ls", "--store", "s3://"], 2, "s3://BUCKET/PREFIX"),
    "no word of trust": (["ls", "--store", "s3://bucket"], 4, "--trust store"),
    "another word of trust": (["ls", "--store", "store", "--trust", "me"], 2, "me: No such"),
    "another format": (["ls", "--store", "format-2"], 4, "format 2"),
    "a damaged format": (["ls", "--store", "format-x"], 4, "tccache.json.*is not JSON"),
    "a name with a space": (["show", "a b", "--store", "store"], 2, "'a b' is not a bundle name"),
    "a hidden name": (["push", ".m", "--store", "s", "--mega", "mega.bin"], 2, "'.m'"),
    "nothing of that name": (["show", "nope", "--store", "store"], 3, "no bundle nope"),
    "nothing to verify": (["verify", "nope", "--store", "store"], 3, "no bundle nope"),
    "nothing to remove": (["rm", "nope", "--yes", "--store", "store"], 3, "no bundle nope"),
    "an empty directory": (
        ["push", "m", "--store", "store", "--inductor-dir", "empty"],
        1,
        "nothing to publish under m/any/",
    ),
    "an empty live directory": (["push", "m", "--store", "store"], 1, "nothing to publish"),
    "a directory that is not there": (
        ["push", "m", "--store", "store", "--triton-dir", "nope"],
        2,
        "nope is not a directory",
    ),
    "a directory that is a file": (
        ["push", "m", "--store", "store", "--inductor-dir", "file"],
        2,
        "'file' is a file",
    ),
    "a pull into a file": (
        ["pull", "m", "--store", "store", "--inductor-dir", "file"],
        2,
        "'file' is a file",
    ),
    "a pull below a file": (
        ["pull", "m", "--store", "store", "--inductor-dir", "file/x"],
        1,
        "file/x.*Not a directory",
    ),
    "a mega-cache that is a directory": (
        ["push", "m", "--store", "store", "--mega", "empty"],
        2,
        "'empty' is a directory",
    ),
    "a mega-cache that is not there": (
        ["push", "m", "--store", "store", "--mega", "nope"],
        2,
        "nope: No such file",
    ),
    "a mega-cache of garbage": (
        ["push", "m", "--store", "store", "--mega", "file"],
        4,
        "is not a mega-cache file",
    ),
    "a mega-cache cut short": (
        ["push", "m", "--store", "store", "--mega", "half.bin"],
        4,
        "half.bin is not a mega-cache file, or not a whole one",
    ),
    "an extra without a name": (["push", "m", "--extra", "=dir"], 2, "NAME=DIR"),
    "an extra without a directory": (["push", "m", "--extra", "name"], 2, "NAME=DIR"),
    "an extra twice": (["push", "m", "--extra", "a=x", "--extra", "a=y"], 2, "'a' is given twice"),
    "an extra with a path for its name": (
        ["push", "m", "--store", "store", "--extra", "a/b=empty"],
        2,
        "'a/b' cannot name an extra section",
    ),
    "an environment that is not there": (
        ["lookup", "m", "--store", "store", "--environment", "nope.json"],
        2,
        "nope.json: No such file",
    ),
    "an environment that is not JSON": (
        ["lookup", "m", "--store", "store", "--environment", "file"],
        2,
        "file is not JSON.*tccache env --json",
    ),
    "an environment that is something else": (
        ["lookup", "m", "--store", "store", "--environment", "format-2/tccache.json"],
        2,
        "torch is missing",
    ),
    "an environment nobody has": (
        ["lookup", "m", "--store", "store", "--environment", "abcd"],
        2,
        "'abcd'.*tccache ls",
    ),
    "no samples": (["demo", "--runs", "0"], 2, "--runs"),
    "a demo through a store that is a file": (["demo", "--store", "file"], 2, "is a file"),
    "no shell": (["completion"], 2, "SHELL.*bash"),
    "an unknown shell": (["completion", "tcsh"], 2, "tcsh"),
    "a flag's variable that is no yes or no": (["ls"], 2, "--json.*maybe"),
}


@pytest.fixture
def places(store: Path, mega: Path, tmp_path: Path) -> None:
    """What the command lines above name."""
    for name, mark in (("format-2", '{"format": 2}'), ("format-x", "garbage")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tccache.json").write_text(mark)
    (tmp_path / "file").write_text("not what you think")
    (tmp_path / "half.bin").write_bytes(mega.read_bytes()[:-5])
    (tmp_path / "empty").mkdir()


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("case", LINES)
def test_one_sentence_and_a_code(tccache: Command, case: str) -> None:
    """It names the thing, and says what to do or where to read on; nothing is half done."""
    line, code, words = LINES[case]
    variables = {"TCCACHE_JSON": "maybe"} if "variable" in case else {}
    ran = tccache(*line, **variables)
    assert ran.code == code, ran.err
    assert ran.is_one_error, ran.err
    assert re.search(words, ran.err), ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (cachesvc.TccacheError("said"), 1),
        (cachesvc.UsageError("said"), 2),
        (cachesvc.BundleNotFound("said"), 3),
        (cachesvc.IntegrityError("said"), 4),
        (cachesvc.UntrustedError("said"), 4),
        (cachesvc.StoreError("said"), 5),
        (cachesvc.AccessDenied("said"), 6),
        (cachesvc.BusyError("said"), 7),
    ],
)
def test_each_class_has_its_code(
    tccache: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    """Scripts tell by the code whether to retry, to renew credentials, or to call somebody."""
    monkeypatch.setattr(cachesvc, "pull", _raising(error), raising=False)
    ran = tccache("pull", "m")
    assert (ran.code, ran.out, ran.err) == (code, "", "error: said\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/tmp/x"), "No space left on device (/tmp/x)"),
        (OSError("odd"), "odd"),
        (ValueError("two\nlines"), "unexpected ValueError: two"),
        (RecursionError(), "unexpected RecursionError"),
    ],
)
def test_what_nobody_foresaw(
    tccache: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """Exit 1 and the words of the error; the traceback only for who asks by TCCACHE_DEBUG."""
    monkeypatch.setattr(cachesvc, "pull", _raising(error), raising=False)
    ran = tccache("pull", "m")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {words}")
    assert ran.err.endswith("\n")
    assert "TCCACHE_DEBUG=1" in ran.err
    assert "Traceback" not in ran.err
    asked = tccache("pull", "m", TCCACHE_DEBUG="1")
    assert asked.err.startswith("Traceback (most recent call last):")
    assert asked.err.endswith(ran.err)


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_an_unreachable_store(tccache: Command, closed_port: int) -> None:
    """Exit 5: the wire is wrong, and the endpoint is named."""
    url = f"s3://bucket/p?endpoint=http://127.0.0.1:{closed_port}"
    ran = tccache("pull", "m", "--store", url, "--trust", "store", AWS_MAX_ATTEMPTS="1")
    assert ran.code == 5
    assert ran.is_one_error
    assert str(closed_port) in ran.err


def test_no_credentials(
    tccache: Command, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 6, and where credentials may come from."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    url = f"s3://bucket/p?endpoint=http://127.0.0.1:{closed_port}"
    ran = tccache("ls", "--store", url, "--trust", "store")
    assert ran.code == 6
    assert ran.is_one_error
    assert "AWS_PROFILE" in ran.err


@pytest.fixture
def closed_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_a_store_that_others_can_write(tccache: Command, store: Path) -> None:
    """Exit 4 until somebody says that they are trusted."""
    store.chmod(0o777)
    refused = tccache("pull", "m", "--store", store)
    assert refused.code == 4
    assert refused.is_one_error
    assert tccache("pull", "m", "--store", store, TCCACHE_TRUST="store").code == 0


# Root writes through everything: a child gives up these two rights, and is then as anybody.
NO_PRIVILEGE = """
import ctypes, os, sys
for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, right)
os.execv(sys.executable, [sys.executable, "-m", "tccache", *sys.argv[1:]])
"""

DENIED = {
    "a store that cannot be written": (
        ["push", "m", "--store", "locked/store", "--inductor-dir", "tree"],
        "locked/store",
    ),
    "a store whose bundles cannot be deleted": (["rm", "m", "--store", "store", "--yes"], "delete"),
    "a directory to pull into": (["pull", "m", "--store", "store", "--mega", "locked/m"], "locked"),
    "a directory to push": (["push", "n", "--store", "s", "--triton-dir", "secret"], "secret"),
    "a mega-cache to push": (["push", "n", "--store", "s", "--mega", "secret/m"], "secret/m"),
    "a fingerprint": (["lookup", "m", "--store", "store", "--environment", "secret/e"], "secret/e"),
}


@pytest.fixture
def locked(store: Path, mega: Path, tccache: Command) -> None:
    """Places that allow nothing or only to look."""
    tccache("push", "m", "--store", store, "--mega", mega)
    Path("locked").mkdir(mode=0o555)
    Path("secret").mkdir(mode=0o000)
    for folder in store.glob("bundles/m/any/*"):
        folder.chmod(0o555)


@pytest.mark.usefixtures("locked")
@pytest.mark.parametrize("case", DENIED)
def test_permission_denied(child: Command, case: str) -> None:
    """One sentence that names the place, and no traceback; nothing is half-written."""
    line, words = DENIED[case]
    ran = child(*line, first=NO_PRIVILEGE)
    assert ran.code in {1, 2, 6}, ran.err
    assert ran.is_one_error, ran.err
    assert words in ran.err
    assert not os.listdir("locked")
