import math
from dataclasses import replace

import pytest
import torch
from chi_squared import excess, numbers, sequences
from graphs import graphs, power_law, tree_probability

from imir_lens.errors import TaskError
from imir_lens.tasks import Batch, CausalTree, make_task
from imir_lens.tasks.episodes import parent_loss, uniform_weights

SMALL = CausalTree(d=3, positions=4, examples=2, concentration=0.5)


def weights_of_graphs(task, values, upto):
    """P(graph, examples, the query before `upto`), for every graph."""
    pi, mu = task.kernel, power_law(task.kernel)
    known = [*values[:-1].tolist(), values[-1, :upto].tolist()]
    return [
        math.prod(tree_probability(example, graph, pi, mu) for example in known if example)
        for graph in graphs(task.positions)
    ]


def test_the_posterior_is_that_of_all_graphs_given_all_tokens_before(generator):
    """The joint posterior over graphs, with the query's own tokens as evidence too, has the same marginals."""
    episodes = SMALL.sample_episodes(6, generator)
    posterior = SMALL.posterior(episodes)
    for values, found in zip(episodes.values, posterior, strict=True):
        for h in range(1, SMALL.positions):
            joint = weights_of_graphs(SMALL, values, upto=h)
            parents = [0.0] * SMALL.positions
            for graph, weight in zip(graphs(SMALL.positions), joint, strict=True):
                parents[graph[h]] += weight / sum(joint)
            assert found[h].tolist() == pytest.approx(parents, abs=1e-12)
    assert (posterior[:, 0] == 0).all()
    assert float((posterior[:, 2:] - uniform_weights(episodes)[:, 2:]).abs().max()) > 0.3


def test_the_tokens_of_the_query_from_the_asked_one_on_would_say_more(generator):
    """The brute force above can fail: with one more token it no longer agrees."""
    values = SMALL.sample_episodes(6, generator).values
    h = 2
    shifts = []
    for context in values:
        shares = []
        for upto in (h, h + 1):
            joint = weights_of_graphs(SMALL, context, upto)
            on = [weight for graph, weight in zip(graphs(4), joint, strict=True) if graph[h] == 0]
            shares.append(sum(on) / sum(joint))
        shifts.append(abs(shares[1] - shares[0]))
    assert max(shifts) > 0.05


def test_predictions_are_those_of_all_graphs(generator):
    batch = SMALL.sample(4, generator)
    found = SMALL.bayes(batch)
    pi, mu = SMALL.kernel, power_law(SMALL.kernel)
    for values, laws in zip(SMALL.episodes_of(batch).values, found, strict=True):
        for h in range(1, 4):
            law = torch.zeros(3, dtype=torch.float64)
            for token in range(3):
                query = [*values[-1, :h].tolist(), token]
                known = [*values[:-1].tolist(), query]
                law[token] = sum(math.prod(tree_probability(e, g, pi, mu) for e in known) for g in graphs(4))
            assert torch.allclose(laws[h - 1], law / law.sum(), atol=1e-12)


def exact_law(task):
    """P(tokens) of flat contexts, over all graphs."""
    pi, mu = task.kernel, power_law(task.kernel)
    every = graphs(task.positions)
    example = torch.tensor(
        [[tree_probability(x.tolist(), g, pi, mu) for x in sequences(task.d, task.positions)] for g in every]
    ).double()
    if task.shuffle:
        one = example.mean(0)
        return torch.outer(one, one).flatten()
    return torch.einsum("gi,gj->ij", example, example).flatten() / len(every)


@pytest.mark.parametrize("shuffle", [False, True])
def test_contexts_have_the_law_that_is_declared(shuffle, generator):
    task = CausalTree(d=2, positions=3, examples=1, concentration=0.5, gamma=0.5, shuffle=shuffle)
    drawn = numbers(task.sample(60_000, generator).tokens, 2)
    counts = drawn.bincount(minlength=64)
    assert excess(counts, exact_law(task)) < 4
    assert excess(counts, exact_law(replace(task, shuffle=not shuffle))) > 10


def test_every_token_has_the_stationary_law(generator):
    task = CausalTree()
    tokens = task.sample(5000, generator).tokens
    assert torch.allclose(task.chance().double(), power_law(task.kernel), atol=1e-6)
    for position in (0, 7, 15, 44, 59):
        assert excess(tokens[:, position].bincount(minlength=10), task.chance()) < 4
    assert excess(tokens[:, 7].bincount(minlength=10), torch.full((10,), 0.1)) > 10


def test_examples_share_the_parents_that_are_reported(generator):
    task = CausalTree(d=50, gamma=0.0, concentration=0.02, positions=6, examples=60)
    episodes = task.sample_episodes(200, generator)
    assert float(parent_loss(task.posterior(episodes), episodes)) < 0.1
    shuffled = replace(task, shuffle=True)
    episodes = shuffled.sample_episodes(200, generator)
    assert float(parent_loss(task.posterior(episodes), episodes)) > 2  # believes in graphs that are not the query's


def test_shuffled_examples_say_nothing(generator):
    task = CausalTree(shuffle=True)
    episodes = task.sample_episodes(50, generator)
    posterior = task.posterior(episodes)
    assert torch.equal(posterior, uniform_weights(episodes))
    assert posterior[3, 4].tolist() == [0.25] * 4 + [0.0] * 11
    assert torch.equal(task.bma(episodes), task.uniform(episodes))


def test_the_wrong_kernel_finds_parents_worse(generator):
    task = CausalTree()
    episodes = task.sample_episodes(400, generator)
    right, wrong, transposed = (
        float(parent_loss(t.posterior(episodes), episodes))
        for t in (task, CausalTree(kernel_seed=1), CausalTree.with_kernel(task.kernel.T / task.kernel.sum(0)[:, None]))
    )
    assert right + 0.5 < min(wrong, transposed)


def test_a_kernel_of_ones_own(generator):
    pi = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    task = CausalTree.with_kernel(pi, positions=4, examples=2)
    assert torch.allclose(task.kernel, pi.double(), atol=1e-6)
    assert (task.d, task.positions, task.kernel_seed) == (2, 4, None)
    assert torch.allclose(task.chance(), torch.tensor([2 / 3, 1 / 3]))
    assert torch.equal(replace(task, examples=5).kernel, task.kernel)
    assert task == CausalTree.with_kernel(pi, positions=4, examples=2)
    assert task != CausalTree.with_kernel(pi.flip(0, 1), positions=4, examples=2)
    assert len({task, replace(task, examples=5), replace(task, examples=2)}) == 2
    assert task.sample(3, generator).tokens.shape == (3, 12)
    with pytest.raises(TaskError, match=r"needs either a kernel_seed or a kernel of your own, with_kernel\(pi\)"):
        make_task("causal_tree", **task.knobs)  # knobs alone do not make it again
    with pytest.raises(TaskError, match="needs either"):
        replace(task, kernel_seed=3)
    with pytest.raises(TaskError, match="with d=5 needs a kernel of that size; found 2"):
        replace(task, d=5)
    with pytest.raises(TaskError, match=r"found pi\[0, 1\] = 0"):
        CausalTree.with_kernel(torch.eye(2))


def test_tasks_are_equal_by_knobs():
    assert CausalTree() == CausalTree(d=10)
    assert CausalTree() != CausalTree(d=11)
    assert make_task("causal_tree", kernel_seed=3).kernel[0, 0] == CausalTree(kernel_seed=3).kernel[0, 0]


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"positions": 1}, "causal_tree needs positions >= 3 (with fewer there is no parent to infer): positions=1"),
        ({"positions": 2}, "positions=2"),
        ({"examples": -1}, "causal_tree needs examples >= 0: examples=-1"),
        ({"d": 1}, "causal_tree needs 2 <= d <= 4096: d=1"),
        ({"gamma": -0.1}, "causal_tree needs 0 <= gamma <= 1: gamma=-0.1"),
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"gamma": math.nan}, "gamma=nan"),
        ({"concentration": 0.0}, "causal_tree needs 0.001 <= concentration <= 1e6: concentration=0.0"),
        ({"concentration": math.inf}, "concentration=inf"),
        ({"kernel_seed": None}, "causal_tree needs either a kernel_seed or a kernel of your own"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        CausalTree(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_drawn_kernel_with_a_zero_is_refused():
    with pytest.raises(TaskError, match="positive entries only"):
        _ = CausalTree(concentration=0.001, gamma=0.0).kernel


@pytest.mark.parametrize("token", [-1, 10])
def test_tokens_that_there_are_not_are_refused(token, generator):
    task = CausalTree()
    episodes = task.sample_episodes(2, generator)
    episodes.values[1, 2, 3] = token
    with pytest.raises(TaskError, match=rf"^causal_tree with d=10 has tokens 0 to 9; found {token}$"):
        task.posterior(episodes)
    batch = task.sample(2, generator)
    batch.tokens[1, 30] = token
    for call in (task.bayes, task.episodes_of):
        with pytest.raises(TaskError, match=f"found {token}"):
            call(batch)


def test_large_episodes_have_exact_posteriors(generator):
    task = make_task("causal_tree", d=50, positions=100, examples=50)
    episodes = task.sample_episodes(4, generator)
    posterior = task.posterior(episodes)
    assert torch.allclose(posterior.sum(2)[:, 1:], torch.ones(4, 99, dtype=torch.float64))
    assert float(parent_loss(posterior, episodes)) < 0.05
    batch = task.flatten(episodes)
    assert batch.tokens.shape == (4, 5100)
    assert torch.allclose(task.bayes(batch), task.bma(episodes)[:, 1:])


def test_many_examples_do_not_underflow(generator):
    task = CausalTree(d=20, positions=4, concentration=1.0)
    episodes = task.sample_episodes(3, generator, n_examples=600)
    product = task.pair_log_likelihood(episodes.examples).exp().prod(1)
    assert (product == 0).all()  # the naive way
    assert torch.allclose(task.posterior(episodes).sum(2)[:, 1:], torch.ones(3, 3, dtype=torch.float64))


def test_the_posterior_adds_examples_up_in_any_order(generator):
    episodes = SMALL.sample_episodes(5, generator, n_examples=7)
    turned = episodes.keep_examples(torch.tensor([6, 5, 4, 3, 2, 1, 0]))
    assert torch.allclose(SMALL.posterior(turned), SMALL.posterior(episodes), atol=1e-14)
    assert not torch.allclose(SMALL.posterior(turned.keep_examples(torch.arange(6))), SMALL.posterior(episodes))


def test_bayes_sees_tokens_only(generator):
    batch = CausalTree().sample(3, generator)
    bare = Batch(batch.tokens, batch.queries, batch.targets, batch.mask)
    assert torch.equal(CausalTree().bayes(bare), CausalTree().bayes(batch))
