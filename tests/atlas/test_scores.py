"""The streamed scores are those of the vocabulary × vocabulary matrices, written out."""

from dataclasses import replace

import pytest
import torch
from explicit_scores import Explicit, centred, diagonal_contrast
from small_models import CONFIGS, build

from imir_lens.atlas.moments import token_moments
from imir_lens.atlas.scores import WeightScores, weight_scores
from imir_lens.lens_model import LensModel, open_model

RELATION = [(1, 4), (7, 2), (3, 3), (0, 9)]
NAMES = sorted(CONFIGS)


def opened(name: str) -> LensModel:
    return open_model(
        build(replace(CONFIGS[name], dtype=torch.float64, n_layers=3, attn_types=("global", "local", "local")))
    )


@pytest.fixture(scope="module", params=NAMES)
def case(request) -> tuple[LensModel, WeightScores]:
    lens = opened(request.param)
    return lens, weight_scores(lens, relation=torch.tensor(RELATION), bound=0.0)


def match_offsets(lens: LensModel, layer: int) -> list[int]:
    if lens.weights.form.positions != "rotary":
        return [0]  # any: nothing rotates
    return list(range(1, lens.weights.n_ctx))


def places(lens: LensModel) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(lens.weights.n_layers) for head in range(lens.weights.n_heads)]


def source_of(lens: LensModel, layer: int) -> int:
    return 0 if lens.weights.form.mlp == "none" else min(layer, 1)


def test_own_matches_are_diagonal_contrasts(case):
    lens, scores = case
    explicit, weights = Explicit(lens), lens.weights
    for layer, head in places(lens):
        x = explicit.tokens(source_of(lens, layer))
        matrix = explicit.mean_scores(
            layer, x @ weights.W_Q[layer, head], x @ weights.W_K[layer, head], match_offsets(lens, layer)
        )
        mean, z = diagonal_contrast(matrix)
        assert float(scores.matching.direct.mean[layer, head]) == pytest.approx(mean, rel=1e-5, abs=1e-9)
        assert float(scores.matching.direct.z[layer, head]) == pytest.approx(z, rel=1e-5, abs=1e-9)
        pairs = torch.tensor(RELATION)
        marked = centred(matrix)[pairs[:, 0], pairs[:, 1]].mean()
        assert float(scores.matching.assoc.mean[layer, head]) == pytest.approx(float(marked), rel=1e-5, abs=1e-9)


def test_matches_through_other_heads_and_with_all_that_was_copied_are_diagonal_contrasts(case):
    lens, scores = case
    explicit, weights = Explicit(lens), lens.weights
    for layer, head in places(lens):
        q = explicit.tokens(source_of(lens, layer)) @ weights.W_Q[layer, head]
        total = torch.zeros_like(explicit.tokens(0))
        for upper, index in places(lens):
            if upper >= layer:
                assert scores.matching.through[layer, head, upper, index] == -torch.inf
                continue
            brought = explicit.tokens(source_of(lens, upper)) @ weights.W_OV(upper, index)
            total = total + float(scores.kernels.preference[upper, index]) * brought
            matrix = explicit.mean_scores(layer, q, brought @ weights.W_K[layer, head], match_offsets(lens, layer))
            found = float(scores.matching.through[layer, head, upper, index])
            assert found == pytest.approx(diagonal_contrast(matrix)[1], rel=1e-5, abs=1e-9)
        if layer == 0:
            assert scores.induction[layer, head] == 0
            continue
        matrix = explicit.mean_scores(layer, q, total @ weights.W_K[layer, head], match_offsets(lens, layer))
        mean, z = diagonal_contrast(matrix)
        assert float(scores.matching.copied.mean[layer, head]) == pytest.approx(mean, rel=1e-5, abs=1e-9)
        assert float(scores.induction[layer, head]) == pytest.approx(z, rel=1e-5, abs=1e-9)


def test_copying_is_a_diagonal_contrast_of_the_logits(case):
    lens, scores = case
    explicit, weights = Explicit(lens), lens.weights
    pairs = torch.tensor(RELATION)
    for layer, head in places(lens):
        logits = explicit.tokens(source_of(lens, layer)) @ weights.W_OV(layer, head) @ weights.W_U
        mean, z = diagonal_contrast(logits)
        assert float(scores.copying.mean[layer, head]) == pytest.approx(mean, rel=1e-5, abs=1e-9)
        assert float(scores.copying.z[layer, head]) == pytest.approx(z, rel=1e-5, abs=1e-9)
        marked = float(centred(logits)[pairs[:, 0], pairs[:, 1]].mean())
        assert float(scores.assoc.mean[layer, head]) == pytest.approx(marked, rel=1e-5, abs=1e-9)


def test_offset_kernels_are_mean_scores_over_all_pairs(case):
    lens, scores = case
    explicit, weights = Explicit(lens), lens.weights
    form, n_ctx = weights.form, weights.n_ctx
    for layer, head in places(lens):
        x = explicit.tokens(source_of(lens, layer))
        q = x @ weights.W_Q[layer, head] + weights.b_Q[layer, head]
        k = x @ weights.W_K[layer, head] + weights.b_K[layer, head]
        if form.positions == "standard":
            p = explicit.positions(source_of(lens, layer))
            placed = p @ weights.W_Q[layer, head], p @ weights.W_K[layer, head]
        elif form.positions == "shortformer":
            placed = tuple(t[layer, head] for t in (weights.pos_Q, weights.pos_K))
        else:
            placed = None
        if placed is not None:
            q, k = q + placed[0].mean(0), k + placed[1].mean(0)
            placed = tuple(t - t.mean(0) for t in placed)
        if placed is not None:
            matrix = placed[0] @ placed[1].T / weights.scale
            expected = [float(matrix.diagonal(-offset).mean()) for offset in range(n_ctx)]
        elif form.positions == "alibi":
            first = 2 ** (-8 / weights.n_heads)
            expected = [-offset * first ** (head + 1) for offset in range(n_ctx)]
        else:
            expected = [float(explicit.scores(layer, q, k, offset).mean()) for offset in range(n_ctx)]
        if form.score_cap:
            expected = [form.score_cap * torch.tensor(e / form.score_cap).tanh().item() for e in expected]
        window = (form.windows[layer] if form.windows else None) or n_ctx
        found = scores.kernels.kappa[layer, head]
        assert found[:window].tolist() == pytest.approx(expected[:window], rel=1e-5, abs=1e-7)
        assert found[window:].isneginf().all()
        others = [e for offset, e in enumerate(expected[:window]) if offset != 1]
        contrast = expected[1] - sum(others) / len(others)
        assert float(scores.kernels.contrast[layer, head]) == pytest.approx(contrast, rel=1e-5, abs=1e-7)
        varied = explicit.scores(layer, q, k, 1)
        if placed is not None:
            # q_a + q_i against k_b + k_j for all tokens a, b and positions i, j, without position against position.
            rest = (q[:, None] + placed[0][None]).flatten(0, 1) @ (k[:, None] + placed[1][None]).flatten(0, 1).T
            alone = (placed[0] @ placed[1].T).repeat(len(q), len(k))
            varied = (rest - alone) / weights.scale
        z = contrast / float(varied.std(unbiased=False))
        assert float(scores.kernels.z[layer, head]) == pytest.approx(z, rel=1e-4, abs=1e-7)


def test_the_mass_of_learned_positions_is_the_attention_of_a_model_whose_tokens_are_all_the_mean():
    lens = opened("plain")
    scores = weight_scores(lens)
    mean = lens.weights.W_E.mean(0)
    hook = ("hook_embed", lambda tensor, hook: mean.expand_as(tensor).clone())
    seen = {}
    keep = ("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.update(p=pattern.clone()))
    lens.run_with_hooks(torch.zeros(1, lens.weights.n_ctx, dtype=torch.long), [hook, keep])
    expected = seen["p"][0].diagonal(-1, 1, 2).mean(-1)
    torch.testing.assert_close(scores.kernels.mass[0], expected)


def test_the_size_of_a_block_changes_nothing():
    lens = opened("full")
    whole, bits = token_moments(lens), token_moments(lens, block=3)
    torch.testing.assert_close(whole.covariances, bits.covariances)
    torch.testing.assert_close(whole.readout, bits.readout)
    assert whole.n_tokens == lens.weights.d_vocab == 10


def test_paths_below_the_bound_are_skipped_and_counted():
    lens = opened("grouped")
    everything = weight_scores(lens, bound=0.0)
    assert (everything.paths.n_skipped, everything.paths.largest_skipped) == (0, 0.0)
    n_heads = lens.weights.n_heads
    assert everything.paths.n_chosen == n_heads * n_heads * 3
    bound = float(everything.kernels.mass[:-1].flatten().sort().values[3])
    some = weight_scores(lens, bound=bound)
    assert some.paths.n_chosen + some.paths.n_skipped == everything.paths.n_chosen
    assert some.paths.n_skipped > 0
    assert some.paths.largest_skipped < bound
    skipped = ~(some.kernels.mass >= bound)
    assert some.matching.through[:, :, skipped].isneginf().all()
    torch.testing.assert_close(some.induction, everything.induction)  # nothing is left out of it
