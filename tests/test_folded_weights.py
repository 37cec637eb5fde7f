"""The view of weights of models with norms, rotary and other positions, grouped keys, windows, caps and MLPs.

A forward pass written from the view alone (and the model's own MLPs, which it does not hold) gives the model's logits.
"""

from dataclasses import replace

import golden
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.folding import fold_norm
from imir_lens.models.alibi import alibi_bias
from imir_lens.models.config import TransformerConfig
from imir_lens.models.norms import make_norm
from imir_lens.models.soft_cap import soft_capped
from imir_lens.models.transformer import ImirTransformer
from imir_lens.weights import CircuitWeights

VARIANTS = [name for name in golden.SUPPORTED if name != "dvout"]


def logits_of(weights: CircuitWeights, model: ImirTransformer, tokens: Int[Tensor, "context position"]) -> Tensor:
    """Run a model from the view of its weights; only its MLPs are its own."""
    form, n = weights.form, tokens.shape[1]
    x = weights.W_E[tokens]
    if form.positions == "standard":
        x = x + weights.W_pos[:n]
    for layer in range(weights.n_layers):
        read, _ = divided(x, model.cfg, centred=form.norm == "LN")
        written = weights.b_O[layer].expand_as(x)
        for head in range(weights.n_heads):
            v = read @ weights.W_V[layer, head] + weights.b_V[layer, head]
            scores = soft_capped(seen_by(weights, read, layer, head), form.score_cap)
            if form.positions == "alibi":
                scores = scores + alibi_bias(weights.n_heads, n)[head]
            pattern = scores.masked_fill(form.hidden(layer, n), -torch.inf).softmax(-1)
            written = written + pattern @ v @ weights.W_O[layer, head]
        before, x = x, x + written
        if form.mlp != "none":
            block = model.blocks[layer]
            x = x + block.mlp(block.ln2(before if form.mlp == "beside" else x))
    centred = form.norm == "LN" and not model.cfg.final_rms
    read, _ = divided(x, model.cfg, centred=centred)
    return soft_capped(read @ weights.W_U + weights.b_U, form.logit_cap)


def seen_by(weights: CircuitWeights, read: Float[Tensor, "context position d_model"], layer: int, head: int) -> Tensor:
    """A head's `q·k / scale` for all pairs of positions."""
    form, n = weights.form, read.shape[1]
    q = read @ weights.W_Q[layer, head] + weights.b_Q[layer, head]
    k = read @ weights.W_K[layer, head] + weights.b_K[layer, head]
    if form.positions == "shortformer":
        assert weights.pos_Q is not None
        assert weights.pos_K is not None
        q, k = q + weights.pos_Q[layer, head, :n], k + weights.pos_K[layer, head, :n]
    if form.positions == "rotary":
        cos, sin = (table.to(q) for table in form.rotation(layer, n, weights.d_head))
        q, k = (y * cos + form.turned(y) * sin for y in (q, k))
    return q @ k.mT / weights.scale


def divided(
    x: Float[Tensor, "*rows d_model"], config: TransformerConfig, *, centred: bool
) -> tuple[Tensor, Float[Tensor, "*rows"]]:
    """The stream as norms hand it on but for their weights, and what it was multiplied by."""
    if config.normalization_type is None:
        return x, torch.ones_like(x[..., 0])
    y = x - x.mean(-1, keepdim=True) if centred else x
    inverse = 1 / (y.pow(2).mean(-1) + config.eps).sqrt()
    return x * inverse.unsqueeze(-1), inverse


def _random(model: ImirTransformer, generator: torch.Generator) -> ImirTransformer:
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("version", golden.VERSIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_view_of_every_saved_variant_gives_the_logits_that_were_saved(version: str, variant: str) -> None:
    saved = golden.load(version, variant)
    model = ImirTransformer(TransformerConfig.from_dict(saved["cfg"]))
    model.load_transformer_lens_state(saved["state_dict"])
    weights = CircuitWeights.from_state(saved["state_dict"], model.cfg)
    found, expected = logits_of(weights, model.eval(), saved["x"]), saved["y"]
    assert expected.abs().max() > 0.1
    assert (found - expected).abs().max() < 1e-5 * max(1.0, float(expected.abs().max()))
    assert (logits_of(replace(weights, W_Q=weights.W_Q.roll(1, 3)), model, saved["x"]) - expected).abs().max() > 1e-4


MIXED = {
    "norm weights and biases": {"normalization_type": "LN"},
    "an RMS norm": {"normalization_type": "RMS"},
    "a last RMS norm": {"normalization_type": "LN", "final_rms": True},
    "grouped keys": {"n_key_value_heads": 2, "normalization_type": "LN"},
    "partial rotary": {"positional_embedding_type": "rotary", "rotary_dim": 4, "n_key_value_heads": 2},
    "adjacent rotary": {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": True},
    "caps": {"attn_scores_soft_cap": 2.0, "output_logits_soft_cap": 3.0, "normalization_type": "RMSPre"},
    "shortformer behind a norm": {"positional_embedding_type": "shortformer", "normalization_type": "LN"},
    "parallel MLPs": {"attn_only": False, "parallel_attn_mlp": True, "normalization_type": "LN", "act_fn": "gelu"},
    "a window": {"use_local_attn": True, "attn_types": ["local", "global"], "window_size": 3},
    "both directions": {"attention_dir": "bidirectional", "positional_embedding_type": "alibi"},
}


@torch.no_grad()
@pytest.mark.parametrize("changes", MIXED.values(), ids=MIXED)
def test_the_view_computes_what_a_model_with_large_random_weights_does(
    changes: dict[str, object], generator: torch.Generator
) -> None:
    shape = {"n_layers": 2, "n_heads": 4, "d_model": 12, "d_head": 6, "n_ctx": 9, "d_vocab": 7, "attn_only": True}
    model = _random(
        ImirTransformer(TransformerConfig.from_dict({**shape, "normalization_type": None, **changes})), generator
    )
    weights = CircuitWeights.from_state(model.state_dict(), model.cfg)
    tokens = torch.randint(7, (3, 9), generator=generator)
    expected = model(tokens)
    assert expected.abs().max() > 0.5
    assert (logits_of(weights, model, tokens) - expected).abs().max() < 1e-4 * expected.abs().max()
    assert not weights.form.plain


def test_a_folded_norm_is_the_norm(generator: torch.Generator) -> None:
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((1, 5, 8), (8, 3), (3,)))
    norm = make_norm("LN", 8, eps=0.0, dtype=torch.float32)
    norm.w.data, norm.b.data = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
    folded, shifted = fold_norm(weight, bias, (norm.w, norm.b), centred=True)
    sigma = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(x / sigma @ folded + shifted, norm(x) @ weight + bias)
    uncentred, _ = fold_norm(weight, bias, (norm.w, norm.b), centred=False)
    assert (uncentred - folded).abs().max() > 0.1
