"""Cures for what the compiler complains of, by the words of its reason."""

from __future__ import annotations

import re

_CUSTOM_OPERATOR = "make it an operator of its own, torch.library.custom_op"
_HINT = re.compile(r"^\s*Hint: (?P<text>.+)$", re.MULTILINE)
_EMPTY_HINT = re.compile(
    r"report an issue|fundamental|to PyTorch|may be an issue|difficult|TORCH_LOGS", re.IGNORECASE
)

# The first whose words are in the reason counts.
_BREAKS = (
    (
        r"data-dependent branch",
        "compute both sides and choose with torch.where, or branch with torch.cond; what need not"
        " depend on values can be decided before the call",
    ),
    (
        r"\bprint\b|warnings\.warn",
        "remove it, or write `if not torch.compiler.is_compiling():` before it; a function that"
        " only speaks can also be added to torch._dynamo.config.reorderable_logging_functions",
    ),
    (
        r"\blogg(er|ing)\b",
        "remove it, or write `if not torch.compiler.is_compiling():` before it",
    ),
    (
        r"\.item\(\)|_local_scalar_dense|capture_scalar_outputs|\.tolist\(\)",
        "keep the value in a tensor; where a branch hangs on it, take torch.where or torch.cond;"
        " else set torch._dynamo.config.capture_scalar_outputs = True",
    ),
    (
        r"dynamic[ -]shape operator|dynamic output shape|nonzero|capture_dynamic_output_shape_ops",
        "choose with torch.where instead of picking out elements, or set"
        " torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    ),
    (
        r"torch\._dynamo\.graph_break\(\)|torch\.compiler\.disable|_dynamo\.disable",
        "the code asks for it: remove the call or the decorator if it is not needed any more",
    ),
    (
        r"context manager|__enter__",
        "enter the context outside what is compiled, around the call of the model",
    ),
    (
        r"marked as skipped|C/C\+\+|builtin operator|builtin function|not traceable|numpy",
        f"do it before or after the model is called, or {_CUSTOM_OPERATOR}",
    ),
)
_BREAK = f"move it out of what is compiled, or {_CUSTOM_OPERATOR}"
_ASKED_FOR = re.compile(r"torch\._dynamo\.graph_break\(\)|torch\.compiler\.disable")
_LIMIT = re.compile(r"recompile.?limit|cache.?size.?limit", re.IGNORECASE)

_BYPASSES = (
    (
        r"autograd_function_apply|autograd\.Function|FunctionCtx",
        f"write the autograd.Function as an operator, {_CUSTOM_OPERATOR.partition(', ')[2]} with"
        " register_autograd; or, where torch knows it and forward and backward depend on nothing"
        " but their arguments, set TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1",
    ),
    (r"freez|frozen", "do without freezing: unset TORCHINDUCTOR_FREEZING"),
    (
        r"custom .*pass|_pass\b",
        "give the custom pass a uuid(): derive it from torch._inductor.custom_graph_pass"
        ".CustomGraphPass",
    ),
    (
        r"higher.order operator|HigherOrderOperator|\bcond\b|while_loop|map_impl",
        "compile that part by itself, so that the rest of the model is cached",
    ),
    (r"mkldnn", "give the weights in torch's own layout, not as mkldnn tensors"),
    (
        r"pickle|serializ|Reduce unsupported|torchbind",
        "keep such an object out of the graph: pass its tensors to the model instead",
    ),
    (r"context_fn", "give the function of the checkpoint policy a `cache_hash` attribute"),
    (
        r"Unsupported call_(function|method) target",
        f"{_CUSTOM_OPERATOR}, instead of calling that function in the graph",
    ),
)
_BYPASS = "write this part with plain operators of torch, or compile it by itself"

_CUDAGRAPHS = (
    (r"cpu device|cpu tensor", "move that tensor to the GPU before the call, or make it there"),
    (r"mutated input", "give the state as a buffer of the model, or return it instead"),
    (r"symbolic shapes|dynamic", "pad to a few lengths, so that each graph has fixed shapes"),
    (r"incompatible op|deterministic", "replace that operator, or keep it out of what is compiled"),
)
_CUDAGRAPH = "if that cannot be changed, compile without mode='reduce-overhead'"


def break_cure(reason: str) -> str:
    """The change that keeps the graph in one piece; torch's own hint where we know none."""
    known = _first(_BREAKS, reason)
    return known or next(iter(_hints(reason)), "") or _BREAK


def is_asked_for(reason: str) -> bool:
    """Whether the user's code asks for this graph break."""
    return _ASKED_FOR.search(reason) is not None


def is_limit(reason: str) -> bool:
    """Whether a function was not compiled again because it has as many versions as it may."""
    return _LIMIT.search(reason) is not None


def bypass_cure(reason: str) -> str:
    """The change that lets a cache keep the graph."""
    return _first(_BYPASSES, reason) or _BYPASS


def cudagraph_cure(reason: str) -> str:
    """The change that lets a graph be captured as a CUDA graph."""
    return _first(_CUDAGRAPHS, reason) or _CUDAGRAPH


def _first(cures: tuple[tuple[str, str], ...], reason: str) -> str:
    found = (cure for words, cure in cures if re.search(words, reason, re.IGNORECASE))
    return next(found, "")


def _hints(reason: str) -> list[str]:
    """The hints of torch that name a change."""
    texts = (match["text"].strip() for match in _HINT.finditer(reason))
    return [text for text in texts if not _EMPTY_HINT.search(text)]
