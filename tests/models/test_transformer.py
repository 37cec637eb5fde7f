"""The logits and weights of HookedTransformer-format models."""

import random
from dataclasses import replace

import golden
import numpy as np
import pytest
import torch
from small_models import CONFIGS, FULL, GATED, GROUPED, PLAIN, build, load, tokens

from imir_lens.errors import CheckpointError, OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.state import split_buffers
from imir_lens.models.transformer import ImirTransformer


@pytest.mark.parametrize("version", golden.VERSIONS)
@pytest.mark.parametrize("variant", golden.SUPPORTED)
def test_logits_are_those_of_transformer_lens(version, variant):
    saved = golden.load(version, variant)
    model = load(TransformerConfig.from_dict(saved["cfg"]), saved["state_dict"])
    logits, largest = model(saved["x"]).detach(), float(saved["y"].abs().max())
    assert largest > 0.1
    # One rounding of float32 at 128, the largest logit here, is 1.5e-5; on one machine all differences are zero.
    assert float((logits - saved["y"]).abs().max()) <= 1e-5 + 1e-6 * largest


@pytest.mark.parametrize(
    ("variant", "change"),
    [
        ("noscale", {"use_attn_scale": True}),
        ("attn_none", {"use_attn_scale": False}),
        ("attn_none", {"attention_dir": "bidirectional"}),
        ("bidir", {"attention_dir": "causal"}),
        ("attn_ln", {"eps": 0.1}),
        ("attn_lnpre", {"normalization_type": "RMSPre"}),
        ("attn_lnpre", {"final_rms": True}),
        ("mlp_ln", {"act_fn": "relu"}),
        ("rotary", {"rotary_adjacent_pairs": True}),
        ("rotary", {"rotary_dim": 8}),
        ("rotary", {"rotary_base": 100.0}),
        ("alibi", {"positional_embedding_type": "standard"}),
        ("alibi", {"attention_dir": "bidirectional"}),
        ("local", {"use_local_attn": False}),
        ("local", {"window_size": 3}),
        ("local", {"attn_types": ("local", "global")}),
        ("shortformer", {"positional_embedding_type": "standard"}),
        ("attn_none", {"attn_scores_soft_cap": 2.0}),
        ("attn_none", {"output_logits_soft_cap": 2.0}),
        ("gated", {"act_fn": "gelu"}),
        ("parallel", {"parallel_attn_mlp": False}),
    ],
)
def test_each_choice_of_the_config_changes_the_logits(variant, change):
    saved = golden.load("v39", variant)
    weights = split_buffers(saved["state_dict"])[0]
    model = load(replace(TransformerConfig.from_dict(saved["cfg"]), **change), weights)
    assert float((model(saved["x"]).detach() - saved["y"]).abs().max()) > 1e-2


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_later_token_does_not_change_earlier_logits(config):
    changed = tokens()
    changed[:, 5] = (changed[:, 5] + 1) % 10
    causal, both_ways = build(config), build(replace(config, attention_dir="bidirectional"))
    assert torch.equal(causal(tokens())[:, :5], causal(changed)[:, :5])
    assert not torch.equal(causal(tokens())[:, 5:], causal(changed)[:, 5:])
    assert not torch.allclose(both_ways(tokens())[:, :5], both_ways(changed)[:, :5])


@pytest.mark.parametrize("adjacent", [False, True])
def test_rotary_scores_depend_on_the_distance_only(adjacent):
    config = replace(PLAIN, positional_embedding_type="rotary", rotary_adjacent_pairs=adjacent)
    same_token = torch.full((1, 8), 3)
    model = build(config)
    _, cache = model.run_with_cache(same_token, names_filter="blocks.0.attn.hook_attn_scores")
    scores = cache["attn_scores", 0][0, 0]
    for offset in range(4):
        diagonal = scores.diagonal(-offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert abs(scores[3, 3] - scores[3, 2]) > 1e-3


def test_a_context_longer_than_n_ctx_is_refused():
    with pytest.raises(OptionError, match=r"^contexts of 13 tokens are longer than the model's n_ctx=12$"):
        build(PLAIN)(tokens(length=13))


@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre"])
def test_half_precision_is_normalised_in_single_precision(kind):
    config = replace(PLAIN, normalization_type=kind, dtype=torch.bfloat16)
    model = build(config)
    logits, cache = model.run_with_cache(tokens())
    assert logits.dtype == torch.bfloat16
    assert cache["ln_final.hook_scale"].dtype == torch.float32
    exact = build(config).to(torch.float32)(tokens())
    assert float((logits - exact).detach().abs().max()) < 0.05 * float(exact.detach().abs().max())


def test_fresh_weights_come_from_the_generator_alone():
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    first, second, other = (
        ImirTransformer(FULL, generator=torch.Generator().manual_seed(seed)).state_dict() for seed in (5, 5, 6)
    )
    default = [ImirTransformer(FULL).state_dict() for _ in range(2)]
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()
    assert torch.equal(torch.get_rng_state(), states[2])
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(default[0][name], default[1][name]) for name in first)
    assert all(torch.equal(first[name], other[name]) != ("W_" in name) for name in first)
    assert first["blocks.0.mlp.W_in"].std() == pytest.approx(0.5, rel=0.05)
    assert not any(first[name].any() for name in first if "b_" in name)


def test_stacked_weights_expand_grouped_heads():
    model = build(GROUPED)
    assert model.blocks[0].attn._W_K.shape == (2, 16, 8)
    assert model.W_K.shape == model.W_V.shape == model.W_Q.shape == (2, 4, 16, 8)
    assert torch.equal(model.W_K[1, 3], model.blocks[1].attn._W_K[1])
    assert torch.equal(model.b_V[0, 1], model.blocks[0].attn._b_V[0])
    assert (model.W_O.shape, model.W_in.shape, model.b_out.shape) == ((2, 4, 8, 16), (2, 16, 64), (2, 16))
    assert (model.W_E.shape, model.W_U.shape, model.b_U.shape) == ((10, 16), (16, 10), (10,))
    assert not hasattr(model, "W_pos")
    assert build(PLAIN).W_pos.shape == (12, 16)


def test_stacked_gates_are_there_in_gated_models_only():
    model = build(GATED)
    assert model.W_gate.shape == model.W_in.shape == (2, 16, 64)
    assert torch.equal(model.W_gate[1], model.blocks[1].mlp.W_gate)
    assert build(FULL).W_gate is None


def test_grouped_heads_compute_what_expanded_heads_compute():
    grouped = build(GROUPED)
    expanded = ImirTransformer(replace(GROUPED, n_key_value_heads=None))
    state = {}
    for name, value in grouped.state_dict().items():
        name = name.replace("attn._", "attn.")
        shared = name.endswith(("W_K", "W_V", "b_K", "b_V"))
        state[name] = value.repeat_interleave(2, dim=0) if shared else value
    expanded.load_transformer_lens_state(state)
    torch.testing.assert_close(grouped(tokens()), expanded(tokens()))
    grouped.set_ungroup_grouped_query_attention(True)
    logits, cache = grouped.run_with_cache(tokens())
    torch.testing.assert_close(logits, expanded(tokens()))
    assert cache["k", 0].shape == (3, 7, 4, 8)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_models_can_be_stacked_and_differentiated_by_function(config):
    models = [build(config, seed) for seed in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    contexts = tokens()

    def loss(parameters, buffers):
        return torch.func.functional_call(models[0], (parameters, buffers), (contexts,)).square().mean()

    gradients = torch.func.vmap(torch.func.grad(loss))(parameters, buffers)
    weights = list(models[2].parameters())
    # W_pos of an ALiBi model is not read: its gradient is zero.
    expected = torch.autograd.grad(models[2](contexts).square().mean(), weights, materialize_grads=True)
    torch.testing.assert_close([value[2] for value in gradients.values()], list(expected))
    assert float(expected[0].abs().max()) > 1e-3


def test_the_config_follows_the_model():
    model = build(PLAIN).double()
    assert (model.cfg.dtype, model.cfg.device, model.cfg.n_heads) == (torch.float64, "cpu", 2)
    assert model(tokens()).dtype == torch.float64


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_size_of_a_model_is_told_by_its_config(config):
    model = ImirTransformer(config)
    held = sum(p.numel() for name, p in model.named_parameters() if "W_" in name) + model.future.numel()
    assert config.n_numbers == held


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 10**7}, "cfg gives n_layers=10,000,000: expected at most 1,000"),
        ({"n_ctx": 10**6}, "cfg asks for a model of 1,000,016,002,368 numbers (weights and masks): expected at most 2"),
        ({"n_ctx": 10**12}, "cfg asks for a model of more than 10^24 numbers"),
        ({"d_vocab": 10**11}, "cfg asks for a model of 1,600,000,002,544 numbers"),
        ({"n_heads": 10**11}, "cfg asks for a model of 102,400,000,000,656 numbers"),
        ({"d_model": 10**8}, "cfg asks for a model of 16,000,000,144 numbers"),
    ],
)
def test_a_model_beyond_reason_is_refused_before_anything_is_allocated(change, message):
    with pytest.raises(CheckpointError) as error:
        ImirTransformer(replace(PLAIN, **change))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_on_the_device_meta_a_model_has_shapes_only():
    with torch.device("meta"):
        model = ImirTransformer(replace(FULL, d_vocab=10**7))
    assert model.embed.W_E.is_meta
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    assert shapes.pop("embed.W_E") == (10**7, 16)
    assert shapes.items() <= {name: value.shape for name, value in ImirTransformer(FULL).state_dict().items()}.items()
