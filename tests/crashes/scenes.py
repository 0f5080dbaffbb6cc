"""What is done while the disk or the process fails: each verb, from a beginning to its end."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cachesvc
from cachesvc.core.merge import merge
from cachesvc.core.temporary import MARK
from cachesvc.local.host import read_environment
from cachesvc.local.live import live_directory
from cachesvc.local.places import Places
from cachesvc.local.quarantine import read_quarantine, restore, set_aside
from cachesvc.repository.repository import Repository
from cachesvc.start import build
from cachesvc.start.attempt import Attempt
from cachesvc.start.sample import SampleSpec
from cachesvc.store.directory import DirectoryStore

NAME = "gpt"
KERNEL = "K" * 52
INDUCTOR = {
    "ab/cabcdef.py": "code",
    "fxgraph/xy/fkey/entry": "g" * 9000,
    "aotautograd/akey/entry": "autograd",
}
LAST = {"ab/clast.py": "last code"}
MORE = {"ab/cnew.py": "new code", "fxgraph/xy/fnew/entry": "new"}
_OBJECT = re.compile(
    r"tccache\.json|bundles/[a-z]+/(any|[0-9a-f]{64})/[0-9a-f]{64}/[0-9a-f]{64}\.(json|tar\.zst)"
)


class Scene:
    """The verbs on a store, a live directory and a temporary directory, all below `disk`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.store = self.disk / "store"
        self.goods = folder / "goods"
        os.environ["TCCACHE_HOME"] = str(self.disk / "home")
        os.environ["TMPDIR"] = str(self.disk / "tmp")
        self._make_goods("inductor", INDUCTOR)
        self._make_goods("more", MORE)
        self._make_goods("last", LAST)
        kernel = {"k.cubin": "binary" * 1000, "k.source": "text"}
        children = {name: str(self.goods / "triton" / KERNEL / name) for name in kernel}
        group = {"__grp__k.json": json.dumps({"child_paths": children})}
        self._make_goods("triton", {f"{KERNEL}/{n}": t for n, t in (kernel | group).items()})

    def prepare(self) -> None:
        """What is there before."""

    def act(self) -> None:
        """What is done."""
        raise NotImplementedError

    def later(self) -> None:
        """What other people do afterwards: another push, another pull."""
        cachesvc.push("other", store=self.store, inductor_dir=self.goods / "more")
        cachesvc.pull("other", store=self.store)

    def push(self) -> None:
        cachesvc.push(
            NAME,
            store=self.store,
            inductor_dir=self.goods / "inductor",
            triton_dir=self.goods / "triton",
        )

    @property
    def places(self) -> Places:
        return live_directory(read_environment().digest, os.environ).places

    def look(self) -> Iterator[str]:
        """What is not whole, of what a reader sees."""
        yield from self._look_into_the_store()
        for path, file in self._live_files():
            data = file.read_text()
            if file.name.startswith("__grp__"):
                listed = json.loads(data)["child_paths"].values()
                yield from (f"{path} lists {item}" for item in listed if not Path(item).is_file())
            elif data not in self.texts(path):
                yield f"{path} has {len(data)} bytes"

    def texts(self, path: str) -> set[str]:
        """What a file of the live directory may hold."""
        places = (self.goods / "inductor", self.goods / "more", self.goods / "triton")
        below = path.split("/", 1)[1]
        return {(place / below).read_text() for place in places if (place / below).exists()}

    def _look_into_the_store(self) -> Iterator[str]:
        if self.store.exists():
            yield from cachesvc.verify(store=self.store).problems

    def settled(self) -> dict[str, Any]:
        """What it has come to: the units in the store, and the files in the live directory."""
        found = {path: hashlib.sha256(f.read_bytes()).hexdigest() for path, f in self._live_files()}
        found["units"] = sorted(self._units())
        return found

    def _units(self) -> Iterator[str]:
        repository = Repository(DirectoryStore(self.store))
        for bundle in repository.bundles():
            segments = repository.read(bundle).segments
            units = merge(unit for segment in segments for unit in segment.units)
            for key, unit in units.items():
                yield f"{bundle.address.name} {key} {[e.sha256 for e in unit.entries]}"

    def _live_files(self) -> Iterator[tuple[str, Path]]:
        root = self.places.root
        for file in sorted(root.rglob("*")):
            path = file.relative_to(root)
            if file.is_file() and not any(part.startswith(".") for part in path.parts):
                yield str(path), file

    def grow_old(self) -> None:
        """Two hours pass for what a writer of the store has left."""
        for file in self.store.rglob(".tmp-*"):
            os.utime(file, (time.time() - 7200,) * 2)

    def left(self) -> list[str]:
        """Temporaries, and objects that no store holds."""
        paths = list(self.disk.rglob("*"))
        found = [str(path) for path in paths if MARK in path.name or path.name.startswith(".tmp")]
        found += [str(path) for path in (self.disk / "tmp").iterdir()]
        found += [str(p) for p in self.store.rglob("*") if p.is_file() and not self._is_object(p)]
        return list(dict.fromkeys(found))

    def _is_object(self, path: Path) -> bool:
        return _OBJECT.fullmatch(str(path.relative_to(self.store))) is not None

    def _make_goods(self, name: str, files: dict[str, str]) -> None:
        for path, text in files.items():
            file = self.goods / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


class Push(Scene):
    """The first push to a store."""

    act = Scene.push


class PushMore(Scene):
    """A push that merges what is there."""

    prepare = Scene.push

    def act(self) -> None:
        cachesvc.push(NAME, store=self.store, inductor_dir=self.goods / "more")


class Pull(Scene):
    """A pull into an empty live directory."""

    prepare = Scene.push

    def act(self) -> None:
        cachesvc.pull(NAME, store=self.store)


class Start(Pull):
    """What a warm start does before the first call. Never raises, whatever fails."""

    def act(self) -> None:
        attempt = Attempt(NAME)
        try:
            attempt.prepare(self.store, None)
        except Exception as error:
            raise AssertionError from error
        if any("internal error" in note for note in attempt.notes):
            raise AssertionError(attempt.notes)


class PullMore(Pull):
    """A pull of what is missing, where a file is damaged and Triton's directory has moved."""

    def prepare(self) -> None:
        self.push()
        cachesvc.pull(NAME, store=self.store)
        cachesvc.push(NAME, store=self.store, inductor_dir=self.goods / "more")
        live = self.places.root
        (live / "inductor/ab/cabcdef.py").write_text("")
        group = live / "triton" / KERNEL / "__grp__k.json"
        group.write_text(group.read_text().replace(str(live), "/elsewhere"))

    def look(self) -> Iterator[str]:
        return (issue for issue in super().look() if "lists /elsewhere" not in issue)

    def texts(self, path: str) -> set[str]:
        return super().texts(path) | ({""} if path.endswith("cabcdef.py") else set())


class SetAside(Pull):
    """Units that failed are moved away."""

    def prepare(self) -> None:
        self.push()
        cachesvc.pull(NAME, store=self.store)

    def act(self) -> None:
        units = {f"triton/{KERNEL}": "failed", "inductor/fxgraph/xy/fkey": "failed"}
        set_aside(self.places, units, at="2026-01-01T00:00:00.000000Z")


class Restore(SetAside):
    """Units that were not at fault are put back."""

    def prepare(self) -> None:
        super().prepare()
        SetAside.act(self)

    def act(self) -> None:
        restore(self.places, [f"triton/{KERNEL}", "inductor/fxgraph/xy/fkey"])

    def settled(self) -> dict[str, Any]:
        return {**super().settled(), "aside": read_quarantine(self.places.records)}


class Remove(PushMore):
    """A bundle is deleted."""

    def prepare(self) -> None:
        self.push()
        PushMore.act(self)

    def act(self) -> None:
        try:
            cachesvc.remove(NAME, store=self.store)
        except cachesvc.BundleNotFound:
            return


class Run(Scene):
    """A program that compiles, and what it adds is published."""

    prepare = Scene.push

    def act(self) -> None:
        compiles = f'cd "$TORCHINDUCTOR_CACHE_DIR" || exit 7; cp -rn {self.goods}/more/* .'
        reads = f"cat {' '.join(MORE)} > {self.folder}/read"
        command = ["sh", "-c", f"{compiles}; {reads}; exit 7"]
        ran = cachesvc.run(NAME, command, store=self.store)
        if ran.exit_code != 7:
            raise AssertionError(ran)


class Build(Scene):
    """A build, with processes that compile nothing: it has checked all, and publishes."""

    def act(self) -> None:
        build.run_sample = self._sample
        cachesvc.build("module:function", store=self.store, label=NAME, tier="directories")

    def _sample(self, spec: SampleSpec, home: Path, **_: Any) -> dict[str, Any]:
        if spec.arm == "cold":
            subprocess.run(["cp", "-r", self.goods / "inductor", home], check=False)
        verdict = "warm" if spec.arm == "warm" else "cold"
        call = {
            "signature": "f32[2]",
            "seconds": 1.0,
            "apart": 0.0,
            "random": [],
            "differences": [],
        }
        return {
            "name": NAME,
            "model": {"class": "Model"},
            "context": {},
            "calls": [{**call, "differences": ()}],
            "records": [],
            "report": {"verdict": verdict, "first_call_s": 1.0, "counts": {}},
            "summary": verdict,
            "first_call_s": 1.0,
        }


class Collect(Scene):
    """A janitor deletes what is superseded and what is left of a push, and merges two segments."""

    def prepare(self) -> None:
        self.push()
        PushMore.act(self)
        other = self.folder / "other"
        cachesvc.push(NAME, store=other, inductor_dir=self.goods / "last")
        shutil.copytree(other, self.store, dirs_exist_ok=True)
        manifests = sorted(self.store.glob("bundles/*/*/*/*.json"), key=os.path.getsize)
        orphan = manifests[0].with_name(f"{'0' * 64}.tar.zst")
        orphan.write_bytes(b"of a push that was killed")
        for file in self.store.rglob("*"):
            os.utime(file, (time.time() - 14 * 86400,) * 2)

    def act(self) -> None:
        done = cachesvc.collect(store=self.store, merge=True)
        if done.failure is not None:
            raise done.failure

    def settled(self) -> dict[str, Any]:
        gone = [path.name for path in self.store.rglob(f"{'0' * 64}.*")]
        return {**super().settled(), "orphans": gone}


class Discard(Pull):
    """Live directories that nobody uses are removed."""

    def prepare(self) -> None:
        self.push()
        cachesvc.pull(NAME, store=self.store)

    def act(self) -> None:
        done = cachesvc.collect_live(keep_bytes=0)
        if not done.ok:
            raise cachesvc.TccacheError(str(done))

    def look(self) -> Iterator[str]:
        """Nobody looks into a directory that is being deleted under another name."""
        yield from self._look_into_the_store()

    def left(self) -> list[str]:
        gone = (self.disk / "home" / "live").glob(".*")
        return [*super().left(), *map(str, gone)]

    def later(self) -> None:
        super().later()
        self.act()


class Key(Scene):
    """A key is made, where the one who was killed may have left both halves, one, or none."""

    def prepare(self) -> None:
        (self.disk / "keys").mkdir()

    def act(self) -> None:
        try:
            cachesvc.make_key(self.disk / "keys" / "release.key")
        except cachesvc.UsageError as error:
            if "exists" not in str(error):
                raise

    def look(self) -> Iterator[str]:
        for file in self.disk.glob("keys/release.*"):
            try:
                cachesvc.read_key(file)
            except cachesvc.TccacheError as error:
                yield str(error)

    def settled(self) -> dict[str, Any]:
        return {"private": (self.disk / "keys" / "release.key").exists()}

    def later(self) -> None:
        cachesvc.make_key(self.disk / "keys" / "another.key")


# Whatever the verbs import comes now, and not in each run again.
for verb in ("push", "pull", "run", "inspect", "verify", "collect", "collect_live", "keys"):
    importlib.import_module(f"cachesvc.start.{verb}")
for name in ("start.transfer", "repository.pack", "repository.signing"):
    importlib.import_module(f"cachesvc.{name}")
importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")

SCENES: dict[str, Callable[[Path], Scene]] = {
    "push": Push,
    "push-more": PushMore,
    "pull": Pull,
    "pull-more": PullMore,
    "start": Start,
    "set-aside": SetAside,
    "restore": Restore,
    "remove": Remove,
    "run": Run,
    "build": Build,
    "collect": Collect,
    "discard": Discard,
    "key": Key,
}
