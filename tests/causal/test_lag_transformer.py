"""The construction within one sequence against the exact posterior over lags."""

import pytest
import torch

from imir_lens.causal.construction import variation_bound
from imir_lens.causal.lag_transformer import LagTransformer, construct_lags, lag_score_bound
from imir_lens.errors import OptionError, TaskError
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.lag_chain import LagChain

TASK = LagChain(d=6, positions=20)


def drawn(task=TASK, contexts=16):
    return task.sample_episodes(contexts, torch.Generator().manual_seed(0))


def attention(model, episodes):
    return model.run_with_cache(episodes)[1]["bma.hook_pattern"]


@pytest.mark.parametrize("lags", ["1,2,3", "2,5", "1"])
def test_attention_is_the_posterior_over_lags(lags):
    task = LagChain(d=6, positions=20, lags=lags)
    episodes = drawn(task)
    assert float((attention(construct_lags(task), episodes) - task.posterior(episodes)).abs().max()) < 1e-9


def test_attention_averages_over_lags_and_does_not_take_the_likeliest():
    episodes = drawn()
    apart = (attention(construct_lags(TASK), episodes) - TASK.maximum_likelihood(episodes)).abs().max()
    assert float(apart) > 0.3


def test_without_the_boundary_it_would_be_another_posterior():
    # Tokens without a parent enter as parents only; counted as children too, they give terms that must not be there.
    model, episodes = construct_lags(TASK), drawn()

    def as_children_too(v, hook):
        return torch.cat([v[..., : TASK.d], v[..., : TASK.d]], dim=-1)

    model.copyers.hook_out.add_hook(as_children_too)
    found = attention(model, episodes)
    assert float((found - TASK.posterior(episodes)).abs().max()) > 0.1


def test_fewer_heads_see_the_last_tokens_only():
    episodes, window, (t, k) = drawn(), 4, (15, 2)
    tokens, log_pi = episodes.query, TASK.log_kernel
    terms = range(t - window, t)
    scores = torch.stack([sum(log_pi[tokens[:, s - lag], tokens[:, s]] for s in terms) for lag in (1, 2, 3)], dim=1)
    found = attention(construct_lags(TASK, n_heads=window), episodes)
    assert torch.allclose(found[:, t, t - k], scores.softmax(1)[:, k - 1], atol=1e-9)
    assert not torch.allclose(found, TASK.posterior(episodes), atol=1e-2)


def test_the_error_falls_with_slope_minus_one_and_stays_within_its_bound():
    episodes, betas = drawn(), (8.0, 9.0, 10.0, 11.0)
    posterior, n_heads = TASK.posterior(episodes), 16
    errors = []
    for beta in betas:
        error = (attention(construct_lags(TASK, beta_rpe=beta), episodes) - posterior).abs().sum(2).max() / 2
        assert float(error) <= variation_bound(lag_score_bound(beta, TASK, n_heads))
        errors.append(error.log())
    assert torch.stack(errors).diff().tolist() == pytest.approx([-1.0] * 3, abs=0.02)


def test_heads_look_back_only_and_leave_the_rest_to_the_sink():
    maps = construct_lags(TASK).copyers.maps(20).detach()
    assert bool((maps.triu(0) == 0).all())
    assert torch.allclose(maps[2, 10], torch.nn.functional.one_hot(torch.tensor(7), 20).double(), atol=1e-9)
    assert float(maps[2, :3].sum()) < 1e-9


def test_edits_act():
    model, episodes = construct_lags(TASK), drawn()
    edited = model.run_with_hooks(episodes, fwd_hooks=[("copyers.hook_positions", lambda value, hook: value * 0)])
    assert not torch.allclose(edited, model(episodes))


def test_what_does_not_fit_is_refused():
    with pytest.raises(TaskError, match="expected the task lag_chain, found 'causal_tree'"):
        construct_lags(CausalTree())
    with pytest.raises(OptionError, match="n_heads must lie between 1 and 19: found 20"):
        construct_lags(TASK, n_heads=20)
    with pytest.raises(OptionError, match="beta_rpe must be"):
        construct_lags(TASK, beta_rpe=float("inf"))
    with pytest.raises(OptionError, match="at least 1 in a lag transformer: found n_heads=0"):
        LagTransformer(4, 10, 0)
    with pytest.raises(OptionError, match="at most 20 positions, found 32"):
        construct_lags(TASK)(drawn(LagChain(d=6)))
    with pytest.raises(OptionError, match="tokens 0 … 5: found tokens from"):
        construct_lags(TASK)(drawn(LagChain(d=10, positions=20)))
