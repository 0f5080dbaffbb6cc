"""What only builds need, spared a start whose graphs lie there: each cure in a file of its own.

Between its call and its first result a warm start would compile a header and test libraries, import
setuptools, take source files apart, hash others and start processes, for builds that never come.
"""

from __future__ import annotations

from pathlib import Path

from cachesvc.runtime.answers import keep_answers
from cachesvc.runtime.headers import spare_headers
from cachesvc.runtime.keys import keep_keys
from cachesvc.runtime.local_map import spare_local_map
from cachesvc.runtime.names import spare_names
from cachesvc.runtime.pool import spare_pool
from cachesvc.runtime.probes import spare_probes


def spare_all(records: Path) -> None:
    """Spares this process what only builds need, until it builds something after all.

    To be called at each start anew, where graphs lie in the live directory. `records` is the folder
    for what is kept from one process to the next. No key of the compiler changes; what this torch
    does in another way is not spared. Imports nothing of the compiler.
    """
    spare_headers()
    spare_probes()
    spare_names()
    spare_local_map()
    spare_pool()
    keep_keys(records)
    keep_answers(records)
