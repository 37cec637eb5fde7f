"""Coordinates of every form of model, against dense formulas: their values, their terms, and their removal."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from brute_force import named, readout_term, rows, score_term
from test_folded_weights import divided, seen_by
from toy_task import VOCAB, ToyTask, toy_batch

from imir_lens.ablation import ablate, ablate_mask
from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError
from imir_lens.explained import capture, explain
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel, open_model
from imir_lens.linear_stream import measure_stream
from imir_lens.models.alibi import alibi_slopes
from imir_lens.models.config import TransformerConfig
from imir_lens.models.soft_cap import soft_capped
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.tasks.base import Batch

FORMS: dict[str, dict[str, Any]] = {
    "LN": {"normalization_type": "LN"},
    "LNPre": {"normalization_type": "LNPre"},
    "RMS": {"normalization_type": "RMS"},
    "last RMS": {"normalization_type": "LN", "final_rms": True},
    "rotary": {"positional_embedding_type": "rotary"},
    "partial rotary behind RMS": {
        "positional_embedding_type": "rotary",
        "rotary_dim": 4,
        "normalization_type": "RMS",
        "rotary_base": 50.0,
    },
    "adjacent rotary": {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": True},
    "ALiBi": {"positional_embedding_type": "alibi"},
    "shortformer": {"positional_embedding_type": "shortformer", "normalization_type": "LN"},
    "grouped": {"n_key_value_heads": 1, "normalization_type": "RMS"},
    "score cap": {"attn_scores_soft_cap": 2.0},
    "logit cap": {"output_logits_soft_cap": 4.0},
    "both caps, LN, ALiBi": {
        "attn_scores_soft_cap": 3.0,
        "output_logits_soft_cap": 5.0,
        "normalization_type": "LN",
        "positional_embedding_type": "alibi",
    },
    "window": {"use_local_attn": True, "attn_types": ["local", "global"], "window_size": 3},
    "bidirectional": {"attention_dir": "bidirectional"},
    "no attention scale": {"use_attn_scale": False},
}
MLPS: dict[str, dict[str, Any]] = {
    "MLP": {"act_fn": "gelu", "normalization_type": "LN"},
    "parallel MLP": {"act_fn": "relu", "normalization_type": "LN", "parallel_attn_mlp": True},
    "gated MLP": {
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "n_key_value_heads": 1,
    },
    "MLP without norm": {"act_fn": "gelu_new"},
    "solu": {"act_fn": "solu_ln", "normalization_type": "LN"},
}


def model_of(changes: dict[str, Any], *, attn_only: bool = True, seed: int = 1) -> LensModel:
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 12, "d_head": 6, "d_vocab": VOCAB, "n_ctx": 9}
    config = {**shape, "attn_only": attn_only, "normalization_type": None, "dtype": "float64", **changes}
    model = ImirTransformer(TransformerConfig.from_dict(config))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        around = 1.0 if name.endswith(".w") else 0.0
        parameter.data.copy_(around + 0.5 * torch.randn(parameter.shape, generator=generator))
    return open_model(model.eval())


def project(model: LensModel, batch: Batch) -> Coordinates:
    projector = ImirProjector.for_task(ToyTask(), min_coordinate=0.0)
    return projector.fit(model.weights, measure_stream(model, batch)).coordinates_


def logits_without(model: LensModel, coordinates: Coordinates, removed: list[str], batch: Batch) -> torch.Tensor:
    """The model's forward pass, with some coordinates' terms taken off its scores and logits by dense formulas."""
    w, space, tokens, config = model.weights, coordinates.space, batch.tokens, model.model.cfg
    form, n, relations = w.form, tokens.shape[1], space.relations
    scales = space.scales
    values = {name: coordinates[name] for name in removed}
    x = w.W_E[tokens] + (w.W_pos[:n] if form.positions == "standard" else 0)
    moved: dict[tuple[int, int], torch.Tensor] = {}
    for layer in range(w.n_layers):
        read, inverse = divided(x, config, centred=form.norm == "LN")
        query_factor = key_factor = torch.ones(tokens.shape, dtype=torch.float64)
        if scales is not None:
            query_factor, key_factor = inverse / scales.query[layer], inverse / scales.key[layer]
        written, new = w.b_O[layer].expand_as(x), {}
        for index in range(w.n_heads):
            scores = seen_by(w, read, layer, index)  # raw: q·k / scale
            slope = 1.0 if scales is None else scales.score_slopes[layer][index]
            beside = torch.zeros_like(scores)
            for name, value in values.items():
                if not name.startswith(f"L{layer}H{index}/"):
                    continue
                term = score_term(relations, name, moved, tokens) * key_factor.unsqueeze(1)
                if "q:const" not in name:
                    term = term * query_factor.unsqueeze(2)
                if "offset" in name and form.positions != "standard":
                    term = score_term(relations, name, {}, tokens)
                if "offset" in name and form.positions == "alibi":
                    beside = beside - value * term  # ALiBi comes after the cap
                else:
                    scores = scores - value * term / slope
            scores = soft_capped(scores, form.score_cap) + beside
            if form.positions == "alibi":
                back = (torch.arange(n).unsqueeze(1) - torch.arange(n)).clamp(min=0)
                scores = scores - alibi_slopes(w.n_heads)[index].double() * back
            pattern = scores.masked_fill(form.hidden(layer, n), -torch.inf).softmax(-1)
            new[layer, index] = pattern * key_factor.unsqueeze(1)
            v = read @ w.W_V[layer, index] + w.b_V[layer, index]
            written = written + pattern @ v @ w.W_O[layer, index]
        moved |= new
        before, x = x, x + written
        if form.mlp != "none":
            block = model.model.blocks[layer]
            x = x + block.mlp(block.ln2(before if form.mlp == "beside" else x))
    read, inverse = divided(x, config, centred=form.norm == "LN" and not config.final_rms)
    logits = read @ w.W_U + w.b_U
    factor = torch.ones_like(inverse) if scales is None else inverse / scales.readout
    slope = 1.0 if scales is None else scales.logit_slope
    for name, value in values.items():
        if name.startswith("readout/"):
            term = readout_term(relations, name, moved, tokens)
            logits = logits - value / slope * (term if "const" in name else term * factor.unsqueeze(2))
    return rows(soft_capped(logits, form.logit_cap), batch.queries)


def some_of_each_kind(coordinates: Coordinates) -> list[str]:
    names = named(coordinates)

    def largest_offset(head: str) -> str:
        return max((name for name in names if f"{head}/score/q:res/k:res/offset" in name), key=lambda n: abs(names[n]))

    wanted = (
        largest_offset("L0H0"),
        "L0H1/score/q:res/k:res/same",
        "L1H0/score/q:res/k:L0H0/same",
        "L1H0/score/q:L0H1/k:res/assoc",
        "L1H1/score/q:L0H0/k:L0H1/noun>verb",
        largest_offset("L1H1"),
        "L1H0/score/q:const/k:L0H1/name",
        "readout/via:L0H0.L1H1/same",
        "readout/via:res/assoc-reverse",
        "readout/via:const/verb",
    )
    assert set(wanted) <= set(names)
    return list(wanted)


@torch.no_grad()
@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_removing_coordinates_is_taking_their_dense_terms_off(changes: dict[str, Any]) -> None:
    model, batch = model_of(changes), toy_batch(6)
    coordinates = project(model, toy_batch(64, seed=5))
    names = some_of_each_kind(coordinates)
    plain = rows(model.logits(batch.tokens), batch.queries)
    torch.testing.assert_close(logits_without(model, coordinates, [], batch), plain)
    for removed in ([names[0]], [names[2]], [names[6]], names[7:], names):
        expected = logits_without(model, coordinates, removed, batch)
        found = ablate(model, coordinates, removed, batch)
        # Constants over the vocabulary change no prediction; with a logit cap there are none to forget.
        torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1), atol=2e-5, rtol=0)
        assert (expected.log_softmax(-1) - plain.log_softmax(-1)).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("changes", MLPS.values(), ids=MLPS)
def test_removal_is_exact_in_models_with_mlps(changes: dict[str, Any]) -> None:
    model, batch = model_of(changes, attn_only=False), toy_batch(6)
    coordinates = project(model, toy_batch(64, seed=5))
    names = some_of_each_kind(coordinates)
    expected = logits_without(model, coordinates, names, batch)
    found = ablate(model, coordinates, names, batch)
    torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1), atol=2e-5, rtol=0)
    plain = rows(model.logits(batch.tokens), batch.queries)
    assert (expected.log_softmax(-1) - plain.log_softmax(-1)).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("name", ["LN", "partial rotary behind RMS", "shortformer"])
def test_scales_matter(name: str) -> None:
    """With the mean scales in place of the actual ones the removal would be another."""
    model, batch = model_of(FORMS[name]), toy_batch(6)
    coordinates = project(model, toy_batch(64, seed=5))
    names = some_of_each_kind(coordinates)
    exact = ablate(model, coordinates, names, batch).log_softmax(-1)
    space = coordinates.space
    flat = replace(model.weights, form=replace(model.weights.form, norm=None))
    unscaled = LensModel(model.model, flat, source="", sha256="", family="")
    assert space.scales is not None
    assert (ablate(unscaled, coordinates, names, batch).log_softmax(-1) - exact).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("changes", [*FORMS.values(), MLPS["MLP"], MLPS["gated MLP"]], ids=[*FORMS, "MLP", "gated"])
def test_scores_of_a_run_are_those_that_made_its_patterns(changes: dict[str, Any]) -> None:
    model, batch = model_of(changes, attn_only="act_fn" not in changes), toy_batch(4)
    heads = tuple(Head(layer, index) for layer in range(2) for index in range(2))
    seen = capture(model, heads, batch)
    for head in heads:
        hidden = model.weights.form.hidden(head.layer, batch.tokens.shape[1])
        pattern = seen.scores[head].masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(pattern, seen.patterns[head])
    explained = explain(seen, project(model, batch), batch)
    assert explained.scores < 1


@torch.no_grad()
def test_which_coordinates_can_act_depends_on_the_form() -> None:
    batch = toy_batch(16)
    standard, rotary, both = (
        set(map(str, project(model_of(changes), batch))) for changes in ({}, FORMS["rotary"], FORMS["bidirectional"])
    )
    assert "L1H0/score/q:res/k:L0H0/offset+1" in standard - rotary
    assert "L1H0/score/q:res/k:res/offset+1" in standard & rotary
    assert "L1H0/score/q:res/k:res/offset-1" in both - standard


@torch.no_grad()
def test_a_model_that_needs_a_stream_is_not_projected_without_one() -> None:
    model, batch = model_of(FORMS["LN"]), toy_batch(16)
    projector = ImirProjector.for_task(ToyTask())
    with pytest.raises(CoordinateError, match=r"norms, MLPs or soft caps .* pass stream=measure_stream"):
        projector.fit(model.weights)
    plain = model_of({})
    assert measure_stream(plain, batch) is None
    fitted = projector.fit(model.weights, measure_stream(model, batch))
    with pytest.raises(CoordinateError, match="pass stream=measure_stream"):
        fitted.transform(model.weights)
    again = fitted.transform(model.weights, measure_stream(model, batch))
    assert torch.equal(again.values, fitted.coordinates_.values)


@torch.no_grad()
def test_coordinates_with_scales_are_saved_and_ablate_as_before(tmp_path) -> None:
    model, batch = model_of(FORMS["both caps, LN, ALiBi"]), toy_batch(8)
    coordinates = project(model, batch)
    coordinates.save(tmp_path / "c.safetensors")
    loaded = Coordinates.load(tmp_path / "c.safetensors")
    assert (loaded.space.form, loaded.space.scales) == (coordinates.space.form, coordinates.space.scales)
    removed = coordinates.values.abs() > 0.3
    assert 10 < int(removed.sum()) < coordinates.space.size
    torch.testing.assert_close(
        ablate_mask(model, loaded, removed, batch), ablate_mask(model, coordinates, removed, batch)
    )
