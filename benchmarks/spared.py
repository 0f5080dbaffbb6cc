"""One warm start with some of what it is spared switched on again, as the main program.

    python -m benchmarks.spared SPEC RESULT

As cachesvc.start.sample, which it runs. BENCHMARK_OFF names the functions of cachesvc.runtime.spare
that do nothing here. The outcome has the number of child processes, too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cachesvc.start import sample

OFF = "BENCHMARK_OFF"
_STARTED = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system")


def main(spec_file: str, result_file: str) -> None:
    started: list[str] = []
    sys.addaudithook(lambda event, _: started.append(event) if event in _STARTED else None)
    prepared = sample._start

    def start(*given: Any) -> Any:
        from cachesvc.runtime import spare

        for name in os.environ[OFF].split():
            setattr(spare, name, lambda *_: None)
        return prepared(*given)

    sample._start = start
    sample.main(spec_file, result_file)
    outcome = json.loads(Path(result_file).read_text())
    Path(result_file).write_text(json.dumps({**outcome, "processes": len(started)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
