"""Errors: each class has the exit code that users script against."""

from __future__ import annotations

import pytest

from cachesvc.core import errors
from cachesvc.core.errors import IntegrityError, StoreError, TccacheError

EXIT_CODES = {
    "TccacheError": 1,
    "UsageError": 2,
    "BundleNotFound": 3,
    "IntegrityError": 4,
    "UntrustedError": 4,
    "StoreError": 5,
    "AccessDenied": 6,
    "BusyError": 7,
}


def _classes() -> dict[str, type[TccacheError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TccacheError)
    }


def test_exit_codes() -> None:
    """The classes and their exit codes are just those of the table; none is without a code."""
    assert {name: error.exit_code for name, error in _classes().items()} == EXIT_CODES


@pytest.mark.parametrize("name", EXIT_CODES)
def test_one_base(name: str) -> None:
    """Whoever catches TccacheError catches every error that is raised on purpose, with its text."""
    error = _classes()[name]("what, where, what to do")
    assert isinstance(error, TccacheError)
    assert str(error) == "what, where, what to do"


def test_denied_access_is_trouble_of_the_store() -> None:
    """A caller who handles a failing store handles denied access too."""
    assert issubclass(errors.AccessDenied, StoreError)
    assert not issubclass(IntegrityError, StoreError)


def test_integrity_error_keeps_its_issues() -> None:
    """What was found wrong can be read one by one, not only as a sentence."""
    assert IntegrityError("two things", ["one", "two"]).issues == ("one", "two")
    assert IntegrityError("one thing").issues == ()
