"""Architectures of the transformers library, and how large their models are: names and numbers
alone, so that whoever asks which there are imports neither that library nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from cachesvc.runtime.workloads.sizes import LARGE, SMALL, TINY

_POSITIONS = 2048
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FIRST_WORD = 3
"""Token ids from here on have no special meaning."""


class Work(Enum):
    """What one call of a model does."""

    GENERATE = "continues a prompt"
    READ = "reads a text"
    SEE = "looks at images"


@dataclass(frozen=True, slots=True)
class Scale:
    """A size of a model, and of what it is called with."""

    layers: int
    width: int
    heads: int
    shared_heads: int
    inner: int
    vocabulary: int
    tokens: int
    images: int
    pixels: int
    patch: int
    dtype: str = "float32"


SCALES = {
    TINY: Scale(
        layers=2, width=32, heads=2, shared_heads=1, inner=64, vocabulary=128, tokens=16,
        images=2, pixels=32, patch=8,
    ),
    SMALL: Scale(
        layers=8, width=256, heads=8, shared_heads=4, inner=688, vocabulary=4096, tokens=64,
        images=4, pixels=64, patch=16,
    ),
    LARGE: Scale(
        layers=16, width=2048, heads=32, shared_heads=8, inner=8192, vocabulary=128256, tokens=512,
        images=64, pixels=224, patch=16, dtype="float16",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """The names of a model's classes, and of those numbers that its config names otherwise."""

    config: str
    model: str
    work: Work
    renamed: Mapping[str, str] = field(default_factory=dict)
    grouped: bool = False

    def numbers(self, scale: Scale, tokens: int) -> dict[str, object]:
        """What its config is made of; it has room for as many tokens as said here, and more."""
        numbers: dict[str, object] = {
            "num_hidden_layers": scale.layers,
            "hidden_size": scale.width,
            "num_attention_heads": scale.heads,
            "intermediate_size": scale.inner,
        }
        if self.grouped:
            numbers["num_key_value_heads"] = scale.shared_heads
            numbers["head_dim"] = scale.width // scale.heads
        if self.work is Work.SEE:
            numbers |= {"image_size": scale.pixels, "patch_size": scale.patch}
        else:
            room = max(_POSITIONS, tokens)
            numbers |= {"vocab_size": scale.vocabulary, "max_position_embeddings": room, **_SPECIAL}
        return {self.renamed.get(name, name): value for name, value in numbers.items()}


_OF_GPT2 = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}

ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", "LlamaForCausalLM", Work.GENERATE, grouped=True),
    "qwen3": Architecture("Qwen3Config", "Qwen3ForCausalLM", Work.GENERATE, grouped=True),
    "mistral": Architecture("MistralConfig", "MistralForCausalLM", Work.GENERATE, grouped=True),
    "gemma3": Architecture("Gemma3TextConfig", "Gemma3ForCausalLM", Work.GENERATE, grouped=True),
    "gpt2": Architecture("GPT2Config", "GPT2LMHeadModel", Work.GENERATE, renamed=_OF_GPT2),
    "bert": Architecture("BertConfig", "BertModel", Work.READ),
    "vit": Architecture("ViTConfig", "ViTModel", Work.SEE),
}
