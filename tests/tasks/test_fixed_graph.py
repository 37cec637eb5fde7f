import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from chi_squared import excess, numbers, sequences

from imir_lens.errors import TaskError
from imir_lens.tasks import FixedGraph, make_task
from imir_lens.tasks.episodes import Episodes, parent_loss, prediction_loss

# With two tokens a kernel is two numbers, and at concentration 2 their density 6 p (1 − p) is a polynomial: quadrature
# is exact.
SMALL = FixedGraph(d=2, positions=3, examples=1, concentration=2.0, graph_seed=0)


@cache
def probability(values: tuple[tuple[int, ...], ...], graph: tuple[int, ...]) -> float:
    """P(examples), by integrating over all kernels. An example that breaks off counts as far as it goes."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    p, w = (nodes + 1) / 2, weights / 2
    first, second = np.meshgrid(p, p, indexing="ij")  # P(0 | 0), P(0 | 1)
    density = np.outer(w * 6 * p * (1 - p), w * 6 * p * (1 - p))
    for example in values:
        density = density / (2 if example else 1)  # the root
        for h in range(1, len(example)):
            zero = first if example[graph[h]] == 0 else second
            density = density * (zero if example[h] == 0 else 1 - zero)
    return float(density.sum())


def rows(values):
    return tuple(tuple(example) for example in values.tolist())


def test_predictions_are_those_of_all_kernels(generator):
    task = replace(SMALL, positions=5, examples=2)
    graph = tuple(task.graph.tolist())
    assert len(set(graph)) > 2
    batch = task.sample(10, generator)
    found = task.bayes(batch)
    for values, laws in zip(task.episodes_of(batch).values, found, strict=True):
        for h in range(1, 5):
            known = (*rows(values[:-1]), tuple(values[-1, :h].tolist()))
            extended = [(*known[:-1], (*known[-1], token)) for token in (0, 1)]
            law = [probability(more, graph) / probability(known, graph) for more in extended]
            assert laws[h - 1].tolist() == pytest.approx(law, abs=1e-9)


def test_transitions_of_another_graph_predict_otherwise(generator):
    task, other = (FixedGraph(d=4, positions=8, examples=6, graph_seed=seed) for seed in (0, 1))
    assert task.graph.tolist() != other.graph.tolist()
    episodes = task.sample_episodes(2000, generator)
    losses = [float(prediction_loss(t.bma(episodes), episodes)) for t in (task, other)]
    assert losses[0] + 0.1 < losses[1]


def test_contexts_have_the_law_that_is_declared(generator):
    graph = tuple(SMALL.graph.tolist())
    law = [probability(rows(x.reshape(2, 3)), graph) for x in sequences(2, 6)]
    counts = numbers(SMALL.sample(60_000, generator).tokens, 2).bincount(minlength=64)
    assert excess(counts, torch.tensor(law)) < 4
    elsewhere = (-1, 0, 1 - graph[2])
    wrong = [probability(rows(x.reshape(2, 3)), elsewhere) for x in sequences(2, 6)]
    assert excess(counts, torch.tensor(wrong)) > 10


def test_children_follow_the_kernel_of_their_context(generator):
    task = FixedGraph(d=3, positions=6)
    kernels = task.sample_kernels(2, generator)
    values = task.sample_given(kernels, generator, n_examples=8000).examples
    for context in (0, 1):
        for h in range(1, 6):
            parent = values[context, :, task.graph[h]]
            pairs = (3 * parent + values[context, :, h]).bincount(minlength=9).reshape(3, 3)
            seen = pairs.sum(1, keepdim=True) / pairs.sum() * kernels[context]
            likely = seen * pairs.sum() > 5
            difference = ((pairs - seen * pairs.sum()) ** 2 / (seen * pairs.sum()))[likely].sum()
            assert float(difference) < 30


def test_the_graph_is_the_same_in_all_contexts_and_is_known(generator):
    task = FixedGraph()
    episodes = task.sample_episodes(7, generator)
    assert (episodes.parents == task.graph).all()
    assert float(parent_loss(task.posterior(episodes), episodes)) == 0
    assert torch.equal(task.bma(episodes), task.known_graph(episodes))
    assert FixedGraph(graph_seed=1).graph.tolist() != task.graph.tolist()


def test_examples_say_something_about_the_kernel(generator):
    task = FixedGraph()
    losses = []
    for count in (0, 1, 3, 10):
        episodes = task.sample_episodes(500, generator, n_examples=count)
        known, uniform = (float(prediction_loss(f(episodes), episodes)) for f in (task.bma, task.uniform))
        assert known < uniform
        losses.append(known)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < math.log(10)  # the query's own transitions count


def test_the_query_alone_predicts_as_without_examples(generator):
    task = FixedGraph(positions=6)
    episodes = task.sample_episodes(5, generator, n_examples=0)
    weights = task.posterior(episodes)
    assert torch.equal(task.predictive(weights, episodes.query), task.bma(episodes))
    more = Episodes(episodes.values.repeat(1, 2, 1), episodes.parents, episodes.candidates)
    assert not torch.allclose(task.bma(more), task.bma(episodes))


def test_every_token_is_as_likely_a_priori(generator):
    task = FixedGraph(d=4)
    tokens = task.sample(4000, generator).tokens
    for position in (0, 8, 59):
        assert excess(tokens[:, position].bincount(minlength=4), task.chance()) < 4
    pairs = task.pair_log_likelihood(tokens[:3].unflatten(1, (-1, 15)))
    assert pairs.shape == (3, 4, 15, 15)
    assert torch.allclose(pairs.exp(), torch.full_like(pairs, 0.25))


def test_large_episodes_are_predicted(generator):
    task = make_task("fixed_graph", d=50, positions=100, examples=50)
    batch = task.sample(2, generator)
    laws = task.bayes(batch)
    assert torch.allclose(laws.sum(2), torch.ones(2, 99, dtype=torch.float64))
    assert float(-laws.gather(2, batch.targets.unsqueeze(2)).log().mean()) < math.log(50) - 0.5


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"d": 1}, "fixed_graph needs 2 <= d <= 256: d=1"),
        ({"d": 257}, "d=257"),
        ({"positions": 1}, "fixed_graph needs positions >= 2: positions=1"),
        ({"examples": -1}, "fixed_graph needs examples >= 0: examples=-1"),
        ({"concentration": 0.0}, "fixed_graph needs 0.001 <= concentration <= 1e6: concentration=0.0"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        FixedGraph(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
