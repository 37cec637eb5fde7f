"""Heads that weigh lags by the posterior, told from heads that follow the most likely lag."""

import pytest
import torch
from causal.flat_models import TASK, episodes

from imir_lens.causal.construction import construct
from imir_lens.causal.lag_scores import lag_scores
from imir_lens.causal.lag_transformer import LagTransformer, construct_lags
from imir_lens.errors import TaskError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.lag_chain import LagChain

LAGS = LagChain(d=4, positions=12, concentration=1.0)


def drawn(contexts=200):
    return LAGS.sample_episodes(contexts, torch.Generator().manual_seed(5))


def sharpened(factor):
    model = construct_lags(LAGS)
    with torch.no_grad():
        model.bma.W_KQ.mul_(factor)
    return model


def test_the_construction_averages_over_lags():
    (score,) = lag_scores(construct_lags(LAGS), LAGS, drawn())
    assert score.label == "bma" and score.selection > 1 - 1e-5 and score.to_posterior < 1e-5
    assert score.separation > 0.1  # the two differ on these sequences
    assert score.candidate_mass == pytest.approx(1)


def test_a_sharpened_copy_follows_the_most_likely_lag():
    (score,) = lag_scores(sharpened(50), LAGS, drawn())
    assert score.label == "maximum_likelihood" and score.selection < 0.05
    assert score.to_posterior > 0.1


def test_selection_falls_as_scores_are_sharpened():
    some = drawn()
    selections = [lag_scores(sharpened(factor), LAGS, some)[0].selection for factor in (1, 2, 5, 50)]
    assert selections == sorted(selections, reverse=True) and selections[1] > selections[2] + 0.1


def test_models_that_choose_no_lag_are_neither():
    some = drawn()
    other = LagChain.with_kernel(LAGS.kernel.roll(1, dims=1), positions=12)
    blank = LagTransformer(LAGS.d, LAGS.positions, 2).double()
    for model in (blank, construct_lags(other)):
        (score,) = lag_scores(model, LAGS, some)
        assert score.label is None
        assert min(score.to_posterior, score.to_maximum_likelihood) > score.separation / 2


def test_ordinary_transformers_are_scored_head_by_head():
    config = TransformerConfig(d_model=8, d_head=4, n_layers=2, n_ctx=LAGS.positions, d_vocab=LAGS.d)
    found = lag_scores(ImirTransformer(config).eval(), LAGS, drawn(20))
    assert [str(score.head) for score in found] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert {score.label for score in found} == {None}
    assert all(0 < score.candidate_mass < 0.9 for score in found)


def test_only_lag_chains_have_lags():
    with pytest.raises(TaskError, match="lag_chain: found 'causal_tree'"):
        lag_scores(construct(TASK), TASK, episodes(2))
