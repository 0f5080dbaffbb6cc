"""Calls of `generate` with a static cache, whose prompts and continuation are given.

Greedy tokens would be a weak output to compare: where two are almost equally likely, rounding
chooses, and all that follows is another text. So each step is given its token, as in training with
a teacher, and the output is what the model thinks of every next token.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Generator:
    """Continues prompts of one model, one after the other, by tokens (1, steps) given here.

    `called` is what takes the model's place: the pass over the prompt and each further step go
    through it. What transformers would compile by itself it does not. `room` is the greatest
    number of tokens of a prompt.
    """

    def __init__(
        self, model: Any, called: Callable[..., Any], continuation: Tensor, room: int
    ) -> None:
        self._speaker = _through(model, called)
        self._continuation = continuation
        self._cache = _cache(model, room + continuation.shape[1])
        self._cache_name = _cache_name(model)

    def call(self, prompt: Tensor) -> Callable[[], Tensor]:
        """A call that gives the logits (1, steps, vocabulary) after a prompt (1, tokens)."""
        tokens, steps = prompt.shape[1], self._continuation.shape[1]

        def generate() -> Tensor:
            return self._logits(prompt)

        generate.__qualname__ = f"generate({tokens} tokens, {steps} new)"
        return generate

    def _logits(self, prompt: Tensor) -> Tensor:
        self._cache.reset()
        made = self._speaker.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=self._continuation.shape[1],
            do_sample=False,
            disable_compile=True,
            output_logits=True,
            return_dict_in_generate=True,
            logits_processor=[_Given(self._continuation, prompt.shape[1])],
            **{self._cache_name: self._cache},
        )
        # transformers widens them; they are to be compared as exactly as they were computed.
        return torch.stack(made.logits, 1).to(self._speaker.dtype)


class _Given:
    """A processor of logits that leaves one token to choose: that of this step."""

    def __init__(self, continuation: Tensor, prompt_tokens: int) -> None:
        self._continuation = continuation
        self._prompt_tokens = prompt_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step = input_ids.shape[1] - self._prompt_tokens
        chosen = self._continuation[:, step : step + 1]
        return torch.zeros_like(scores).scatter(1, chosen, 1.0)


def _through(model: Any, called: Callable[..., Any]) -> Any:
    """The model, or a shallow copy of it that calls `called`: `generate` is a method, so it would
    pass by what was made of the model."""
    if called is model:
        return model

    @functools.wraps(model.forward)  # generate looks at the names of its parameters
    def forward(*args: Any, **kwargs: Any) -> Any:
        return called(*args, **kwargs)

    speaker = copy.copy(model)
    speaker.forward = forward
    return speaker


def _cache(model: Any, tokens: int) -> Any:
    """Filled with zeros before the first call: made within a compiled pass over a prompt, it would
    lie at another address each time, and CUDA graphs could not be used."""
    config = model.config
    cache = importlib.import_module("transformers").StaticCache(config, max_cache_len=tokens)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache.early_initialization(1, heads, width, model.dtype, model.device)
    return cache


def _cache_name(model: Any) -> str:
    """The argument that takes the cache: transformers has renamed it."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"
