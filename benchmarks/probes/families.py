"""The models that are probed: small ones of many kinds, each with one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_WIDTH = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@dataclass(frozen=True, slots=True)
class Family:
    """How a model is built, and what it is called with."""

    name: str
    build: Callable[[], nn.Module]
    arguments: Callable[[nn.Module], Arguments]

    def model(self) -> nn.Module:
        """The same model each time, with the same weights."""
        torch.manual_seed(0)
        return self.build().eval()

    def call(self, model: nn.Module) -> Arguments:
        """The same arguments each time, new objects."""
        torch.manual_seed(1)
        return self.arguments(model)


def _ids(length: int = 16) -> torch.Tensor:
    return torch.randint(0, 128, (2, length))


class Convolutional(nn.Module):
    """Two blocks as a ResNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.stem(x)))
        y = torch.relu(self.norm2(self.down(y)) + y[:, :, ::2, ::2])
        output: torch.Tensor = self.fc(self.pool(y).flatten(1))
        return output


class Layered(nn.Module):
    """Linear layers, a dropout and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.Linear(32, 4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)
        return output


class Attending(nn.Module):
    """torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        y, weights = self.attention(x, x, x)
        return self.norm(y), weights


class Counting(nn.Module):
    """Writes to a buffer, and returns what it was given besides."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("count", torch.zeros(16))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        self.count.add_(x.mean(0))
        return [self.linear(x) + y, x + self.count, y]


class Tied(nn.Module):
    """Its weight lies in a list, too, and it writes to an attribute, a counter and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.rows = [self.linear.weight]
        self.scale: torch.Tensor = torch.ones(16)
        self.width = 16
        self.seen: list[float] = []

    def widen(self, width: int) -> None:
        """What the model's own code writes is no constant for the digest."""
        self.scale = torch.full((width,), 2.0)
        self.width = width
        self.seen.append(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 100:
            self.widen(x.shape[0])
        y: torch.Tensor = self.linear(x) + self.rows[0].sum(0)
        return y * self.scale[: self.width].sum() + self.width + len(self.seen)


def _gpt() -> nn.Module:
    from cachesvc.runtime.workloads.gpt import Gpt

    return Gpt(layers=2, width=32, heads=4, tokens=64, vocabulary=128)


def _odd() -> nn.Module:
    from benchmarks.probes.odd import Odd

    return Odd()


def _hf(config: str, model: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return built

    return build


def _decode(model: Any) -> Arguments:
    """One token more, with a cache of keys and values that holds some."""
    from transformers import StaticCache

    cache = StaticCache(model.config, max_cache_len=32)
    cache.early_initialization(1, 2, 8, torch.float32, torch.device("cpu"))
    model.forward(input_ids=_ids()[:1, :4], past_key_values=cache, use_cache=True)
    return (), {"input_ids": _ids(1)[:1], "past_key_values": cache, "use_cache": True}


def _named(**values: Callable[[], Any]) -> Callable[[nn.Module], Arguments]:
    return lambda model: ((), {name: value() for name, value in values.items()})


def _floats(*shapes: tuple[int, ...]) -> Callable[[nn.Module], Arguments]:
    return lambda model: (tuple(torch.randn(shape) for shape in shapes), {})


_LLAMA = {**_WIDTH, "num_key_value_heads": 2}
FAMILIES = tuple(
    Family(*each)
    for each in (
        ("gpt", _gpt, lambda model: ((_ids(),), {})),
        ("convolutional", Convolutional, _floats((2, 3, 16, 16))),
        ("mlp", Layered, _floats((4, 16))),
        ("attention", Attending, _floats((2, 6, 32))),
        ("counting", Counting, _floats((4, 16), (4, 16))),
        ("tied", Tied, _floats((4, 16))),
        ("odd", _odd, _floats((4, 16))),
        ("llama", _hf("LlamaConfig", "LlamaForCausalLM", **_LLAMA), _named(input_ids=_ids)),
        ("decode", _hf("LlamaConfig", "LlamaForCausalLM", **_LLAMA), _decode),
        (
            "gpt2",
            _hf("GPT2Config", "GPT2LMHeadModel", vocab_size=128, n_embd=32, n_layer=2, n_head=4),
            _named(input_ids=_ids),
        ),
        (
            "bert",
            _hf("BertConfig", "BertForMaskedLM", **_WIDTH),
            _named(input_ids=_ids, attention_mask=lambda: torch.ones(2, 16)),
        ),
        (
            "t5",
            _hf(
                "T5Config",
                "T5ForConditionalGeneration",
                vocab_size=128,
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=1,
                num_heads=4,
            ),
            _named(input_ids=_ids, decoder_input_ids=lambda: _ids(4)),
        ),
        (
            "vit",
            _hf(
                "ViTConfig",
                "ViTForImageClassification",
                **{k: v for k, v in _WIDTH.items() if k != "vocab_size"},
                image_size=32,
                patch_size=8,
            ),
            _named(pixel_values=lambda: torch.randn(2, 3, 32, 32)),
        ),
        (
            "mixtral",
            _hf("MixtralConfig", "MixtralForCausalLM", **_LLAMA, num_local_experts=4),
            _named(input_ids=_ids),
        ),
        (
            "mistral",
            _hf("MistralConfig", "MistralForCausalLM", **_LLAMA, sliding_window=8),
            _named(input_ids=_ids),
        ),
        (
            "gemma3",
            _hf("Gemma3TextConfig", "Gemma3ForCausalLM", **_LLAMA, head_dim=8, sliding_window=8),
            _named(input_ids=_ids),
        ),
    )
)
