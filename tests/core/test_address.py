"""Addresses: names that are safe everywhere, digests that are digests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.address import ANY_MODEL, Address, check_name, name_from
from cachesvc.core.errors import UsageError

DIGEST = "ab" * 32


@pytest.mark.parametrize("name", ["a", "llama-70b", "Model_2.1", "-x", "_", "a..b", "x" * 128])
def test_names(name: str) -> None:
    """A name of the characters allowed is taken as it is."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b", "a b", "a\n", "a\0", "é", "x" * 129, "a:b", "a\\b", "٣"],
)
def test_bad_names(name: str) -> None:
    """A name that could leave its folder, or that some store cannot hold, is refused, and shown."""
    with pytest.raises(UsageError, match=r"is not a bundle name: use 1 to 128") as caught:
        check_name(name)
    assert repr(name) in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_gives_a_name(text: str) -> None:
    """A class of any name can be published."""
    assert check_name(name_from(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [("GPT2LMHeadModel", "GPT2LMHeadModel"), ("<locals>.Net", "locals-.Net"), ("...", "model")],
)
def test_names_from_classes(text: str, name: str) -> None:
    """A class name stays readable."""
    assert name_from(text) == name


def test_prefix() -> None:
    """A bundle's objects lie under its three parts, and the prefix ends with a slash."""
    assert Address("gpt", ANY_MODEL, DIGEST).prefix == f"bundles/gpt/any/{DIGEST}/"


def test_shown() -> None:
    """An address is shown with its digests cut short."""
    assert str(Address("gpt", DIGEST, DIGEST)) == "gpt/abababababab/abababababab"
    assert str(Address("gpt", ANY_MODEL, DIGEST)) == "gpt/any/abababababab"


@pytest.mark.parametrize(
    ("name", "model", "environment"),
    [
        ("../up", ANY_MODEL, DIGEST),
        ("gpt", "anything", DIGEST),
        ("gpt", DIGEST.upper(), DIGEST),
        ("gpt", ANY_MODEL, "any"),
        ("gpt", ANY_MODEL, DIGEST + "\n"),
        ("gpt", ANY_MODEL, DIGEST[:-1]),
    ],
)
def test_bad_addresses(name: str, model: str, environment: str) -> None:
    """An address of anything else than a name and digests cannot be made."""
    with pytest.raises(UsageError):
        Address(name, model, environment)
