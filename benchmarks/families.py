"""Small models of many families, as targets: `benchmarks.families:llama` and the like.

Two layers of width 64 with random weights, on the GPU where there is one. A decoder reads one
prompt and gives its cache back, as it does by itself; an encoder reads a padded text.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

import cachesvc

LAYERS, WIDTH, HEADS, SHARED_HEADS, INNER = 2, 64, 4, 2, 128
VOCABULARY, TOKENS, PIXELS = 512, 16, 32
_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": SHARED_HEADS,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ENCODER = {key: value for key, value in _DECODER.items() if key != "num_key_value_heads"}
_SEEING = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "image_size": PIXELS,
    "patch_size": 8,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": INNER}


def llama() -> cachesvc.Workload:
    return _decoder("Llama", **_DECODER)


def qwen2() -> cachesvc.Workload:
    return _decoder("Qwen2", **_DECODER)


def qwen3() -> cachesvc.Workload:
    return _decoder("Qwen3", head_dim=WIDTH // HEADS, **_DECODER)


def mistral() -> cachesvc.Workload:
    return _decoder("Mistral", sliding_window=8, **_DECODER)


def gemma3() -> cachesvc.Workload:
    own = {"head_dim": WIDTH // HEADS, "sliding_window": 8}
    return _decoder("Gemma3", config="Gemma3TextConfig", **own, **_DECODER)


def phi3() -> cachesvc.Workload:
    return _decoder("Phi3", **_DECODER)


def mixtral() -> cachesvc.Workload:
    return _decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2, **_DECODER)


def qwen3_moe() -> cachesvc.Workload:
    return _decoder("Qwen3Moe", num_experts=4, head_dim=WIDTH // HEADS, **_EXPERTS, **_DECODER)


def gpt2() -> cachesvc.Workload:
    numbers = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 128}
    model = _made("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, **numbers)
    return _workload("gpt2", model, {"input_ids": _words()})


def mamba() -> cachesvc.Workload:
    numbers = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS}
    model = _made("MambaForCausalLM", "MambaConfig", state_size=8, **numbers)
    return _workload("mamba", model, {"input_ids": _words()})


def bert() -> cachesvc.Workload:
    return _workload("bert", _made("BertModel", "BertConfig", **_ENCODER), _padded())


def roberta() -> cachesvc.Workload:
    return _workload("roberta", _made("RobertaModel", "RobertaConfig", **_ENCODER), _padded())


def t5() -> cachesvc.Workload:
    numbers = {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": INNER, "num_heads": HEADS}
    own = {"vocab_size": VOCABULARY, "num_layers": LAYERS, "decoder_start_token_id": 0}
    model = _made("T5ForConditionalGeneration", "T5Config", **numbers, **own)
    return _workload("t5", model, {**_padded(), "decoder_input_ids": _words(8)})


def vit() -> cachesvc.Workload:
    return _workload("vit", _made("ViTModel", "ViTConfig", **_SEEING), {"pixel_values": _images()})


def clip() -> cachesvc.Workload:
    transformers = importlib.import_module("transformers")
    parts = {"text_config": {**_ENCODER, "projection_dim": WIDTH}, "vision_config": _SEEING}
    config = transformers.CLIPConfig(projection_dim=WIDTH, **parts)
    model = _ready(transformers.CLIPModel, config)
    return _workload("clip", model, {**_padded(), "pixel_values": _images()})


def whisper() -> cachesvc.Workload:
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    inner = {"encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER}
    layers = {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "num_hidden_layers": LAYERS}
    places = {"max_source_positions": 32, "max_target_positions": 32, "num_mel_bins": 16}
    words = {"vocab_size": VOCABULARY, "pad_token_id": 0, "decoder_start_token_id": 1}
    numbers = {"d_model": WIDTH, **heads, **inner, **layers, **places, **words}
    model = _made("WhisperForConditionalGeneration", "WhisperConfig", **numbers)
    heard = torch.randn(1, 16, 64, device=_DEVICE)
    return _workload("whisper", model, {"input_features": heard, "decoder_input_ids": _words(8)})


class UNet(nn.Module):
    """Down, up, and across."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter = _block(3, width)
        self.down = _block(width, 2 * width)
        self.across = _block(3 * width, width)
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        wide = self.enter(image)
        deep = self.down(nn.functional.max_pool2d(wide, 2))
        deep = nn.functional.interpolate(deep, scale_factor=2.0, mode="bilinear")
        out: Tensor = self.leave(self.across(torch.cat([wide, deep], 1)))
        return out


def unet() -> cachesvc.Workload:
    torch.manual_seed(0)
    return cachesvc.Workload("coverage-unet", UNet().eval().to(_DEVICE), [(_images(),)])


def _block(inner: int, outer: int) -> nn.Module:
    first = [nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.SiLU()]
    return nn.Sequential(*first, nn.Conv2d(outer, outer, 3, padding=1), nn.SiLU())


def _decoder(family: str, config: str | None = None, **numbers: Any) -> cachesvc.Workload:
    model = _made(f"{family}ForCausalLM", config or f"{family}Config", **numbers)
    return _workload(family.lower(), model, {"input_ids": _words()})


def _made(model: str, config: str, **numbers: Any) -> Any:
    transformers = importlib.import_module("transformers")
    return _ready(getattr(transformers, model), getattr(transformers, config)(**numbers))


def _ready(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return kind(config).eval().to(_DEVICE)


def _workload(name: str, model: Any, call: dict[str, Any]) -> cachesvc.Workload:
    return cachesvc.Workload(f"coverage-{name}", model, [call])


def _words(count: int = TOKENS) -> Tensor:
    return torch.randint(3, VOCABULARY, (1, count), device=_DEVICE)


def _padded() -> dict[str, Tensor]:
    mask = torch.ones(1, TOKENS, dtype=torch.long, device=_DEVICE)
    mask[:, -3:] = 0
    return {"input_ids": _words(), "attention_mask": mask}


def _images() -> Tensor:
    return torch.randn(2, 3, PIXELS, PIXELS, device=_DEVICE)
