"""Failed guards in torch's own words, from real recompiles: what changed, and the cure."""

from __future__ import annotations

import pytest

from cachesvc.core.guard import guard_text, read_guard, without_compile

BESIDE = "                     # return x * n  # mp/app.py:19 in f\nUser stack trace:\n  File ..."
MODULE = (
    "1/0: self.step == 0               # app.py:25 in forward (HINT: torch.compile"
    " considers integer attributes of the nn.Module to be static.)\nUser stack trace:\n  File ..."
)


@pytest.mark.parametrize(
    ("reason", "subject", "old", "new", "cure"),
    [
        (
            "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3",
            *("the size of x in dimension 0", "2", "3", "mark_dynamic(x, 0)"),
        ),
        (
            "0/1: tensor 'L['ids']' size mismatch at index 1. expected 64, actual 65",
            *("the size of ids in dimension 1", "64", "65", "mark_dynamic(ids, 1)"),
        ),
        (
            "0/1: L['x'].size()[0] <= 5" + BESIDE,
            "the range of the size of x in dimension 0 (L['x'].size()[0] <= 5)",
            *("", "", "mark_dynamic(x, 0)"),
        ),
        (
            "0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 1",
            "the stride of x (at index 0. expected 4, actual 1)",
            *("", "", "x.contiguous()"),
        ),
        (
            "0/0: tensor 'x' dtype mismatch. expected Float, actual Double",
            "the dtype of x (expected Float, actual Double)",
            *("", "", "one dtype"),
        ),
        ("0/0: n == 0.5" + BESIDE, "the value of n", "0.5", "", "torch.tensor(0.5)"),
        ("0/0: L['n'] == 3", "the value of n", "3", "", "torch.tensor(3)"),
        ("0/0: mode == 'a'" + BESIDE, "the value of mode", "'a'", "", "each value of mode"),
        (MODULE, "the value of self.step", "0", "", "allow_unspec_int_on_nn_module"),
        ("0/0: len(L['xs']) == 3", "the length of xs", "3", "", "give xs with one length"),
        (
            "0/0: GLOBAL_STATE changed: grad_mode ",
            "the state of torch (grad_mode)",
            *("", "", "torch.no_grad()"),
        ),
        (
            "0/0: ___check_obj_id(L['f'], 140)",
            *("the object f", "", "", "torch.compile once for each"),
        ),
    ],
)
def test_what_changed(reason: str, subject: str, old: str, new: str, cure: str) -> None:
    """The argument and its dimension are named as in the code, in the cure too."""
    guard = read_guard(reason)
    assert (guard.subject, guard.old, guard.new, guard.curable) == (subject, old, new, True)
    assert cure in guard.cure


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (MODULE, "self.step == 0"),
        (MODULE.partition(": ")[2], "self.step == 0"),
        ("L['x'].size()[0] <= 5" + BESIDE, "L['x'].size()[0] <= 5"),
        ("L['text'] == 'a # b'", "L['text'] == 'a # b'"),
    ],
)
def test_the_guard_itself(reason: str, text: str) -> None:
    """Without padding, the source beside it and torch's hint, whoever has cut the rest already."""
    assert guard_text(reason) == text


@pytest.mark.parametrize("reason", ["0/0: something new in torch", "", "\n"])
def test_a_guard_of_no_known_form(reason: str) -> None:
    """It is told in torch's own words, and nothing is made up about it."""
    guard = read_guard(reason)
    assert guard.subject.startswith("what this guards: ")
    assert "give a call with each such input" in guard.cure
    assert not guard.curable


def test_the_number_of_the_compile_is_left_out() -> None:
    """Of a region's compile too; what else has a colon in it stays whole."""
    assert without_compile("0/1: n == 3") == without_compile("0/1_2: n == 3") == "n == 3"
    assert without_compile("tensor 'x' mismatch: a, b") == "tensor 'x' mismatch: a, b"
