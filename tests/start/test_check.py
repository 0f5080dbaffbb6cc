"""The output check: a wrong result is found before traffic, and the start goes on without it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

CHECKED = """
bare = Fused().eval()
model = torch.compile(bare)
report = start(model, [ones()], check=True)
with torch.no_grad():
    right = bool(torch.allclose(model(ones()), bare(ones())))
result = [shown(report), right]
"""


def test_a_right_output(starts: Starts, fused: Published) -> None:
    """Compared with an eager call where the bundle has no record of it; warm all the same."""
    report, right = starts.run(CHECKED, store=fused.store, label="fused")
    assert right
    assert report["verdict"] == "warm"
    assert [call["checked"] for call in report["calls"]] == ["equal to an eager call"]
    assert "(float32[2, 4]): equal to an eager call" in report["text"]
    assert report["set_aside"] == []


@pytest.fixture(scope="module")
def wrong(starts: Starts, fused: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose bundle gives twice the result."""
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(fused.home, folder / "home")
    (wrapper,) = (folder / "home" / "live").rglob("*.py")
    text = wrapper.read_text()
    doubled = re.sub(r"return \((buf\d+), \)", r"return (\1 * 2 + 1, )", text)
    assert doubled != text
    wrapper.write_text(doubled)
    starts.run(
        """
model = torch.compile(Fused())
cachesvc.push(model, store=given["store"], label="fused", inductor_dir=given["inductor"])
""",
        store=folder / "store",
        given={"inductor": str(wrapper.parents[1])},
    )
    return folder / "store"


def test_a_wrong_output(starts: Starts, wrong: Path, tmp_path: Path) -> None:
    """Set aside, made again without the bundle, and right; the restart does not fall into it."""
    how: dict[str, Any] = {"store": wrong, "label": "fused", "home": tmp_path / "home"}
    report, right = starts.run(CHECKED, **how)
    assert right
    assert report["set_aside"]
    assert all("not equal to an eager call" in text for text in report["set_aside"])
    (call,) = report["calls"]
    assert call["checked"].startswith("equal to an eager call, without the caches; with them not")
    again, right = starts.run(CHECKED, **how)
    assert right
    assert again["calls"][0]["checked"] == "equal to an eager call"
    assert again["set_aside"] == report["set_aside"]


def test_without_the_check_it_serves_what_the_bundle_gives(
    starts: Starts, wrong: Path, tmp_path: Path
) -> None:
    """The verdict is about caches, not about results: this is what the check is for."""
    script = CHECKED.replace(", check=True", "")
    report, right = starts.run(script, store=wrong, label="fused", home=tmp_path / "home")
    assert not right
    assert report["verdict"] == "warm"
    assert report["calls"][0]["checked"] == ""


def test_what_cannot_be_compared_is_said(starts: Starts, fused: Published) -> None:
    """Callables, calls that change their inputs, and models in training mode: never a false
    alarm."""
    texts = starts.run(
        """
class Growing(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x @ x

trained = torch.compile(Plain().train())
result = [
    shown(start(torch.compile(Plain()).eval(), calls=[lambda: None], check=True)),
    shown(start(torch.compile(Growing()).eval(), [ones(2, 2)], check=True)),
    shown(start(trained, [ones()], check=True)),
]
result = [report["calls"][0]["checked"] for report in result]
""",
        store=fused.store,
    )
    assert [text.partition(":")[0] for text in texts] == ["not compared"] * 3
    assert "callable" in texts[0]
    assert "changes its inputs" in texts[1]
    assert "training" in texts[2]
