"""Fresh processes for what is about torch itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fresh"))  # processes import from there by name too

from fresh_processes import FreshProcesses


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshProcesses]:
    """Runs scripts in processes that have compiled nothing."""
    processes = FreshProcesses(tmp_path_factory.mktemp("fresh"))
    yield processes
    processes.close()
