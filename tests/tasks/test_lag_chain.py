import math
from dataclasses import replace

import pytest
import torch
from chi_squared import excess, numbers, sequences
from graphs import power_law

from imir_lens.errors import TaskError
from imir_lens.tasks import LagChain, make_task
from imir_lens.tasks.episodes import parent_loss, uniform_weights

SMALL = LagChain(d=2, positions=6, lags="1,3", concentration=0.5, gamma=0.3)


def joint_law(task):
    """P(lag, sequence) for every lag and every sequence, by the definition."""
    pi, mu = task.kernel, power_law(task.kernel)
    lags = [int(word) for word in task.lags.split(",")]
    rows = []
    for lag in lags:
        row = []
        for x in sequences(task.d, task.positions).tolist():
            p = 1 / len(lags)
            for t, token in enumerate(x):
                p *= float(mu[token]) if t < max(lags) else float(pi[x[t - lag], token])
            row.append(p)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def test_lag_posterior_and_predictions_are_those_of_the_joint_law(generator):
    law, every = joint_law(SMALL), sequences(2, 6)
    batch = SMALL.sample(8, generator)
    lags, predictions = SMALL.lag_posterior(batch.tokens), SMALL.bayes(batch)
    for x, found, predicted in zip(batch.tokens, lags, predictions, strict=True):
        for t in range(6):
            agree = (every[:, :t] == x[:t]).all(1)
            joint = law[:, agree].sum(1)
            assert torch.allclose(found[t], joint / joint.sum(), atol=1e-12)
            if t >= 3:
                both = torch.stack([law[:, agree & (every[:, t] == token)].sum() for token in (0, 1)])
                assert torch.allclose(predicted[t - 3], both / both.sum(), atol=1e-12)
    assert float((lags[:, 5] - 0.5).abs().max()) > 0.2


def test_sequences_have_the_law_that_is_declared(generator):
    drawn = numbers(SMALL.sample(60_000, generator).tokens, 2).bincount(minlength=64)
    assert excess(drawn, joint_law(SMALL).sum(0)) < 4
    assert excess(drawn, joint_law(replace(SMALL, lags="2,3")).sum(0)) > 10


def test_lags_are_uniform_and_parents_are_that_far_back(generator):
    task = LagChain(lags="2,5,9")
    episodes = task.sample_episodes(6000, generator)
    apart = torch.arange(32) - episodes.parents
    assert (episodes.parents[:, :9] == -1).all()
    assert (apart[:, 9:] == apart[:, 9:10]).all()
    counts = apart[:, 20].bincount(minlength=10)
    assert counts.nonzero().flatten().tolist() == [2, 5, 9]
    assert excess(counts[[2, 5, 9]], torch.full((3,), 1 / 3)) < 4


def test_the_posterior_over_parents_puts_the_lags_where_they_lead(generator):
    task = LagChain(positions=12)
    episodes = task.sample_episodes(5, generator)
    posterior, lags = task.posterior(episodes), task.lag_posterior(episodes.query)
    for t in range(3, 12):
        assert torch.equal(posterior[:, t, [t - 1, t - 2, t - 3]], lags[:, t])
        assert torch.allclose(posterior[:, t].sum(1), torch.ones(5, dtype=torch.float64))
    assert (posterior[:, :3] == 0).all()
    assert not posterior[:, ~task.candidates].any()
    assert task.candidates[7].nonzero().flatten().tolist() == [4, 5, 6]


def test_without_evidence_the_lag_is_as_before(generator):
    lags = LagChain().lag_posterior(LagChain().sample(4, generator).tokens)
    assert torch.allclose(lags[:, :4], torch.full((4, 4, 3), 1 / 3, dtype=torch.float64))
    assert not torch.allclose(lags[:, 4], lags[:, 3])


def test_the_lag_becomes_certain(generator):
    task = LagChain(positions=100)
    episodes = task.sample_episodes(300, generator)
    at_truth = task.posterior(episodes).gather(2, episodes.parents.clamp(min=0).unsqueeze(2)).squeeze(2)
    means = at_truth.mean(0)[[3, 5, 9, 20, 99]]
    assert means.tolist() == sorted(means.tolist())
    assert float(means[-1]) > 0.999


def test_averaging_and_maximum_likelihood_are_told_apart(generator):
    task = LagChain(concentration=1.0)
    episodes = task.sample_episodes(500, generator)
    averaged, likeliest = task.posterior(episodes), task.maximum_likelihood(episodes)
    assert torch.allclose(likeliest[:, 3], uniform_weights(episodes)[:, 3])  # nothing seen: all lags are as likely
    assert torch.allclose(likeliest.sum(2)[:, 3:], torch.ones(500, 29, dtype=torch.float64))
    ahead = averaged.argmax(2)[:, 10:]
    assert torch.equal(likeliest.argmax(2)[:, 10:], ahead)
    assert (likeliest[:, 10:].amax(2) == 1).double().mean() > 0.99
    assert float((averaged - likeliest).abs().sum(2)[:, 4:].mean() / 2) > 0.1  # total variation
    assert float(parent_loss(averaged, episodes)) + 1 < float(parent_loss(likeliest, episodes))


def test_averaging_over_lags_predicts_best(generator):
    task = LagChain()
    batch = task.sample(2000, generator)
    episodes = task.episodes_of(batch)

    def loss(laws):
        return -float(laws[:, episodes.asked].gather(2, batch.targets.unsqueeze(2)).log().mean())

    known, averaged, uniform = (loss(f(episodes)) for f in (task.known_graph, task.bma, task.uniform))
    likeliest = loss(task.predict(task.maximum_likelihood(episodes), episodes))
    assert known < averaged < likeliest < uniform


def test_one_lag_leaves_nothing_to_infer(generator):
    task = LagChain(lags="4")
    episodes = task.sample_episodes(10, generator)
    assert float(parent_loss(task.posterior(episodes), episodes)) == 0
    assert torch.equal(task.bma(episodes), task.known_graph(episodes))


def test_a_kernel_of_ones_own(generator):
    task = LagChain.with_kernel(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), lags="1,2", positions=5)
    assert (task.d, task.kernel_seed, task.n_positions) == (2, None, 5)
    assert task.sample(3, generator).tokens.max() < 2
    assert LagChain() == make_task("lag_chain")


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"lags": "0,1"}, "lag_chain needs positive lags in increasing order: lags=0,1"),
        ({"lags": "-1,2"}, "positive lags in increasing order: lags=-1,2"),
        ({"lags": "2,1"}, "positive lags in increasing order: lags=2,1"),
        ({"lags": "2,2"}, "positive lags in increasing order: lags=2,2"),
        ({"lags": "1,31"}, "lag_chain needs max(lags) + 2 <= positions: lags=1,31, positions=32"),
        ({"lags": ""}, "lag_chain takes lags as numbers like '1,2,3': lags=''"),
        ({"lags": "1,two"}, "lags='1,two'"),
        ({"lags": "1," + "9" * 30}, "lag_chain takes lags as numbers"),
        ({"d": 1}, "lag_chain needs 2 <= d <= 4096: d=1"),
        ({"gamma": math.nan}, "gamma=nan"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        LagChain(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_there_are_no_examples_and_no_other_tokens(generator):
    assert LagChain().sample_episodes(2, generator, n_examples=0).n_examples == 0
    with pytest.raises(TaskError, match="has no examples, the sequence itself is the evidence; found n_examples=3"):
        LagChain().sample_episodes(2, generator, n_examples=3)
    with pytest.raises(TaskError, match="has tokens 0 to 9; found 10"):
        LagChain().lag_posterior(torch.full((1, 32), 10))


def test_long_sequences_are_predicted_without_a_table_of_parents(monkeypatch, generator):
    task = make_task("lag_chain", positions=1500, d=50)
    batch = task.sample(2, generator)
    monkeypatch.setattr(LagChain, "posterior", None)  # its size would be the square of the length
    laws = task.bayes(batch)
    assert laws.shape == (2, 1497, 50)
    assert torch.allclose(laws.sum(2), torch.ones(2, 1497, dtype=torch.float64))
