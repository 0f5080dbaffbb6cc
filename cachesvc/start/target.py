"""What a caller means by MODEL and ENVIRONMENT: the address, with its components."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachesvc.core.address import ANY_MODEL, Address, check_name, name_from
from cachesvc.core.components import Components
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UsageError
from cachesvc.local.fingerprint import TorchNotFound
from cachesvc.local.host import environment_from, read_environment

EnvironmentLike = Mapping[str, str] | str | os.PathLike[str]

SALT = "TCCACHE_SALT"


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what its digests were made of; `foreign` if it is not this machine's.

    `readings` are what the digests of models were made of, by the models' names.
    """

    address: Address
    environment: Components
    model: Components
    foreign: bool = False
    readings: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def target(
    model: Any,
    *,
    label: str | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
) -> Target:
    """The target that a name (text) or a model (anything else) means.

    A name alone stands for directories under it, whatever the model. `environment` is the
    components of another machine's fingerprint, or a JSON file that holds them.
    """
    components, foreign = resolve_environment(environment)
    name, parts, readings = read_address(model, label, salt)
    if DIGEST.fullmatch(name):
        raise UsageError(f"{name} reads as a model digest: choose a name that is not 64 hex digits")
    address = Address(name, parts.digest if parts else ANY_MODEL, components.digest)
    return Target(address, components, parts, foreign, readings)


def model_address(
    model: Any, label: str | None = None, salt: str | None = None
) -> tuple[str, Components]:
    """The name and the digest's components of a model; none for a name alone.

    Several models, as a sequence or by name, are one: a start brings what all of them need. The
    salt is TCCACHE_SALT unless given.
    """
    name, components, _ = read_address(model, label, salt)
    return name, components


def read_address(
    model: Any, label: str | None, salt: str | None
) -> tuple[str, Components, Mapping[str, Any]]:
    """See `model_address`; and what each digest was made of, by the names of the models."""
    if isinstance(model, str):
        return check_name(model if label is None else label), Components(), {}
    from cachesvc.runtime.model import read_model

    salted, parts = chosen_salt(salt), named_models(model)
    alone = set(parts) == {""}
    readings = {p: read_model(item, salt=salted if alone else "") for p, item in parts.items()}
    if alone:
        return address_name(model, label), readings[""].components, readings
    components = {
        f"{part}: {name}": text
        for part, reading in readings.items()
        for name, text in reading.components.items()
    }
    salts = {"salt": salted} if salted else {}
    return address_name(model, label), Components.of({**components, **salts}), readings


def chosen_salt(salt: str | None) -> str:
    """The caller's own part of a digest: what was given, else TCCACHE_SALT."""
    return os.environ.get(SALT, "") if salt is None else salt


def address_name(model: Any, label: str | None) -> str:
    """The label, else the name of the model, else those of all models together."""
    from cachesvc.runtime.model import model_name

    own = (model_name(item) for item in named_models(model).values())
    return check_name(name_from("-".join(own)) if label is None else label)


def named_models(model: Any) -> dict[str, Any]:
    """Several models by name; one alone has the name ``.

    Raises UsageError for an empty collection.
    """
    if isinstance(model, Mapping):
        named = {str(name): item for name, item in model.items()}
    elif isinstance(model, list | tuple):
        named = {str(number): item for number, item in enumerate(model)}
    else:
        return {"": model}
    if not named:
        raise UsageError("no model was given: a collection of models must hold at least one")
    return named


def resolve_environment(environment: EnvironmentLike | None) -> tuple[Components, bool]:
    """The fingerprint that was named, or this machine's; and whether it is another machine's.

    Raises UsageError for a file that holds none, TorchNotFound where this machine has none.
    """
    if environment is None:
        return read_environment(), False
    recorded = environment if isinstance(environment, Mapping) else _read(Path(environment))
    components = environment_from(recorded)
    return components, components.digest != own_environment()


def own_environment() -> str | None:
    """This machine's environment digest, or None where no torch is installed."""
    try:
        return read_environment().digest
    except TorchNotFound:
        return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the environment {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON: give what `tccache env --json` printed") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no environment: give what `tccache env --json` printed")
    components = value.get("components", value)
    return components if isinstance(components, dict) else {}
