import pytest
import torch

from imir_lens.errors import TaskError
from imir_lens.relations import orbits_on_pairs
from imir_lens.tasks import Batch, CausalTree, FixedGraph, LagChain

TASKS = [CausalTree(), CausalTree(d=4, positions=3, examples=1, shuffle=True), FixedGraph(), LagChain()]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_both_layouts_hold_the_same(task, generator):
    batch = task.sample(6, generator)
    assert batch.tokens.shape == (6, task.n_positions)
    episodes = task.episodes_of(batch)
    assert episodes.values.shape == (6, task.examples + 1, task.positions)
    again = task.flatten(episodes)
    assert torch.equal(again.tokens, batch.tokens)
    assert torch.equal(again.queries, batch.queries)
    assert torch.equal(again.latent["parents"], episodes.parents)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_the_token_before_each_asked_position_is_asked_for_it(task, generator):
    batch = task.sample(6, generator)
    episodes = task.episodes_of(batch)
    assert tuple(batch.queries[0].tolist()) == task.query_positions
    assert (batch.queries == batch.queries[0]).all()
    assert torch.equal(batch.targets, episodes.query[:, episodes.asked])
    assert torch.equal(batch.tokens.gather(1, batch.queries), episodes.query[:, :-1][:, episodes.asked[1:]])
    assert batch.queries[0, -1] == task.n_positions - 2
    assert batch.mask.all()


def test_examples_stand_one_after_another_and_the_query_last():
    assert CausalTree(positions=4, examples=2).query_positions == (8, 9, 10)
    assert LagChain(positions=6, lags="1,3").query_positions == (2, 3, 4)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_flat_predictions_are_those_of_the_episodes(task, generator):
    batch = task.sample(6, generator)
    episodes = task.episodes_of(batch)
    laws = task.bayes(batch)
    assert torch.allclose(laws, task.bma(episodes)[:, episodes.asked], atol=1e-12)
    assert torch.allclose(laws.sum(2), torch.ones_like(laws[..., 0]))
    some = Batch(batch.tokens, batch.queries[:, 1:], batch.targets[:, 1:], batch.mask[:, 1:])
    assert torch.equal(task.bayes(some), laws[:, 1:])


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_prediction_does_not_depend_on_what_comes_later(task, generator):
    batch = task.sample(6, generator)
    laws = task.bayes(batch)
    k = (batch.queries.shape[1] - 1) // 2
    later = torch.arange(task.n_positions) > batch.queries[:, k : k + 1]
    changed = torch.where(later, (batch.tokens + 1) % task.d, batch.tokens)
    found = task.bayes(Batch(changed, batch.queries, batch.targets, batch.mask))
    assert torch.allclose(found[:, : k + 1], laws[:, : k + 1], atol=1e-14)
    assert not torch.allclose(found[:, k + 1 :], laws[:, k + 1 :], atol=1e-3)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_predictions_are_calibrated(task, generator):
    """A token predicted with probability p follows with frequency p: false for any but the true conditional law."""
    batch = task.sample(4000, generator)
    laws = task.bayes(batch).flatten()
    happened = torch.nn.functional.one_hot(batch.targets, task.d).flatten().double()
    for low, high in ((0.0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        chosen = (laws >= low) & (laws < high)
        if chosen.sum() > 3000:
            spread = 6 * float((laws * (1 - laws))[chosen].mean() / chosen.sum()) ** 0.5
            assert float(happened[chosen].mean()) == pytest.approx(float(laws[chosen].mean()), abs=spread)


@pytest.mark.parametrize("task", [FixedGraph(d=4, positions=3), CausalTree(d=4)], ids=str)
def test_relations_are_one_class_and_same(task):
    relations = task.relations
    assert relations.names == ("same",)
    assert relations.d_vocab == task.d_vocab == 4
    if task.symmetry_generators:
        orbits = orbits_on_pairs(task.symmetry_generators)
        assert torch.equal(orbits == orbits[0, 0], relations.matrix("same"))
        assert len(orbits.unique()) == 2
    assert task.reference_circuit == ()


def test_only_a_task_with_a_kernel_of_its_own_breaks_the_symmetry():
    assert CausalTree().symmetry_generators == LagChain().symmetry_generators == []
    assert len(FixedGraph(d=5).symmetry_generators) == 4


def test_a_context_is_described_with_its_parents(generator):
    task = CausalTree(d=4, positions=3, examples=1)
    batch = task.sample(2, generator)
    batch.tokens[1] = torch.tensor([0, 1, 2, 3, 2, 1])
    batch.latent["parents"][1] = torch.tensor([-1, 0, 1])
    assert task.describe(batch, 1) == "0 1 2 | 3 2 1   [parents of positions 1 to 2: 0 1]"


@pytest.mark.parametrize(
    ("length", "latent", "line"),
    [
        (61, True, "causal_tree has flat contexts of whole examples of 15 tokens; found 61"),
        (0, True, "whole examples of 15 tokens; found 0"),
        (60, False, "a batch of causal_tree has `parents` in its latent; found []"),
    ],
)
def test_a_batch_of_another_layout_is_refused(length, latent, line):
    tokens = torch.zeros(2, length, dtype=torch.long)
    queries = torch.zeros(2, 1, dtype=torch.long)
    parents = {"parents": torch.zeros(2, 15, dtype=torch.long)} if latent else {}
    batch = Batch(tokens, queries, queries, queries == 0, parents)
    with pytest.raises(TaskError) as caught:
        CausalTree().episodes_of(batch)
    assert line in str(caught.value)


def test_contexts_may_have_more_or_fewer_examples(generator):
    task = CausalTree(d=4, positions=5, examples=3)
    batch = task.flatten(task.sample_episodes(7, generator, n_examples=6))
    assert batch.tokens.shape == (7, 35)
    assert batch.queries[0].tolist() == [30, 31, 32, 33]
    assert torch.allclose(task.bayes(batch), task.bma(task.episodes_of(batch))[:, 1:])
