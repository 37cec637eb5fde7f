"""The one view of weights: what it holds, what it means, and which models it refuses."""

from dataclasses import replace
from pathlib import Path

import golden
import jaxtyping
import numpy as np
import pytest
import torch
from live import live_model
from torch import Tensor

from imir_lens.checkpoints import load_checkpoint, transformer_from
from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.lens_model import open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.weights import WEIGHT_NAMES as NAMES
from imir_lens.weights import CircuitWeights, require_supported

DATA = Path(__file__).parent / "data"
SIZES = {"n_layers": 3, "n_heads": 2, "d_model": 7, "d_head": 4, "n_ctx": 6, "d_vocab": 5}


def _config(**changes: object) -> TransformerConfig:
    return TransformerConfig.from_dict({**SIZES, "attn_only": True, "normalization_type": None, **changes})


@pytest.fixture
def state(generator: torch.Generator) -> dict[str, Tensor]:
    """Random weights in which no bias is zero."""
    fresh = ImirTransformer(_config()).state_dict()
    return {key: torch.randn(value.shape, generator=generator) for key, value in fresh.items()}


def _logits(weights: CircuitWeights, tokens: Tensor) -> Tensor:
    """The class's formulas, one head and one query at a time."""
    x = weights.W_E[tokens] + weights.W_pos[: tokens.shape[1]]
    for layer in range(weights.n_layers):
        written = weights.b_O[layer].expand_as(x).clone()
        for head in range(weights.n_heads):
            q = x @ weights.W_Q[layer, head] + weights.b_Q[layer, head]
            k = x @ weights.W_K[layer, head] + weights.b_K[layer, head]
            v = x @ weights.W_V[layer, head] + weights.b_V[layer, head]
            for i in range(tokens.shape[1]):
                scores = (k[:, : i + 1] @ q[:, i, :, None]).squeeze(-1) / weights.scale
                written[:, i] += (scores.softmax(-1)[:, None] @ v[:, : i + 1]).squeeze(1) @ weights.W_O[layer, head]
        x = x + written
    return x @ weights.W_U + weights.b_U


@pytest.mark.parametrize("name", ["recall_2l.pt", "memory_2l.pt"])
def test_the_weights_of_a_file_give_its_models_logits(name: str) -> None:
    checkpoint = load_checkpoint(DATA / name)
    model = transformer_from(checkpoint)
    weights = CircuitWeights.from_state(checkpoint.state_dict, model.cfg)
    tokens = torch.from_numpy(np.load(DATA / "recall_contexts.npz")["tokens"][:8]).long()
    with torch.no_grad():
        expected = model(tokens)
    assert expected.abs().max() > 5
    assert (_logits(weights, tokens) - expected).abs().max() < 1e-4
    assert (_logits(replace(weights, scale=7.0), tokens) - expected).abs().max() > 0.1


def test_every_weight_and_bias_counts(state: dict[str, Tensor]) -> None:
    model = ImirTransformer(_config(attn_scale=1.7))
    model.load_transformer_lens_state(state)
    weights = CircuitWeights.from_state(state, model.cfg)
    tokens = torch.arange(12).view(2, 6) % 5
    with torch.no_grad():
        expected = model(tokens)
    assert (_logits(weights, tokens) - expected).abs().max() < 1e-4 * expected.abs().max()
    for name in NAMES:
        moved = getattr(weights, name) + 1.0 * torch.randn_like(getattr(weights, name))
        changed = (_logits(replace(weights, **{name: moved}), tokens) - expected).abs().max()
        # A key bias adds the same score to every key: a softmax forgets it.
        assert (changed < 1e-4 * expected.abs().max()) == (name == "b_K"), name


def test_sizes_scale_and_merged_products(state: dict[str, Tensor]) -> None:
    weights = CircuitWeights.from_state(state, _config())
    assert {name: getattr(weights, name) for name in SIZES} == SIZES
    assert (weights.d_vocab_out, weights.scale) == (5, 2.0)
    assert CircuitWeights.from_state(state, _config(use_attn_scale=False)).scale == 1.0
    q, k = state["blocks.2.attn.W_Q"][1], state["blocks.2.attn.W_K"][1]
    v, o = state["blocks.2.attn.W_V"][1], state["blocks.2.attn.W_O"][1]
    assert torch.allclose(weights.W_QK(2, 1), q @ k.T / 2.0)
    assert torch.allclose(weights.W_OV(2, 1), v @ o)


def test_missing_biases_are_zeros_and_missing_weights_are_errors(state: dict[str, Tensor]) -> None:
    without = {key: value for key, value in state.items() if not key.rpartition(".")[2].startswith("b_")}
    weights = CircuitWeights.from_state(without, _config())
    for name in NAMES:
        assert bool(getattr(weights, name).any()) != name.startswith("b_"), name
    del without["blocks.1.attn.W_V"]
    with pytest.raises(CheckpointError, match=r"no weight 'blocks.1.attn.W_V': expected one of shape \[2, 7, 4\]"):
        CircuitWeights.from_state(without, _config())
    with pytest.raises(CheckpointError, match=r"no weight 'embed.W_E'"):
        CircuitWeights.from_state({}, _config())


def test_heads_that_are_groups_of_one_are_read_under_their_own_names(state: dict[str, Tensor]) -> None:
    config = _config(n_key_value_heads=2)
    model = ImirTransformer(config)
    kinds = ("W_K", "W_V", "b_K", "b_V")
    grouped = {key.replace("attn.", "attn._") if key.endswith(kinds) else key: value for key, value in state.items()}
    model.load_transformer_lens_state(grouped)
    weights, expected = CircuitWeights.from_state(grouped, config), CircuitWeights.from_state(state, _config())
    assert weights.sha256() == expected.sha256()
    assert CircuitWeights.from_state(model.state_dict(), model.cfg).sha256() == expected.sha256()
    without = {key: value for key, value in grouped.items() if not key.endswith("b_K")}
    assert not CircuitWeights.from_state(without, config).b_K.any()
    with pytest.raises(CheckpointError, match=r"no weight 'blocks.0.attn._W_K'"):
        CircuitWeights.from_state(state, config)


@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
def test_heads_that_are_groups_of_one_open_live_and_from_a_file(tmp_path: Path, generator: torch.Generator) -> None:
    kind = {"attn_only": True, "normalization_type": None, "n_key_value_heads": 2, "seed": 0}
    model = live_model({**SIZES, **kind})
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    torch.save({"state_dict": model.state_dict(), "cfg": model.cfg.to_dict()}, tmp_path / "groups.pt")
    tokens = torch.arange(12).view(2, 6) % 5
    with torch.no_grad():
        expected = model(tokens)
    for opened in (open_model(model), open_model(tmp_path / "groups.pt")):
        for name in ("W_K", "W_V", "b_K", "b_V"):
            assert torch.equal(getattr(opened.weights, name), getattr(model, name)), name
        assert opened.weights.b_K.abs().min() > 0
        torch.testing.assert_close(opened.logits(tokens), expected)


def test_the_view_is_a_detached_copy_in_a_full_precision(state: dict[str, Tensor]) -> None:
    model = ImirTransformer(_config())
    weights = CircuitWeights.from_state(dict(model.named_parameters()), model.cfg)
    before = weights.W_Q.clone()
    assert before.abs().max() > 0
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
    assert torch.equal(weights.W_Q, before)
    assert not weights.W_Q.requires_grad
    for dtype, kept in [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ]:
        cast = CircuitWeights.from_state({key: value.to(dtype) for key, value in state.items()}, _config())
        assert {getattr(cast, name).dtype for name in NAMES} == {kept}
        assert (cast.W_E - state["embed.W_E"]).abs().max() < 0.02


def test_the_digest_depends_on_values_and_nothing_else(state: dict[str, Tensor]) -> None:
    digest = CircuitWeights.from_state(state, _config()).sha256()
    transposed = {key: value.mT.contiguous().mT if value.ndim > 1 else value for key, value in state.items()}
    assert CircuitWeights.from_state(transposed, _config(model_name="other")).sha256() == digest
    assert CircuitWeights.from_state(state, _config()).to("cpu").sha256() == digest
    assert CircuitWeights.from_state(state, _config(attn_scale=3.0)).sha256() != digest
    state["blocks.2.attn.b_O"][0] += 1e-3
    assert CircuitWeights.from_state(state, _config()).sha256() != digest


def test_shapes_that_do_not_fit_are_named_with_their_axes(
    state: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        CheckpointError, match=r"'blocks.0.attn.W_Q' has shape .2, 7, 4., but the config says .head=1, "
    ):
        CircuitWeights.from_state(state, _config(n_heads=1))
    weights = CircuitWeights.from_state(state, _config())
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users run without the suite's shape checks
    with pytest.raises(CheckpointError, match=r"W_U has shape \[8, 5\]: expected \[d_model=7, vocab_out\]"):
        replace(weights, W_U=torch.zeros(8, 5))
    with pytest.raises(CheckpointError, match=r"b_Q has shape \[3, 4\]: expected \[layer=3, head=2, d_head=4\]"):
        replace(weights, b_Q=torch.zeros(3, 4))


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_another_output_vocabulary_is_refused_by_name(state: dict[str, Tensor], version: str) -> None:
    saved = golden.load(version, "dvout")
    reason = r"an output vocabulary of another size \(d_vocab_out=7, d_vocab=20\)"
    with pytest.raises(UnsupportedModelError, match=reason) as error:
        CircuitWeights.from_state(saved["state_dict"], TransformerConfig.from_dict(saved["cfg"]))
    assert "\n" not in str(error.value)
    require_supported(_config())
