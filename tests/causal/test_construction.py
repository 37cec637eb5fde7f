"""Theorem 1: attention of the construction against the task's exact posterior, and the error as beta_rpe falls."""

import math

import pytest
import torch

from imir_lens.causal.construction import construct, leakage, score_bound, variation_bound
from imir_lens.errors import OptionError, TaskError
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.fixed_graph import FixedGraph
from imir_lens.tasks.lag_chain import LagChain
from imir_lens.tasks.linear_dynamics import LinearDynamics

SMALL = CausalTree(d=5, positions=10, examples=10)
BETAS = (4.0, 5.0, 6.0, 7.0)


def drawn(task, contexts=32, *, n_examples=None):
    return task.sample_episodes(contexts, torch.Generator().manual_seed(0), n_examples=n_examples)


def attention(model, episodes, name="bma.hook_pattern"):
    return model.run_with_cache(episodes, names_filter=name)[1][name]


@pytest.mark.parametrize("task", [SMALL, CausalTree(d=20, positions=50, examples=3)], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_is_the_posterior(task, dtype):
    model, episodes = construct(task).to(dtype), drawn(task)
    posterior = task.posterior(episodes)
    assert float((attention(model, episodes) - posterior).abs().max()) < 1e-5
    blunt = construct(task, beta_rpe=1.0)
    assert float((attention(blunt, episodes) - posterior).abs().max()) > 0.1


def test_another_kernel_gives_another_attention():
    episodes = drawn(SMALL)
    wrong = construct(CausalTree(d=5, positions=10, examples=10, kernel_seed=1))
    assert float((attention(wrong, episodes) - SMALL.posterior(episodes)).abs().max()) > 0.1


def test_fewer_examples_than_heads_are_counted_more_than_once():
    # Heads whose example is missing spread over those that exist: the kernel is right, the weight of evidence is not.
    episodes = drawn(SMALL, n_examples=2)
    expected = (SMALL.posterior(episodes).log() * 10 / 2).softmax(-1)[:, 1:]
    found = attention(construct(SMALL), episodes)[:, 1:]
    assert float((found - SMALL.posterior(episodes)[:, 1:]).abs().max()) > 0.01
    assert float((found.argmax(2) == expected.argmax(2)).double().mean()) > 0.7


def test_the_model_for_the_examples_at_hand_is_exact_again():
    episodes = drawn(SMALL, n_examples=2)
    model = construct(SMALL, n_examples=2)
    assert float((attention(model, episodes) - SMALL.posterior(episodes)).abs().max()) < 1e-12


def test_leakage_is_what_a_head_spends_elsewhere():
    maps = construct(SMALL, beta_rpe=2.0).maps()
    wanted = maps.examples[0, -1] * maps.positions[0, 4, 4]
    assert 1 - wanted.item() == pytest.approx(leakage(2.0, 10, 10), rel=1e-12)
    assert leakage(2.0, 10, 10) <= 18 * math.exp(-4)


@pytest.mark.parametrize("beta", BETAS)
def test_scores_and_attention_stay_within_their_bounds(beta):
    episodes = drawn(SMALL)
    scores = SMALL.pair_log_likelihood(episodes.examples).sum(1)
    model = construct(SMALL, beta_rpe=beta)
    bound = score_bound(beta, float(SMALL.log_kernel.max() - SMALL.log_kernel.min()), 10, 10)
    error = float((attention(model, episodes, "bma.hook_scores") - scores).abs().max())
    assert bound / 100 < error <= bound
    apart = (attention(model, episodes) - SMALL.posterior(episodes)).abs().sum(2) / 2
    assert float(apart.max()) <= variation_bound(bound) <= bound / 2


def test_the_error_falls_with_slope_minus_two():
    episodes = drawn(SMALL)
    posterior = SMALL.posterior(episodes)
    errors = [(attention(construct(SMALL, beta_rpe=beta), episodes) - posterior).abs().max() for beta in BETAS]
    slopes = torch.stack(errors).log().diff()
    assert slopes.tolist() == pytest.approx([-2.0] * 3, abs=0.02)


def test_the_bound_on_the_total_variation_is_reached():
    # Half the candidates gain δ, the others lose it, at the odds where that counts most.
    delta, odds = 0.3, math.exp(-0.3)
    before = torch.tensor([odds / (1 + odds), 1 / (1 + odds)]).double()
    after = (before.log() + torch.tensor([delta, -delta])).softmax(0)
    assert float((after - before).abs().sum() / 2) == pytest.approx(variation_bound(delta), rel=1e-6)


def test_the_bilinear_score_is_the_posterior_for_vectors_of_unit_norm_only():
    unit, free = LinearDynamics(unit_norm=True), LinearDynamics()
    for task, exact in ((unit, True), (free, False)):
        episodes = drawn(task)
        found = attention(construct(task), episodes)
        apart = float((found - task.posterior(episodes)).abs().max())
        assert apart < 1e-5 if exact else apart > 0.1
        bilinear = task.c1 * task.bilinear(episodes.examples).sum(1)
        scores = attention(construct(task), episodes, "bma.hook_scores")
        assert torch.allclose(scores, bilinear, atol=1e-9)
        spread = 2 * task.c1 * float(episodes.values.square().sum(-1).max())
        leaky = attention(construct(task, beta_rpe=5.0), episodes, "bma.hook_scores")
        bound = score_bound(5.0, spread, task.positions, task.examples)
        assert float((leaky - bilinear).abs().max()) <= bound


def test_vectors_are_predicted_by_the_mean_of_the_attended_parents():
    task = LinearDynamics(unit_norm=True)
    episodes = drawn(task)
    assert torch.allclose(construct(task)(episodes), task.bma(episodes), atol=1e-9)


def test_tokens_are_predicted_by_the_geometric_mean_of_the_attended_parents():
    episodes = drawn(SMALL)
    weights = SMALL.posterior(episodes)
    expected = (weights @ SMALL.log_kernel[episodes.query]).softmax(2)
    found = construct(SMALL)(episodes).softmax(2)
    assert torch.allclose(found[:, 1:], expected[:, 1:], atol=1e-9)
    assert not torch.allclose(found[:, 1:], SMALL.bma(episodes)[:, 1:], atol=1e-3)


def test_kernels_that_are_none_are_refused():
    kernel = SMALL.kernel.clone()
    kernel[2, 1] = 0
    with pytest.raises(TaskError, match="positive entries"):
        construct(kernel, n_positions=10, n_examples=3)
    with pytest.raises(TaskError, match="sum to 1"):
        construct(2 * SMALL.kernel, n_positions=10, n_examples=3)


def test_what_cannot_be_constructed_is_refused():
    with pytest.raises(OptionError, match="n_positions=H and n_examples=L"):
        construct(SMALL.kernel)
    with pytest.raises(OptionError, match="beta_rpe must be a number of at least 0: found -1"):
        construct(SMALL, beta_rpe=-1.0)
    with pytest.raises(OptionError, match="n_positions must be at least 2"):
        construct(SMALL.kernel, n_positions=1, n_examples=3)
    for task in (FixedGraph(), LagChain()):
        with pytest.raises(TaskError, match=f"no construction for '{task.name}'"):
            construct(task)
