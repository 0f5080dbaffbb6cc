"""The page in a real browser: what it logs, what it asks for, what it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from cachesvc.page.page import write_page

from .benches import BENCHES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("page")]

_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
)
_OWN = "not an origin"
_CONSOLE = re.compile(r"^\[[^\]]*CONSOLE[^\]]*\] (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Visit:
    """What one opening of a page left: lines of its console, addresses asked for, a picture."""

    console: list[str]
    asked: set[str]
    picture: Image.Image


def visit(page: Path, folder: Path, *, width: int = 1280, height: int = 2400, flag: str) -> Visit:
    """Opens a file in Chromium, with a profile of its own and no network."""
    browser = shutil.which("chromium")
    assert browser, "this test takes Chromium, which is not on PATH: apt-get install chromium"
    folder.mkdir()
    net, shot = folder / "net.json", folder / "shot.png"
    done = subprocess.run(
        [
            browser,
            *_QUIET,
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={net}",
            f"--screenshot={shot}",
            f"--window-size={width},{height}",
            "--virtual-time-budget=2000",
            flag,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    with Image.open(shot) as picture:
        return Visit(_CONSOLE.findall(done.stderr), _asked(net), picture.convert("RGB"))


def _asked(net: Path) -> set[str]:
    """The addresses that a page asked for, by a net log; the browser has business of its own, and
    says there that no origin began it."""
    told = [event.get("params", {}) for event in json.loads(net.read_text())["events"]]
    return {params["url"] for params in told if params.get("initiator", _OWN) != _OWN}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    write_page(BENCHES["variants"](), file)
    return file


@pytest.mark.parametrize(
    ("flag", "width", "paper"),
    [
        ("--disable-dark-mode", 1280, (255, 255, 255)),
        ("--force-dark-mode", 1280, (21, 23, 27)),
        ("--disable-dark-mode", 500, (255, 255, 255)),
    ],
    ids=["light", "dark", "narrow"],
)
def test_the_page_opens(
    page: Path, tmp_path: Path, flag: str, width: int, paper: tuple[int, int, int]
) -> None:
    """Without a word on the console and without a request, and with charts in their colours, on
    light and on dark paper."""
    seen = visit(page, tmp_path / "visit", width=width, flag=flag)
    assert seen.console == []
    assert seen.asked == set()
    assert seen.picture.size == (width, 2400)
    colours = {colour: count for count, colour in seen.picture.getcolors(1 << 24) or ()}
    assert max(colours, key=lambda colour: colours[colour]) == paper
    assert colours[(0, 114, 178)] > 1000
    assert colours[(213, 94, 0)] > 100


def test_the_page_can_be_framed_narrow(page: Path, tmp_path: Path) -> None:
    """On a phone nothing but tables is wider than the screen."""
    phone = tmp_path / "phone.html"
    script = (
        "const inside = frames[0].document.documentElement;"
        "if (inside.scrollWidth > 390) console.error('as wide as ' + inside.scrollWidth);"
    )
    phone.write_text(
        f'<iframe src="{page.as_uri()}" width="390" height="800" onload="{script}"></iframe>'
    )
    flag = "--allow-file-access-from-files"
    assert visit(phone, tmp_path / "visit", flag=flag).console == []


def test_the_watch_sees(tmp_path: Path) -> None:
    """A page that logs an error and asks for a picture elsewhere would be noticed."""
    noisy = tmp_path / "noisy.html"
    noisy.write_text(
        '<img src="http://example.invalid/x.png"><script>console.error("broken")</script>'
    )
    seen = visit(noisy, tmp_path / "visit", flag="--disable-dark-mode")
    assert any("broken" in line for line in seen.console)
    assert seen.asked >= {"http://example.invalid/x.png"}
