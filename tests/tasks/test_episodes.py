import math
import re
from pathlib import Path

import pytest
import torch

from imir_lens.tasks import CausalTree, LinearDynamics
from imir_lens.tasks.episodes import (
    Episodes,
    earlier_positions,
    masked_softmax,
    parent_loss,
    prediction_loss,
    uniform_weights,
)


@pytest.fixture
def episodes(generator):
    return CausalTree(positions=5, examples=4).sample_episodes(6, generator)


def test_the_query_stands_last(episodes):
    assert (len(episodes), episodes.n_examples, episodes.n_nodes) == (6, 4, 5)
    assert torch.equal(torch.cat([episodes.examples, episodes.query.unsqueeze(1)], dim=1), episodes.values)
    assert episodes.asked.tolist() == [False, True, True, True, True]


def test_parts_keep_contexts_aligned(episodes):
    part = episodes[torch.tensor([4, 1])]
    assert torch.equal(part.values[0], episodes.values[4])
    assert torch.equal(part.parents[1], episodes.parents[1])
    kept = episodes.keep_examples(torch.tensor([3, 0]))
    assert torch.equal(kept.values, episodes.values[:, [3, 0, 4]])
    assert torch.equal(kept.parents, episodes.parents)
    assert torch.equal(episodes.to("cpu").values, episodes.values)


def test_softmax_over_candidates_leaves_roots_empty():
    scores = torch.tensor([[5.0, 1.0, 2.0], [3.0, 9.0, 9.0], [0.0, math.log(3), 7.0]])
    weights = masked_softmax(scores, earlier_positions(3))
    assert torch.allclose(weights, torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [0.25, 0.75, 0]]))


def test_losses_are_means_over_asked_positions():
    values = torch.tensor([[[0, 1, 1]]])
    episodes = Episodes(values, torch.tensor([[-1, 0, 1]]), earlier_positions(3))
    weights = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [0.75, 0.25, 0]]])
    assert float(parent_loss(weights, episodes)) == pytest.approx(math.log(4) / 2)
    perfect = torch.eye(3).roll(1, dims=0).unsqueeze(0)
    assert str(float(parent_loss(perfect, episodes))) == "0.0"
    laws = torch.tensor([[[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]]])
    assert float(prediction_loss(laws, episodes)) == pytest.approx(-(math.log(0.1) + math.log(0.5)) / 2)
    vectors = Episodes(values.unsqueeze(3).repeat(1, 1, 1, 2).float(), episodes.parents, episodes.candidates)
    assert float(prediction_loss(torch.zeros(1, 3, 2), vectors)) == 2.0


def test_a_weight_of_zero_costs_much_but_not_infinitely():
    episodes = Episodes(torch.zeros(1, 1, 3, dtype=torch.long), torch.tensor([[-1, 0, 1]]), earlier_positions(3))
    loss = parent_loss(torch.zeros(1, 3, 3, dtype=torch.float64), episodes)
    assert 700 < float(loss) < 750


@pytest.mark.parametrize("task", [CausalTree(), LinearDynamics(), LinearDynamics(unit_norm=True)], ids=str)
def test_averaging_lies_between_knowing_the_graph_and_knowing_nothing(task, generator):
    episodes = task.sample_episodes(400, generator)
    losses = [float(prediction_loss(p, episodes)) for p in (task.known_graph(episodes), task.bma(episodes))]
    losses.append(float(prediction_loss(task.uniform(episodes), episodes)))
    assert losses == sorted(losses)
    assert losses[2] - losses[0] > 0.05
    at_posterior, at_uniform = (parent_loss(w, episodes) for w in (task.posterior(episodes), uniform_weights(episodes)))
    assert 0 < float(at_posterior) < float(at_uniform) - 0.5
    expected = sum(math.log(h) for h in range(1, task.positions)) / (task.positions - 1)
    assert float(at_uniform) == pytest.approx(expected)


@pytest.mark.parametrize("task", [CausalTree(), LinearDynamics(rho=0.3)], ids=str)
def test_more_examples_say_more(task, generator):
    losses = []
    for count in (0, 1, 3, 10):
        episodes = task.sample_episodes(200, generator, n_examples=count)
        assert episodes.n_examples == count
        losses.append(float(parent_loss(task.posterior(episodes), episodes)))
    assert losses == sorted(losses, reverse=True)


def test_no_other_weights_on_average_are_better_than_the_posterior(generator):
    """Neither sharper nor flatter ones: that holds for the exact posterior only."""
    task = CausalTree(positions=8, concentration=1.0)
    episodes = task.sample_episodes(4000, generator)
    exact = task.posterior(episodes)
    scores = exact.clamp(min=1e-300).log()
    losses = [float(parent_loss(masked_softmax(t * scores, episodes.candidates), episodes)) for t in (0.85, 1.0, 1.15)]
    assert losses[1] < min(losses[0], losses[2])
    shares = exact.gather(2, episodes.parents.clamp(min=0).unsqueeze(2)).squeeze(2)[:, 2:]
    # calibrated: the mean posterior at the truth is the mean sum of squares
    assert float(shares.mean()) == pytest.approx(float(exact.square().sum(2)[:, 2:].mean()), abs=0.01)


def test_the_example_in_the_documents_runs():
    document = (Path(__file__).parents[2] / "docs" / "causal.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(example, names)
    assert names["posterior"].shape == (512, 15, 15)
