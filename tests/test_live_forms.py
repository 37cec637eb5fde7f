"""Live models with norms, MLPs and rotary positions, of TransformerLens or Hugging Face: ablated as their twins are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from live import live_model, needs_native_bridge
from test_forms import project, some_of_each_kind
from test_live_bridge import bridge_over
from toy_task import VOCAB, toy_batch

from imir_lens.ablation import ablate
from imir_lens.evaluation import at_queries
from imir_lens.lens_model import LensModel, open_model
from imir_lens.model_vocabulary import ModelInVocabulary
from imir_lens.vocabulary import TaskVocabulary

SHAPE = {"n_layers": 2, "n_heads": 2, "d_model": 12, "d_head": 6, "d_vocab": VOCAB, "n_ctx": 9, "seed": 0}
FORMS: dict[str, dict[str, Any]] = {
    "LN": {"attn_only": True, "normalization_type": "LN"},
    "RMS, rotary": {
        "attn_only": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 6,
        "rotary_adjacent_pairs": True,
    },
    "LN, MLP": {"normalization_type": "LN", "act_fn": "gelu"},
    "RMS, gated MLP, grouped": {
        "normalization_type": "RMS",
        "act_fn": "silu",
        "gated_mlp": True,
        "n_key_value_heads": 1,
    },
}
pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def _shaken(model: Any) -> Any:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if ("ln" in name or "norm" in name) and parameter.ndim == 1 and "b" not in name[-4:] else 0.0
            parameter.copy_(around + 0.4 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def _assert_ablated_as_its_twin(lens: LensModel) -> None:
    batch = toy_batch(6)
    twin = lens.on_twin()
    assert twin.model is not lens.model
    coordinates = project(lens, toy_batch(64, seed=5))
    names = some_of_each_kind(coordinates)
    before = {name: value.clone() for name, value in lens.model.state_dict().items()}
    found, expected = (ablate(model, coordinates, names, batch).log_softmax(-1) for model in (lens, twin))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    plain = at_queries(lens.logits(batch.tokens), batch).log_softmax(-1)
    assert (found - plain).abs().max() > 0.05
    assert lens.hooks_proved
    assert all(torch.equal(value, before[name]) for name, value in lens.model.state_dict().items())


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_a_live_model_is_ablated_as_its_twin(changes: dict[str, Any]) -> None:
    _assert_ablated_as_its_twin(open_model(_shaken(live_model({"normalization_type": None, **SHAPE, **changes}))))


@needs_native_bridge
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
@pytest.mark.parametrize("compatible", [False, True])
def test_a_bridge_over_hugging_face_is_ablated_as_its_twin(kind: str, compatible: bool, tmp_path: Path) -> None:
    bridge = bridge_over(kind, tmp_path)
    if compatible:
        bridge.enable_compatibility_mode()
    vocabulary = TaskVocabulary.of_ids(range(7, 7 + VOCAB - 1), filler=1)
    _assert_ablated_as_its_twin(ModelInVocabulary(open_model(bridge), vocabulary))
