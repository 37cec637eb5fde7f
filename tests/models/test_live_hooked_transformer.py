"""Hook by hook against the HookedTransformer of TransformerLens 3, where it exists."""

import pytest
import torch

from imir_lens.compat import hooked_transformer_class
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

HookedTransformer = hooked_transformer_class()
pytestmark = [
    pytest.mark.skipif(
        HookedTransformer is None, reason="this TransformerLens has no HookedTransformer to compare with"
    ),
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated"),
]
SIZES = {"d_model": 24, "d_head": 8, "n_heads": 4, "n_layers": 2, "n_ctx": 10, "d_vocab": 11, "initializer_range": 0.3}
ATTENTION = {**SIZES, "attn_only": True}
VARIANTS = {
    "attention only": {**ATTENTION, "normalization_type": None},
    "rotary in part": {**ATTENTION, "positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 50.0},
    "rotary adjacent": {**SIZES, "positional_embedding_type": "rotary", "rotary_adjacent_pairs": True},
    "grouped": {**SIZES, "n_key_value_heads": 2, "act_fn": "silu"},
    "ungrouped": {**SIZES, "n_key_value_heads": 2, "act_fn": "silu", "ungroup_grouped_query_attention": True},
    "final rms": {**SIZES, "final_rms": True},
    "other scale": {**ATTENTION, "attn_scale": 3.0, "d_vocab_out": 5, "attention_dir": "bidirectional"},
    "folded solu": {**SIZES, "normalization_type": "LNPre", "act_fn": "solu_ln", "final_rms": True},
    **{f"norm {kind}": {**SIZES, "normalization_type": kind, "eps": 0.01} for kind in ("LN", "LNPre", "RMS", "RMSPre")},
    **{act: {**SIZES, "act_fn": act} for act in ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "solu_ln")},
    "gated": {**SIZES, "gated_mlp": True, "act_fn": "silu", "normalization_type": "RMS"},
    "gated solu": {**SIZES, "gated_mlp": True, "act_fn": "solu_ln"},
    "parallel": {**SIZES, "parallel_attn_mlp": True, "act_fn": "gelu"},
    "capped": {**ATTENTION, "attn_scores_soft_cap": 0.7, "output_logits_soft_cap": 2.0, "attn_scale": 3.0},
    "alibi": {**SIZES, "positional_embedding_type": "alibi", "n_heads": 3, "attn_scores_soft_cap": 3.0},
    "alibi both ways": {**ATTENTION, "positional_embedding_type": "alibi", "attention_dir": "bidirectional"},
    "shortformer": {**SIZES, "positional_embedding_type": "shortformer", "normalization_type": "LN"},
    "local": {**SIZES, "use_local_attn": True, "attn_types": ("local", "global"), "window_size": 3},
    "local rotary": {
        **ATTENTION,
        **{"positional_embedding_type": "rotary", "rotary_base_local": 20.0, "attention_dir": "bidirectional"},
        **{"use_local_attn": True, "attn_types": ("global", "local"), "window_size": 3},
    },
    "half precision": {**SIZES, "dtype": torch.bfloat16},
}
SWITCHES = {
    "plain": {},
    "split": {"use_attn_result": True, "use_split_qkv_input": True, "use_hook_mlp_in": True},
    "attn_in": {"use_attn_in": True},
}


def pair(cfg):
    """A HookedTransformer with all weights random, and our model with the same weights."""
    config = TransformerConfig(**cfg)
    theirs = HookedTransformer(config.to_dict())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator).to(parameter)
    ours = ImirTransformer(TransformerConfig.from_dict(theirs.cfg.to_dict()))
    ours.load_transformer_lens_state(theirs.state_dict())
    return theirs, ours, torch.randint(11, (3, 9), generator=generator)


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
@pytest.mark.parametrize("cfg", VARIANTS.values(), ids=VARIANTS)
def test_every_hook_has_the_same_name_and_value(cfg, switches):
    if switches.get("use_attn_in") and cfg.get("n_key_value_heads"):
        pytest.skip("hook_attn_in needs ungrouped keys, in both models")
    theirs, ours, tokens = pair({**cfg, **switches})
    assert set(ours.hook_dict) == set(theirs.hook_dict)
    expected_logits, expected = theirs.run_with_cache(tokens)
    logits, found = ours.run_with_cache(tokens)
    assert set(found.keys()) == set(expected.keys())
    tolerance = 0.05 if cfg.get("dtype") is torch.bfloat16 else 2e-5
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        assert found[name].dtype == value.dtype, name
        largest = float(value.masked_fill(value.isinf(), 0).abs().max())
        assert largest > 1e-2, name
        bound = tolerance * max(1.0, largest)
        torch.testing.assert_close(found[name], value, rtol=0, atol=bound, msg=lambda m, n=name: f"{n}: {m}")
    torch.testing.assert_close(logits, expected_logits, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "name",
    [
        "attention only",
        "rotary in part",
        "grouped",
        "norm LN",
        "solu_ln",
        "gated",
        "parallel",
        "capped",
        "shortformer",
        "local",
    ],
)
def test_gradients_are_the_same(name):
    theirs, ours, tokens = pair(VARIANTS[name])
    theirs(tokens).square().mean().backward()
    ours(tokens).square().mean().backward()
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    found = {name: parameter.grad for name, parameter in ours.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float(expected["blocks.0.attn.W_Q"].abs().max()) > 1e-4


@pytest.mark.parametrize("place", ["hook_q", "hook_k", "hook_v", "hook_attn_scores", "hook_pattern", "hook_z"])
def test_an_edit_has_the_same_effect(place):
    theirs, ours, tokens = pair(VARIANTS["norm LN"])
    hooks = [(f"blocks.0.attn.{place}", lambda tensor, hook: tensor * 0.5)]
    expected, found = (model.run_with_hooks(tokens, fwd_hooks=hooks) for model in (theirs, ours))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    assert not torch.allclose(expected, theirs(tokens), atol=1e-3)


def test_the_bias_that_accumulates_is_the_same():
    theirs, ours, _ = pair(VARIANTS["norm LN"])
    for layer, mlp_input in ((0, True), (1, False), (1, True), (2, False)):
        expected = theirs.accumulated_bias(layer, mlp_input)
        torch.testing.assert_close(ours.accumulated_bias(layer, mlp_input), expected)
    assert torch.equal(
        ours.tokens_to_residual_directions(torch.arange(3)), theirs.tokens_to_residual_directions(torch.arange(3))
    )
