"""torch's structured trace, as torch 2.13 writes it, shortened: read without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachesvc.runtime.trace import Trace, read_trace

PREFIX = "V1130 07:43:17.671000 9159 torch/_dynamo/x.py:5115] "

PRINTING = """\
Graph break in user code at /srv/app.py:8
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call:

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.

  Developer debug context: builtin print

User code traceback:
  File "/srv/main.py", line 12, in <module>
    model(batch)

Traceback (most recent call last):
  File "/site/torch/_dynamo/symbolic_convert.py", line 1, in step
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
"""
BRANCHING = """\
Graph break in user code at /srv/app.py:10
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching.
"""
SKIPPED = """\
Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.
torch.compile will skip tracing the frame f (app.py line 3) and fall back to eager.
The graph break occurred in the following user code:
  File "/srv/app.py", line 3, in f
    return g(x)
  File "/srv/app.py", line 7, in g
    raise_it()

Traceback (most recent call last):
  File "/site/torch/_dynamo/convert_frame.py", line 1, in __call__
torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped
  Explanation: Dynamo does not know how to trace it.
"""
OLDER = """\
Graph break in user code at /srv/app.py:8
Reason: Unsupported: call_function BuiltinVariable(print)
User code traceback:
"""
OLD_SKIP = """\
Graph break: skip: from user code at:
  File "/srv/app.py", line 9, in f
    x.item()

Traceback (most recent call last):
torch._dynamo.exc.Unsupported: Tensor.item
"""
FUNCTION = {"co_name": "forward", "co_filename": "/srv/app.py", "co_firstlineno": 6}


def record(payload: object = None, **fields: Any) -> str:
    line = f"{PREFIX}{json.dumps(fields)}\n"
    text = payload if isinstance(payload, str) else json.dumps(payload)
    below = [] if payload is None else text.rstrip("\n").split("\n")
    return line + "".join(f"\t{text}\n" for text in below)


def broken(payload: str) -> str:
    name = {"name": "dynamo_graph_break_reason", "encoding": "string"}
    return record(payload, artifact=name, frame_id=0, has_payload="f8a1")


def compiled(compile_id: str | None, **metrics: Any) -> str:
    return record(compilation_metrics={"compile_id": compile_id, **metrics}, frame_id=0)


def looked_up(name: str, payload: object, frame: int = 0) -> str:
    where = {"frame_id": frame, "frame_compile_id": 0, "attempt": 1}
    return record(payload, artifact={"name": name, "encoding": "json"}, **where)


def read(folder: Path, *records: str) -> Trace:
    (folder / "dedicated_log_torch_trace_x.log").write_text("".join(records))
    return read_trace(folder)


def test_graph_breaks(tmp_path: Path) -> None:
    """The place in the user's code, the sentence with its explanation, and all that was said."""
    breaks = read(tmp_path, *map(broken, (PRINTING, BRANCHING, SKIPPED, OLDER, OLD_SKIP))).breaks
    assert [item.place for item in breaks] == [
        *("/srv/app.py:8", "/srv/app.py:10", "/srv/app.py:7", "/srv/app.py:8", "/srv/app.py:9"),
    ]
    assert [item.headline for item in breaks] == [
        "Failed to trace builtin operator (Dynamo does not know how to trace builtin operator"
        " `print`)",
        "Data-dependent branching (Detected data-dependent branching.)",
        "Attempted to call function marked as skipped (Dynamo does not know how to trace it.)",
        "Unsupported: call_function BuiltinVariable(print)",
        "Tensor.item",
    ]
    assert "Hint: Avoid calling builtin `print`." in breaks[0].reason
    assert not any("model(batch)" in item.reason or "raise_it" in item.reason for item in breaks)


def test_compiles(tmp_path: Path) -> None:
    """Which function, which version of it, the guard that failed, and the attempt that the limit
    refused, which names no function itself."""
    limit = "Dynamo recompile limit exceeded\n  Explanation: size limit (currently set to 12). And"
    trace = read(
        tmp_path,
        compiled("0/0", **FUNCTION, cudagraph_skip_reason="mutated inputs"),
        compiled("0/1", **FUNCTION, recompile_reason="0/0: n == 2"),
        compiled("0/2", fail_type="Unsupported", fail_reason=limit, recompile_reason="0/1: n == 3"),
        compiled("1/0", **{**FUNCTION, "co_name": "torch_dynamo_resume_in_forward_at_9"}),
        compiled("!0/3/0", **FUNCTION),
        compiled(None, **FUNCTION),
    )
    told = [(c.frame, c.version, c.place, c.guard, c.refused) for c in trace.compiles]
    assert told == [
        ("0", 0, "/srv/app.py:6 in forward", "", False),
        ("0", 1, "/srv/app.py:6 in forward", "0/0: n == 2", False),
        ("0", 2, "", "0/1: n == 3", True),
        ("1", 0, "/srv/app.py:9 in forward", "", False),
    ]
    assert [c.limit for c in trace.compiles] == [None, None, 12, None]
    assert not any(c.raised for c in trace.compiles)
    assert trace.compiles[0].cudagraph_skip == "mutated inputs"
    assert trace.place("0/2") == "/srv/app.py:6 in forward"
    assert trace.place("7") == ""


def test_an_attempt_that_the_limit_refuses_by_raising(tmp_path: Path) -> None:
    """Under fullgraph=True the error's class alone tells of the limit, and no number."""
    words = "Hard failure due to fullgraph=True"
    trace = read(
        tmp_path,
        compiled("0/8", fail_type="FailOnRecompileLimitHit", fail_reason=words),
        compiled("0/9", fail_type="InductorError", fail_reason="x, currently set to 3"),
    )
    assert [(c.refused, c.raised) for c in trace.compiles] == [(True, True), (False, False)]
    assert [c.limit for c in trace.compiles] == [None, None]


def test_lookups(tmp_path: Path) -> None:
    """What each cache answered, for which graph, why not, and what the key is made of."""
    key = {"components": ["[abc] gm: <lambda>()\n\n\n[x] y: z", "[def] example_inputs[0]: T", "?"]}
    bypass = {"cache_bypass_reason": "Unsupported call_function target autograd_function_apply."}
    first, second, third = read(
        tmp_path,
        looked_up("fx_graph_cache_miss", key, frame=3),
        looked_up("aotautograd_cache_bypass", bypass),
        looked_up("aotautograd_cache_hit", "no JSON"),
        looked_up("aotautograd_cache_pickle_failure", {}),
    ).lookups
    assert (first.layer, first.state, first.graph) == ("Inductor", "miss", "3/0")
    assert first.components == {"gm": "abc", "example_inputs[0]": "def"}
    assert (second.layer, second.state) == ("AOTAutograd", "bypass")
    assert second.reason == bypass["cache_bypass_reason"]
    assert (third.state, third.reason, third.components) == ("hit", "", {})


def test_seconds_of_tuning(tmp_path: Path) -> None:
    """Of all compiles and of first runs together."""
    trace = read(
        tmp_path,
        compiled("0/0", compile_time_autotune_time_us=1_500_000),
        compiled(None, is_runtime=True, runtime_triton_autotune_time_us=500_000),
    )
    assert trace.tuning_s == 2.0


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """Other records, half a line of a killed process, payloads without a record, no folder."""
    trace = read(
        tmp_path,
        "\torphan\n",
        record({"dynamo": 1}, chromium_event={"name": "artifact"}),
        record(artifact="odd"),
        compiled("0/0", **FUNCTION),
        PREFIX + '{"compilation_metrics": {"compile_id": "1/',
    )
    assert [item.frame for item in trace.compiles] == ["0"]
    assert read_trace(tmp_path / "nothing") == Trace()


def test_files_of_before_are_left_out(tmp_path: Path) -> None:
    """A folder that is used again holds older traces, and other files."""
    read(tmp_path, compiled("0/0", **FUNCTION))
    (tmp_path / "new.log").write_text(compiled("5/0", **FUNCTION))
    (tmp_path / "report.html").write_text(compiled("6/0", **FUNCTION))
    trace = read_trace(tmp_path, besides={"dedicated_log_torch_trace_x.log"})
    assert [item.frame for item in trace.compiles] == ["5"]


@pytest.mark.parametrize("module", ["torch._dynamo.config", "nothing"])
def test_settings(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """A torch without a setting has it neither off nor limited; an empty variable is off."""
    import sys
    import types

    from cachesvc.runtime.examine import recompile_limit, switched_off

    for name in [name for name in sys.modules if name.startswith("torch.") and "config" in name]:
        monkeypatch.delitem(sys.modules, name)
    stand_in = types.ModuleType(module)
    vars(stand_in).update(disable=True, cache_size_limit=8)
    caches = types.ModuleType("torch._inductor.config")
    vars(caches).update(fx_graph_cache="", autotune_local_cache=True, force_disable_caches=None)
    monkeypatch.setitem(sys.modules, module, stand_in)
    known = module != "nothing"
    if known:
        monkeypatch.setitem(sys.modules, "torch._inductor.config", caches)
    off = ("torch._dynamo.config.disable = True", "torch._inductor.config.fx_graph_cache = ''")
    assert switched_off() == (off if known else ())
    assert recompile_limit() == (8 if known else None)
