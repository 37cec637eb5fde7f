"""Loss and accuracy by hand."""

import math

import pytest
import torch
from brute_force import rows
from toy_task import ToyTask, toy_batch

from imir_lens.evaluation import (
    Score,
    at_queries,
    bayes_score,
    chance_score,
    cross_entropy,
    score_logits,
    score_probabilities,
)
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch


def two_contexts(mask: list[list[bool]]) -> Batch:
    tokens, queries = torch.zeros(2, 4, dtype=torch.long), torch.tensor([[1, 3], [0, 2]])
    return Batch(tokens, queries, torch.tensor([[0, 1], [2, 0]]), torch.tensor(mask))


LAW = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], [[0.2, 0.7, 0.1], [0.9, 0.05, 0.05]]])


def test_loss_and_accuracy_are_means_over_the_queries_that_count():
    batch = two_contexts([[True, True], [True, True]])
    score = score_logits(LAW.log() + 3, batch)  # a constant over the vocabulary is nothing
    assert score.loss == pytest.approx(-math.log(0.5 * 0.6 * 0.1 * 0.9) / 4, rel=1e-6)
    assert score.accuracy == 0.75
    masked = two_contexts([[True, False], [True, False]])
    assert score_logits(LAW.log(), masked).loss == pytest.approx(-math.log(0.5 * 0.1) / 2, rel=1e-6)
    assert score_logits(LAW.log(), masked).accuracy == 0.5
    assert score_probabilities(LAW, masked) == score_logits(LAW.log(), masked)


def test_the_loss_has_the_gradient_of_a_softmax():
    batch, logits = two_contexts([[True, True], [False, True]]), LAW.log().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(logits, batch), logits)
    expected = (LAW - torch.nn.functional.one_hot(batch.targets, 3)) / 3
    expected[1, 0] = 0  # a query that does not count
    torch.testing.assert_close(gradient, expected)


def test_a_perfect_predictor_loses_nothing_and_an_impossible_answer_is_finite():
    batch = two_contexts([[True, True], [True, True]])
    sure = torch.nn.functional.one_hot(batch.targets, 3).float()
    perfect = score_probabilities(sure, batch)
    assert perfect == Score(0.0, 1.0) and math.copysign(1, perfect.loss) == 1
    wrong = score_probabilities(sure.roll(1, dims=-1), batch)
    assert 80 < wrong.loss < math.inf and wrong.accuracy == 0


def test_the_rows_of_the_queries_are_picked():
    batch = toy_batch(5)
    logits = torch.randn(5, 7, 11)
    assert torch.equal(at_queries(logits, batch), rows(logits, batch.queries))


def test_chance_counts_ties_as_their_share():
    batch = toy_batch(400)
    score = chance_score(ToyTask(), batch)
    assert score.loss == pytest.approx(math.log(11), rel=1e-6)
    assert score.accuracy == pytest.approx(1 / 11, abs=1e-12)


def test_chance_with_one_favourite_is_the_share_of_that_answer():
    task = ToyTask()
    law = torch.full((11,), 0.05)
    law[3] = 0.5
    batch = toy_batch(300)
    object.__setattr__(task, "chance", lambda: law)
    hits = (batch.targets == 3)[batch.mask].double().mean()
    score = chance_score(task, batch)
    assert score.accuracy == pytest.approx(float(hits)) and 0 < score.accuracy < 0.3
    assert score.loss == pytest.approx(float(-law.log()[batch.targets[batch.mask]].mean()), rel=1e-6)


def test_bayes_beats_chance_on_recall():
    task = make_task("recall")
    batch = task.sample(64, torch.Generator().manual_seed(0))
    best, blind = bayes_score(task, batch), chance_score(task, batch)
    assert best == Score(0.0, 1.0)
    assert blind.loss == pytest.approx(math.log(63), rel=1e-4) and blind.accuracy == pytest.approx(1 / 63)
    assert blind.as_dict() == {"loss": blind.loss, "accuracy": blind.accuracy}


def test_rounding_left_where_a_logit_was_does_not_count_as_knowledge():
    batch = toy_batch(200)
    logits = torch.zeros(200, 1, 11) if batch.targets.shape[1] == 1 else torch.zeros(*batch.targets.shape, 11)
    residue = logits.scatter(2, batch.targets.unsqueeze(2), 3e-5)
    assert score_logits(residue, batch).accuracy == pytest.approx(1 / 11)
    assert score_logits(100 * residue, batch).accuracy == 1.0
