"""A captured function as files, and back.

function.json    what is told in words: the key of the call, names, metadata, libraries
code.bin         Dynamo's code, Inductor's, the ledger's, and that of a backward pass, marshalled:
                 equal Python, equal torch
constants.pt     tensors that the graph holds, if there are any
NAME.so, .cubin  native kernels

A name that begins with `backward_` is of the backward pass.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from cachesvc.core.digest import Json, digest_bytes, digest_json
from cachesvc.core.errors import IntegrityError
from cachesvc.runtime.aot import ledger
from cachesvc.runtime.aot.backward import write_backward
from cachesvc.runtime.aot.call_key import Key, from_json, to_json
from cachesvc.runtime.aot.capture import Captured, NotCaptured
from cachesvc.runtime.aot.codes import dump, load

FORMAT = 3
RECORD, CODE, CONSTANTS = "function.json", "code.bin", "constants.pt"


@dataclass(frozen=True, slots=True)
class Stored:
    """A function as it lies on disk, read and not loaded yet.

    `place` is its folder's name below the section: the kind of what it was captured of, and its
    own key.
    """

    folder: Path
    kind: str
    call: Key
    state: Key
    facts: Mapping[str, Any]

    @property
    def unit(self) -> str:
        """The key of the unit."""
        return unit_of(self.folder)


def unit_of(folder: Path) -> str:
    """The key of the unit whose files lie in a folder."""
    return f"aot/{folder.parent.name}/{folder.name}"


def write(
    captured: Captured,
    root: Path,
    *,
    group: str,
    part: str,
    kind: str,
    call: Key,
    state: Key,
    pins: Json,
) -> Path:
    """Writes a function below the directory of its section; its folder.

    `group` is the first part of the place, as the model's digest; `part` names the model among
    several, `kind` tells which module of the model it replaces; `pins` are what must be equal when
    it is loaded. Raises NotCaptured, and writes nothing, for code that cannot be kept.
    """
    code = _dumped(captured)
    identity: Json = [part, kind, to_json(call), to_json(state), pins]
    folder = root / group / digest_json(identity)[:32]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    libraries = {file.name: file for file in captured.libraries.values()}
    for name, file in libraries.items():
        shutil.copyfile(file, folder / name)
    for name, launch in captured.launches.items():
        shutil.copyfile(launch.cubin, folder / f"{name}.cubin")
    if captured.constants:
        torch.save(dict(captured.constants), folder / CONSTANTS)
    (folder / CODE).write_bytes(code)
    facts: dict[str, Json] = {
        "format": FORMAT,
        "part": part,
        "kind": kind,
        "call": to_json(call),
        "state": to_json(state),
        "pins": pins,
        "graph": captured.graph,
        "names": {name: list(recipe) for name, recipe in captured.names.items()},
        "libraries": {name: file.name for name, file in captured.libraries.items()},
        "launches": {name: launch.to_json() for name, launch in captured.launches.items()},
        "externs": dict(captured.externs),
        "constants": bool(captured.constants),
        "inputs": to_json(captured.inputs),
        "mutated": list(captured.mutated),
        "aligned": list(captured.aligned),
        "returned": [list(output) for output in captured.returned],
        "amp": captured.amp,
        "backward": write_backward(captured.backward, folder),
        "ledger": ledger.to_json(captured.ledger),
        "files": {file.name: digest_bytes(file.read_bytes()) for file in folder.iterdir()},
    }
    (folder / RECORD).write_text(json.dumps(facts, sort_keys=True))
    return folder


def _dumped(captured: Captured) -> bytes:
    backward = () if captured.backward is None else (captured.backward.module,)
    try:
        return dump((captured.code, captured.module, captured.ledger.code, *backward))
    except ValueError as error:
        raise NotCaptured(str(error)) from error


def read(folder: Path) -> Stored:
    """Reads what `write` has told in words. Raises IntegrityError for anything else."""
    try:
        facts = json.loads((folder / RECORD).read_bytes())
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']} is not {FORMAT}")
        if not isinstance(facts["part"], str):
            raise TypeError("its part is no text")
        if not isinstance(facts["files"], dict) or not isinstance(facts["pins"], dict):
            raise TypeError("its files or pins are no object")
        call, state = from_json(facts["call"]), from_json(facts["state"])
        return Stored(folder, str(facts["kind"]), call, state, facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"{folder / RECORD} is no function: {error}") from error


def read_code(stored: Stored) -> tuple[CodeType, ...]:
    """Dynamo's code, Inductor's, the ledger's, and that of a backward pass, if there is one.

    Raises IntegrityError if they are not there.
    """
    try:
        return load(read_file(stored, CODE))
    except ValueError as error:
        raise IntegrityError(f"{stored.folder / CODE} cannot be read: {error}") from error


def read_file(stored: Stored, name: str) -> bytes:
    """The bytes of a file, as they were written. Raises IntegrityError for others: a library that
    was cut short would end the process, and code that was changed might; and for a name that leads
    out of the function's own folder."""
    if "/" in name or name not in stored.facts["files"]:
        raise IntegrityError(f"{stored.folder / RECORD} tells of no file of its own: {name!r:.120}")
    file = stored.folder / name
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{file} cannot be read: {error}") from error
    if digest_bytes(data) != stored.facts["files"][name]:
        raise IntegrityError(f"{file} is not what was written")
    return data
