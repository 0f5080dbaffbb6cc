"""`tccache run` around programs that know nothing of it: streams, ends, caches, and trouble."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .silent_s3 import Bucket

Command = Callable[..., Any]
Start = Callable[..., Any]

ADD = 'mkdir -p "$TORCHINDUCTOR_CACHE_DIR/ab"; echo kernel > "$TORCHINDUCTOR_CACHE_DIR/ab/cnew.py"'
USE = 'cat "$TORCHINDUCTOR_CACHE_DIR"/ab/*.py'
TOLD = "tccache run: m: "


def until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    """What a condition gives once it is true; fails after that time."""
    end = time.monotonic() + seconds
    waiting = threading.Event()
    while not (found := holds()):
        assert time.monotonic() < end, "it never came"
        waiting.wait(0.02)
    return found


def objects(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


def told(ran: Any) -> Any:
    """The JSON object, which is the last line on stderr."""
    return json.loads(ran.err.splitlines()[-1])


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_code_is_the_programs(tccache: Command, script: str, code: int) -> None:
    """128 and the number of the signal if it died of one, as a shell tells it."""
    ran = tccache("run", "m", "--store", "s", "--", "sh", "-c", script)
    assert (ran.code, ran.out, ran.err) == (code, "", f"{TOLD}nothing brought, 0 added\n")
    assert not Path("s").exists()


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [("no-such-program", 127, "command not found"), ("./plain", 126, "no program"), (".", 126, "")],
)
def test_a_program_that_cannot_be_run(tccache: Command, program: str, code: int, said: str) -> None:
    """A shell's exit codes, and one sentence; nothing was pulled for it."""
    Path("plain").write_text("exit 0")
    ran = tccache("run", "m", "--store", "s", "--", program)
    assert ran.code == code
    assert ran.is_one_error
    assert said in ran.err
    assert not Path("home").exists()


def test_a_file_that_the_kernel_refuses(tccache: Command) -> None:
    """An executable file of no known format is 126 too, as for `env`."""
    Path("odd").write_bytes(b"\x00\x01")
    Path("odd").chmod(0o755)
    ran = tccache("run", "m", "--store", "s", "--", "./odd")
    assert (ran.code, "Exec format error" in ran.err) == (126, True)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["m", "--store", "s"], 2),
        (["m", "--", "touch", "ran"], 2),
        (["no/name", "--store", "s", "--", "touch", "ran"], 2),
        (["0" * 64, "--store", "s", "--", "touch", "ran"], 2),
        (["m", "--store", "s3:/almost", "--", "touch", "ran"], 2),
        (["m", "--store", "s", "--deadline", "-1", "--", "touch", "ran"], 2),
        (["m", "--store", "s", "--no-such-flag", "--", "touch", "ran"], 2),
        (["m", "--store", "s3://bucket/p", "--", "touch", "ran"], 4),
    ],
)
def test_wrong_usage_is_an_error_before_the_program(
    tccache: Command, line: list[str], code: int
) -> None:
    """What its user must mend is told at once, and nothing was started."""
    ran = tccache("run", *line)
    assert ran.code == code
    assert ran.is_one_error
    assert not Path("ran").exists()


def test_everything_after_the_dashes_is_the_programs(child: Command) -> None:
    """Its flags too, though they read as flags of this command, and further dashes."""
    given = ("--store", "x", "--", "--help", "-q")
    ran = child("run", "m", "--store", "s", "--", "echo", *given)
    assert (ran.code, ran.out) == (0, " ".join(given) + "\n")


def test_streams_are_the_programs(child: Command) -> None:
    """Two megabytes go through stdin and stdout unchanged; stderr ends with what happened."""
    text = "x" * 99 + "\n"
    Path("input").write_text(text * 20_000)
    with open("input") as given:
        line = ("run", "m", "--store", "s", "--", "sh", "-c", "cat; echo mine >&2")
        ran = child(*line, stdin=given)
    assert ran.out == text * 20_000
    assert ran.err == f"mine\n{TOLD}nothing brought, 0 added\n"


def test_what_is_added_comes_back_elsewhere(tccache: Command) -> None:
    """Published here; in place, used and nothing to add there. Nothing is written twice."""
    line = ("run", "m", "--store", "s", "--", "sh", "-c")
    first = tccache(*line, ADD)
    assert first.err.startswith(f"{TOLD}nothing brought, 1 added; published 1 unit in segment ")
    before = objects(Path("s"))
    for home in ("home", "elsewhere"):
        again = tccache(*line, USE, TCCACHE_HOME=str(Path(home).absolute()))
        assert again.err == f"{TOLD}1 unit in place, 1 used, 0 added; nothing was missing\n"
    unused = tccache(*line, "exit 0")
    assert unused.err == f"{TOLD}1 unit in place, 0 used, 0 added\n"
    inert = tccache(*line, ADD.replace("cnew", "cother"))
    assert inert.err.startswith(f"{TOLD}1 unit in place, 0 used, 1 added; inert: nothing of it was")
    assert objects(Path("s")) >= before
    assert len(objects(Path("s"))) == len(before) + 2


def test_the_report_as_json(tccache: Command) -> None:
    """One object, the same in the file and on stderr; its fields are only added."""
    line = ("run", "m", "--store", "s", "--report", "r.json", "--json", "--", "sh", "-c")
    ran = tccache(*line, f"{ADD}; exit 3")
    object_ = told(ran)
    assert json.loads(Path("r.json").read_text()) == object_
    assert ran.out == ""
    assert object_["schema"] == "tccache.run/1"
    assert object_.keys() >= {
        *("name", "exit_code", "signal", "seconds", "live", "bundles", "packs", "bytes", "seeded"),
        *("kept", "left_out", "set_aside", "pull_s", "seed_s", "in_place", "used", "own"),
        *("own_used", "added", "inert", "published", "notes"),
    }
    assert (object_["exit_code"], object_["signal"], object_["added"]) == (3, None, 1)
    assert [item["added"] for item in object_["published"]] == [1]
    killed = told(tccache(*line, "kill -9 $$"))
    assert (killed["exit_code"], killed["signal"], killed["in_place"]) == (137, 9, 1)


def test_a_report_that_cannot_be_written(tccache: Command) -> None:
    """Is a warning: the exit code stays the program's."""
    ran = tccache("run", "m", "--store", "s", "--report", "no/r", "--", "sh", "-c", "exit 3")
    assert (ran.code, ran.err.startswith("tccache run: warning: cannot write no/r")) == (3, True)


def test_quiet_says_nothing(tccache: Command) -> None:
    """Where all goes well."""
    ran = tccache("run", "m", "--store", "s", "-q", "--", "sh", "-c", ADD)
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_no_publish_writes_nothing(tccache: Command) -> None:
    """What was added is told all the same, and stays on this machine, to be used and published."""
    line = ("run", "m", "--store", "s")
    ran = tccache(*line, "--no-publish", "--", "sh", "-c", ADD)
    assert ran.err == f"{TOLD}nothing brought, 1 added\n"
    assert not Path("s").exists()
    later = tccache(*line, "--", "sh", "-c", USE)
    assert f"{TOLD}nothing brought, 1 of this machine's own, 1 used, 0 added" in later.err
    assert "; published 1 unit in segment " in later.err


def test_what_another_program_left_is_not_published(tccache: Command) -> None:
    """Only what this one used or added: the live directory is shared by all models."""
    tccache("run", "other", "--store", "s", "--no-publish", "--", "sh", "-c", ADD)
    ran = tccache("run", "m", "--store", "s", "--", "true")
    assert ran.err == f"{TOLD}nothing brought, 1 of this machine's own, 0 used, 0 added\n"
    assert not Path("s").exists()


def test_disabled_is_just_the_program(tccache: Command) -> None:
    """No store is needed and nothing is made; the exit code is the program's."""
    script = '[ -z "$TORCHINDUCTOR_CACHE_DIR" ] && exit 9'
    ran = tccache("run", "m", "--", "sh", "-c", script, TCCACHE_DISABLE="1")
    assert ran.code == 9
    assert ran.err == "tccache run: warning: TCCACHE_DISABLE is set: nothing was done\n"
    assert not Path("home").exists()


def test_directories_of_the_user_are_used(tccache: Command) -> None:
    """The variables lead the program to the live directory in effect, the user's own if set."""
    script = 'echo "$TORCHINDUCTOR_CACHE_DIR $TRITON_CACHE_DIR" > said'
    line = ("run", "m", "--store", "s", "--", "sh", "-c", script)
    tccache(*line)
    (live,) = Path("home/live").absolute().iterdir()
    assert Path("said").read_text() == f"{live}/inductor {live}/triton\n"
    tccache(*line, TORCHINDUCTOR_CACHE_DIR="/tmp/mine", TRITON_CACHE_DIR="/tmp/ours")
    assert Path("said").read_text() == "/tmp/mine /tmp/ours\n"


def test_a_cache_that_is_switched_off_is_named(tccache: Command) -> None:
    """The reason why nothing will be used, before the program starts; the variable stays."""
    script = 'exit "$TORCHINDUCTOR_FX_GRAPH_CACHE"5'
    line = ("run", "m", "--store", "s", "--", "sh", "-c", script)
    ran = tccache(*line, TORCHINDUCTOR_FX_GRAPH_CACHE="0")
    assert ran.code == 5
    assert "warning: TORCHINDUCTOR_FX_GRAPH_CACHE=0 is set" in ran.err


def test_a_key_file_that_is_not_there_yet(child: Command, tmp_path: Path) -> None:
    """A secret that is not mounted is no reason not to serve; nothing is brought, and told."""
    line = ("run", "m", "--store", str(tmp_path / "store"), "--trust", str(tmp_path / "no.pub"))
    ran = child(*line, "--", "sh", "-c", "exit 3")
    assert ran.code == 3
    assert "no.pub: No such file" in ran.err


def _closed_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"s3://bucket/p?endpoint=http://127.0.0.1:{found.getsockname()[1]}"


def test_a_store_that_cannot_be_reached(tccache: Command) -> None:
    """A warning each for what failed, and the program runs with its own caches."""
    line = ("run", "m", "--store", _closed_port(), "--trust", "store", "--", "sh", "-c")
    ran = tccache(*line, f"{ADD}; exit 4")
    assert ran.code == 4
    first, second, last = ran.err.splitlines()
    assert first.startswith("tccache run: warning: ")
    assert second.startswith("tccache run: warning: nothing was published: ")
    assert last == f"{TOLD}nothing brought, 1 added"


def test_a_store_that_may_only_be_read(tccache: Command) -> None:
    """Nothing is published, and that is a warning."""
    with Bucket(denied=True) as bucket:
        line = ("run", "m", "--store", bucket.url, "--trust", "store", "--", "sh", "-c")
        ran = tccache(*line, f"{ADD}; exit 4")
    assert ran.code == 4
    warning, last = ran.err.splitlines()
    assert warning.startswith("tccache run: warning: nothing was published: ")
    assert last == f"{TOLD}nothing brought, 1 added"


def test_a_store_that_goes_away_meanwhile(tccache: Command) -> None:
    """The end is the program's."""
    line = ("run", "m", "--store", "s", "--", "sh", "-c")
    tccache(*line, ADD)
    ran = tccache(*line, "rm -rf s; exit 6")
    assert (ran.code, ran.err) == (6, f"{TOLD}1 unit in place, 0 used, 0 added\n")


def test_a_damaged_bundle(tccache: Command) -> None:
    """Is named and not used; the program runs."""
    line = ("run", "m", "--store", "s", "--", "sh", "-c")
    tccache(*line, ADD)
    (pack,) = Path("s").rglob("*.tar.zst")
    pack.write_bytes(b"garbage")
    ran = tccache(*line, "exit 6", TCCACHE_HOME=str(Path("elsewhere").absolute()))
    assert ran.code == 6
    assert "does not have the size and digest" in ran.err


def test_no_place_for_a_live_directory(tccache: Command) -> None:
    """The program runs as if this command were not there."""
    Path("file").touch()
    ran = tccache(
        *("run", "m", "--store", "s", "--", "sh", "-c", "exit 6"),
        TORCHINDUCTOR_CACHE_DIR=str(Path("file/cache").absolute()),
    )
    assert ran.code == 6
    assert "warning: " in ran.err


def test_a_store_that_never_answers(child: Command) -> None:
    """The program starts when the deadline is over, and the end waits no longer than told.

    In a process of its own: the publication that is left behind must not go on beside other tests.
    """
    with Bucket("GET") as bucket:
        ran = child(
            *("run", "m", "--store", bucket.url, "--trust", "store", "--deadline", "0.2"),
            *("--patience", "0.2", "--", "sh", "-c", f"{ADD}; exit 8"),
        )
    assert ran.code == 8
    deadline, patience, last = ran.err.splitlines()
    assert "deadline of 0.2 s passed" in deadline
    assert "the publication was not finished" in patience
    assert last == f"{TOLD}nothing brought, 1 added"


def test_published_while_it_runs(start: Start) -> None:
    """A server that is killed in the end has published long before."""
    line = ("run", "m", "--store", "s", "--settle", "0.1", "--", "sh", "-c")
    with start(*line, f"{ADD}; echo $$; read line", stdin=subprocess.PIPE) as process:
        server = int(process.stdout.readline())
        until(lambda: [*Path("s").rglob("bundles/**/*.json")])
        os.kill(server, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 137
    assert "1 added; published 1 unit in segment " in err
    assert len([*Path("s").rglob("*.tar.zst")]) == 1


def test_no_torch_is_imported(child: Command) -> None:
    """It starts in a blink: nothing that takes seconds to import is."""
    first = (
        "import atexit, sys\natexit.register(lambda: print("
        "[n for n in ('torch', 'triton', 'boto3') if n in sys.modules]))"
    )
    assert child("run", "m", "--store", "s", "--", "true", first=first).out == "[]\n"
