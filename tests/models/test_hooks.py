"""The hooks of HookedTransformer-format models, and the cache made from them."""

import pytest
import torch
from small_models import CONFIGS, FULL, GROUPED, PLAIN, build, tokens

from imir_lens.errors import OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer


def all_switches_on(config: TransformerConfig) -> ImirTransformer:
    model = build(config)
    model.set_use_attn_result(True)
    model.set_use_split_qkv_input(True)
    if config.n_key_value_heads is None:
        model.set_use_attn_in(True)
    if not config.attn_only:
        model.set_use_hook_mlp_in(True)
    return model


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_an_edit_at_every_hook_changes_the_logits(config):
    model, generator = all_switches_on(config), torch.Generator().manual_seed(3)
    reference = build(config)(tokens()).detach()
    torch.testing.assert_close(model(tokens()), reference)
    silent = {f"blocks.{layer}.{name}" for layer in range(2) for name in ("hook_mlp_in", "hook_mlp_out")}
    never = silent if config.attn_only else set()
    if config.n_key_value_heads is not None:
        never = never | {"blocks.0.hook_attn_in", "blocks.1.hook_attn_in"}
    if config.positional_embedding_type == "alibi":
        never = never | {"hook_pos_embed"}
    if config.positional_embedding_type == "shortformer":
        never = never | {f"blocks.{layer}.attn.hook_attn_input" for layer in range(2)}
    for name in model.hook_dict:
        fired = []

        def edit(tensor, hook, fired=fired):
            fired.append(hook.name)
            return tensor + 0.3 * torch.randn(tensor.shape, generator=generator)

        logits = model.run_with_hooks(tokens(), fwd_hooks=[(name, edit)]).detach()
        assert (set(fired) == set()) == (name in never), name
        assert (float((logits - reference).abs().max()) > 1e-3) != (name in never), name
    untouched = model.run_with_hooks(tokens(), fwd_hooks=[(lambda name: True, lambda tensor, hook: tensor)])
    torch.testing.assert_close(untouched, reference)


def test_scores_are_masked_before_the_softmax_and_can_be_edited():
    model = build(PLAIN)

    def attend_to_oneself(scores, hook):
        assert (scores.isinf() == ~torch.ones(7, 7, dtype=torch.bool).tril()).all()
        return scores.masked_fill(~torch.eye(7, dtype=torch.bool), -torch.inf)

    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_attn_scores", attend_to_oneself)]):
        _, cache = model.run_with_cache(tokens())
    assert torch.equal(cache["pattern", 0], torch.eye(7).expand(3, 2, 7, 7))
    torch.testing.assert_close(cache["z", 0], cache["v", 0])
    assert not torch.equal(cache["pattern", 1], torch.eye(7).expand(3, 2, 7, 7))


def test_a_query_whose_keys_are_all_masked_attends_to_nothing():
    model = build(PLAIN)
    edit = ("blocks.0.attn.hook_attn_scores", lambda scores, hook: torch.full_like(scores, -torch.inf))
    nothing = ("blocks.0.attn.hook_pattern", lambda pattern, hook: torch.zeros_like(pattern))
    logits = model.run_with_hooks(tokens(), fwd_hooks=[edit])
    assert logits.isfinite().all()
    assert torch.equal(logits, model.run_with_hooks(tokens(), fwd_hooks=[nothing]))


@pytest.mark.parametrize("name", ["hook_pos_embed", "hook_embed", "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_v"])
def test_an_edit_in_place_reaches_one_context_and_leaves_gradients_right(name):
    model = build(PLAIN)

    def in_place(tensor, hook):
        tensor[0] = 0.5
        return tensor

    def copied(tensor, hook):
        return torch.cat([torch.full_like(tensor[:1], 0.5), tensor[1:]])

    results = []
    for edit in (in_place, copied):
        logits = model.run_with_hooks(tokens(), fwd_hooks=[(name, edit)])
        results.append((logits, torch.autograd.grad(logits.square().sum(), list(model.parameters()))))
    (logits, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(gradients, expected_gradients)
    assert torch.equal(logits[1:], model(tokens())[1:])
    assert not torch.allclose(logits[0], model(tokens())[0])


def test_switches_choose_which_hooks_fire():
    model = build(FULL)
    optional = {"hook_result", "hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in"}
    _, cache = model.run_with_cache(tokens())
    fired = {name.rpartition(".")[2] for name in cache}
    assert not optional & fired
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(tokens())
    assert {name.rpartition(".")[2] for name in cache} == fired | {"hook_result"}
    assert model.cfg.use_attn_result
    with pytest.raises(OptionError, match="hook_attn_in needs ungrouped keys"):
        build(GROUPED).set_use_attn_in(True)
    with pytest.raises(OptionError, match="hook_mlp_in needs an MLP"):
        build(PLAIN).set_use_hook_mlp_in(True)


def test_a_split_input_reaches_one_head_only():
    model = build(FULL)
    model.set_use_split_qkv_input(True)

    def erase_head_one(tensor, hook):
        tensor[:, :, 1] = 0.0
        return tensor

    _, plain = model.run_with_cache(tokens())
    with model.hooks(fwd_hooks=[("blocks.0.hook_q_input", erase_head_one)]):
        _, edited = model.run_with_cache(tokens())
    assert torch.equal(plain["q", 0][:, :, 0], edited["q", 0][:, :, 0])
    assert not torch.allclose(plain["q", 0][:, :, 1], edited["q", 0][:, :, 1])
    assert torch.equal(plain["k", 0], edited["k", 0])


def test_the_cache_holds_every_shape():
    _, cache = all_switches_on(GROUPED).run_with_cache(tokens())
    residual, per_head, scores = (3, 7, 16), (3, 7, 4, 8), (3, 4, 7, 7)
    shapes = {
        "hook_embed": residual,
        "blocks.0.hook_resid_pre": residual,
        "blocks.1.hook_resid_mid": residual,
        "blocks.1.hook_resid_post": residual,
        "blocks.0.hook_attn_out": residual,
        "blocks.0.hook_mlp_out": residual,
        "blocks.0.hook_q_input": (3, 7, 4, 16),
        "blocks.0.hook_k_input": (3, 7, 2, 16),
        "blocks.0.attn.hook_q": per_head,
        "blocks.0.attn.hook_rot_q": per_head,
        "blocks.0.attn.hook_k": (3, 7, 2, 8),
        "blocks.0.attn.hook_v": (3, 7, 2, 8),
        "blocks.0.attn.hook_z": per_head,
        "blocks.0.attn.hook_result": (3, 7, 4, 16),
        "blocks.0.attn.hook_attn_scores": scores,
        "blocks.0.attn.hook_pattern": scores,
        "blocks.0.mlp.hook_pre": (3, 7, 64),
        "blocks.0.mlp.hook_post": (3, 7, 64),
        "ln_final.hook_scale": (3, 7, 1),
        "ln_final.hook_normalized": residual,
        "unembed.hook_out": (3, 7, 10),
    }
    assert {name: tuple(cache[name].shape) for name in shapes} == shapes


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_cache_is_an_activation_cache(config):
    model = build(config)
    logits, cache = model.run_with_cache(tokens())
    torch.testing.assert_close(logits, model(tokens()))
    assert cache["pattern", 0].sum(-1).allclose(torch.ones(3, config.n_heads, 7))
    final = cache["resid_post", 1]
    assert float(final.abs().max()) > 0.1
    # A shortformer's positions are never in the residual stream; TransformerLens' ActivationCache counts them in.
    too_much = cache["hook_pos_embed"] if config.positional_embedding_type == "shortformer" else 0.0
    parts, labels = cache.decompose_resid(return_labels=True)
    torch.testing.assert_close(parts.sum(0) - too_much, final)
    assert len(labels) == len(parts)
    heads = cache.stack_head_results(layer=2)
    assert heads.shape == (2 * config.n_heads, 3, 7, 16)
    attention = cache["attn_out", 0] + cache["attn_out", 1]
    torch.testing.assert_close(heads.sum(0) + model.b_O.sum(0), attention)
    if config.normalization_type is not None:
        everything = cache.get_full_resid_decomposition(expand_neurons=False)
        torch.testing.assert_close(everything.sum(0) - too_much, final)
        normalised = cache.apply_ln_to_stack(final.unsqueeze(0), layer=2)[0]
        torch.testing.assert_close(normalised, cache["ln_final.hook_normalized"], rtol=1e-4, atol=1e-4)
    direct = cache.logit_attrs(parts[:, :, -1], tokens=tokens()[:, 0], pos_slice=-1)
    assert direct.shape == (len(parts), 3)
    if config.normalization_type is None:
        written = cache["unembed.hook_out"][:, -1].gather(1, tokens()[:, :1])[:, 0] - model.b_U[tokens()[:, 0]]
        torch.testing.assert_close(direct.sum(0), written)


def test_a_single_context_can_lose_its_batch_axis():
    model = build(PLAIN)
    _, cache = model.run_with_cache(tokens(1), remove_batch_dim=True)
    assert cache["pattern", 0].shape == (2, 7, 7)
    _, plain = model.run_with_cache(tokens(1), return_cache_object=False, names_filter="blocks.0.attn.hook_z")
    assert type(plain) is dict and list(plain) == ["blocks.0.attn.hook_z"]
