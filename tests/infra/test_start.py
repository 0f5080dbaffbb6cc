"""What a publisher's process compiled, a reader's starts warm from, with torch itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.start.conftest import FreshProcesses, Starts

from .conftest import Place

pytestmark = pytest.mark.xdist_group("iam")

SCRIPT = """
report = start(torch.compile(Plain()), [ones()], trust="store", publish=True)
if report.publishing is not None:
    report.publishing.wait(60)
result = shown(report)
"""


@pytest.fixture
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    processes = FreshProcesses(tmp_path_factory.mktemp("fresh"))
    yield Starts(processes)
    processes.close()


@pytest.mark.slow  # three starts with torch; test_a_reader_reads shows the pull alone
def test_a_reader_starts_warm(place: Place, starts: Starts) -> None:
    """A reader that compiles cannot publish, and starts cold and whole; a publisher can; from then
    on a reader starts warm, and the store is left as it was."""
    roles = ("reader", "publisher", "reader")
    seen = []
    for role in roles:
        keys = place.server.keys[role]
        report = starts.run(SCRIPT, store=place.url, label="m", env=keys)
        seen.append((report["verdict"], report["published"], place.objects()))
    (verdict, refused, objects), (_, published, stored), (warm, again, left) = seen
    assert (verdict, objects) == ("cold", {})
    assert "PutObject" in refused
    assert any(f"/{published.removeprefix('segment ')}" in key for key in stored), published
    assert (warm, again, left) == ("warm", None, stored)
