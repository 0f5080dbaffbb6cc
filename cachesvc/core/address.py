"""Where a bundle lies: (name, model, environment)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UsageError

ANY_MODEL = "any"
"""The model part of directories that were pushed under a name alone."""

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
BUNDLES = "bundles"
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def check_name(name: str) -> str:
    """`name`, or UsageError if it is not 1 to 128 of A-Z a-z 0-9 . _ - (no dot first)."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.140} is not a bundle name: use 1 to 128 of the characters A-Z a-z 0-9 . _ -,"
            " not beginning with a dot"
        )
    return name


def name_from(text: str) -> str:
    """A valid name made from free text, such as a class name."""
    name = _NOT_A_NAME.sub("-", text).strip("-.")[:128]
    return name or "model"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The three parts of a bundle's place in a store.

    `model` is a model digest or `any`; `environment` is the digest of an environment fingerprint.
    """

    name: str
    model: str
    environment: str

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.model != ANY_MODEL and not DIGEST.fullmatch(self.model):
            raise UsageError(f"{self.model!r} is neither a model digest (64 hex digits) nor 'any'")
        if not DIGEST.fullmatch(self.environment):
            raise UsageError(f"{self.environment!r} is not an environment digest (64 hex digits)")

    @property
    def prefix(self) -> str:
        """The key prefix of every object of this bundle, with a slash at its end."""
        return f"{BUNDLES}/{self.name}/{self.model}/{self.environment}/"

    def __str__(self) -> str:
        model = self.model if self.model == ANY_MODEL else self.model[:12]
        return f"{self.name}/{model}/{self.environment[:12]}"
