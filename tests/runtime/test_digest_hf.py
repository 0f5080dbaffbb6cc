"""The digest of models of the transformers library, compiled and called for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.core.components import Components

pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("runtime")

MODELS = """
import transformers
from cachesvc.runtime.model import model_components

SMALL = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)

def llama(**changes):
    config = transformers.LlamaConfig(**{**SMALL, "vocab_size": 32, **changes})
    return transformers.LlamaForCausalLM(config).eval()

def compiled(model):
    return torch.compile(model, backend="eager")

def bert():
    return transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=32)).eval()

def vit():
    config = transformers.ViTConfig(**SMALL, image_size=16, patch_size=8)
    return transformers.ViTModel(config).eval()

def tokens():
    return {"input_ids": torch.zeros(1, 4, dtype=torch.long)}

def image():
    return {"pixel_values": torch.zeros(1, 3, 16, 16)}

KINDS = {"llama": (llama, tokens), "bert": (bert, tokens), "vit": (vit, image)}
def differing(one, other):
    return [difference.component for difference in one.diff(other)]
"""


@pytest.fixture(scope="module")
def served(fresh: FreshProcesses) -> dict[str, Any]:
    """What one process finds before and after it has compiled and called each model."""
    return dict(
        fresh.run(
            MODELS
            + """
result = {}
with torch.no_grad():
    for name, (build, inputs) in KINDS.items():
        model = compiled(build())
        before = model_components(model)
        model(**inputs(), **({"output_hidden_states": True} if name == "llama" else {}))
        after = model_components(model)
        result[name] = {
            "components": dict(before),
            "first call": differing(before, after),
            "a new one": differing(before, model_components(compiled(build()))),
            "meta": differing(before, model_components(compiled(build().to("meta")))),
            "count": len(before),
            "bytes": sum(len(name) + len(text) for name, text in before.items()),
        }
"""
        )
    )


@pytest.mark.parametrize("kind", ["llama", "bert", "vit"])
def test_the_first_call_does_not_count(served: dict[str, Any], kind: str) -> None:
    """Neither what dynamo leaves nor what the library does at a first call: hooks, caches."""
    assert served[kind]["first call"] == []
    assert served[kind]["a new one"] == []


@pytest.mark.parametrize("kind", ["llama", "bert", "vit"])
def test_the_device_does_not_count(served: dict[str, Any], kind: str) -> None:
    """A model without weights on the meta device stands for the one that is going to serve."""
    assert served[kind]["meta"] == []


def test_the_digest_stays_small(served: dict[str, Any]) -> None:
    """Each manifest carries the components."""
    assert all(each["count"] < 1500 and each["bytes"] < 150_000 for each in served.values())


def test_processes_and_users_agree(
    served: dict[str, Any], fresh: FreshProcesses, tmp_path: Path
) -> None:
    """Another hash seed, user, home, directory, order of imports, and other weights."""
    other = fresh.run(
        MODELS.replace("import transformers", "import transformers.models.vit.modeling_vit")
        + """
torch.manual_seed(7)
result = {}
for name, (build, _) in reversed(KINDS.items()):
    result[name] = dict(model_components(compiled(build())))
""",
        env={"PYTHONHASHSEED": "99", "USER": "other", "HOME": str(tmp_path)},
        cwd=tmp_path,
        own=True,
    )
    for kind, components in other.items():
        assert Components.of(served[kind]["components"]).diff(components) == ()


def test_a_model_made_of_several_is_the_same_in_each_process(fresh: FreshProcesses) -> None:
    """Its config leads by name to code that fetches files, which has an id for each process."""
    script = """
import transformers
from cachesvc.runtime.model import model_components
numbers = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
config = transformers.Gemma3TextConfig(**numbers, intermediate_size=32, head_dim=8)
result = dict(model_components(transformers.Gemma3ForCausalLM(config).eval()))
"""
    one, other = (Components.of(fresh.run(script)) for _ in range(2))
    assert one.diff(other) == ()
    assert len(one) < 1500


CONFIGS = {
    "rms_norm_eps": "model.config.rms_norm_eps = 1e-3",
    "hidden_act": "model.config.hidden_act = 'gelu'",
    "rope_parameters": "model.config.rope_parameters['rope_theta'] = 5.0",
    "_attn_implementation_internal": "model.config._attn_implementation = 'eager'",
    "use_cache": "model.config.use_cache = False",
}


def test_each_change_is_named_and_nothing_else(fresh: FreshProcesses) -> None:
    """In the config, which every layer holds; in a function of the library; in a layer."""
    cases = {
        **{f"config.{name}": change for name, change in CONFIGS.items()},
        "function transformers.models.llama.modeling_llama.rotate_half": (
            "modeling.rotate_half.__code__ = (lambda x: x).__code__"
        ),
        "code transformers.models.llama.modeling_llama.LlamaMLP": (
            "modeling.LlamaMLP.forward = lambda self, x: x"
        ),
        "attribute model.layers.1.mlp.gain": "model.model.layers[1].mlp.gain = 3.0",
        "training": "model.train()",
    }
    found = fresh.run(
        MODELS
        + """
import os, json
import transformers.models.llama.modeling_llama as modeling
result = {}
before = model_components(llama(num_hidden_layers=4))
for name, change in given.items():
    read, write = os.pipe()
    if not os.fork():
        model = llama(num_hidden_layers=4)
        exec(change)
        os.write(write, json.dumps(differing(before, model_components(model))).encode())
        os._exit(0)
    os.close(write)
    result[name] = json.loads(os.read(read, 1 << 16))
    os.wait()
""",
        given=cases,
    )
    assert found == {name: [name] for name in cases}
