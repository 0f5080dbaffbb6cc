"""What can go wrong, in two families, each with its exit code.

*The data is wrong* (`IntegrityError`, `UntrustedError`) is never retried and never used.
*The wire is wrong* (`StoreError`, `AccessDenied`) is retried, then given up.
The text of every error says what happened, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class TccacheError(Exception):
    """Base of every error that tccache raises on purpose."""

    exit_code = 1


class UsageError(TccacheError):
    """An argument is not of the form asked for; nothing was done."""

    exit_code = 2


class BundleNotFound(TccacheError):
    """A hit was required and there is none."""

    exit_code = 3


class IntegrityError(TccacheError):
    """Bytes are not what their manifest, digest or format says.

    `issues` lists what was found wrong, not only the first thing: up to twenty of them.
    """

    exit_code = 4

    def __init__(self, message: str, issues: Sequence[str] = ()) -> None:
        self.issues = tuple(issues)
        super().__init__(message)


class UntrustedError(TccacheError):
    """The store or a segment in it has not been given trust."""

    exit_code = 4


class StoreError(TccacheError):
    """The store is unreachable or failing; the outcome of the call is unknown."""

    exit_code = 5


class AccessDenied(StoreError):
    """Credentials are missing, expired, or lack a permission. Never retried."""

    exit_code = 6


class BusyError(TccacheError):
    """A lock or lease was not free within its time limit."""

    exit_code = 7


def unexpected(error: Exception) -> str:
    """The sentence about an error that is this library's own fault, where it must not be raised."""
    return f"internal error, please report it: {type(error).__name__}: {error}"
