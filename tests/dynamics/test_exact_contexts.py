"""All contexts with their probabilities: against a law written in another way, and against samples."""

from collections import defaultdict

import pytest
import torch
from enumeration import recall_law

from imir_lens.dynamics.exact_contexts import WeightedContexts, enumerate_contexts
from imir_lens.errors import OptionError
from imir_lens.tasks import make_task
from imir_lens.tasks.recall import Recall

TASKS = [
    Recall(vocab=5, pairs=1, length=5),
    Recall(vocab=7, pairs=2, length=6, burstiness=1.5),
    Recall(vocab=5, pairs=1, length=4, f_r=0.0),
    Recall(vocab=13, pairs=1, length=4, burstiness=0.5, f_r=0.3, f_v=0.5, rare=4),
    Recall(vocab=9, pairs=1, length=4, burstiness=0.5, f_r=0.0, f_v=1.0),
]


def _law(contexts: WeightedContexts) -> dict[tuple, float]:
    law: dict[tuple, float] = defaultdict(float)
    batch = contexts.batch
    rows = zip(batch.tokens.tolist(), batch.targets[:, 0].tolist(), contexts.weights.tolist(), strict=True)
    for tokens, target, weight in rows:
        law[(*tokens, target)] += weight
    return law


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_context_has_the_probability_that_a_recursive_count_gives_it(task):
    expected = {(*tokens, target): p for tokens, answers in recall_law(task).items() for target, p in answers.items()}
    found = _law(enumerate_contexts(task))
    assert found.keys() == expected.keys()
    assert sum(found.values()) == pytest.approx(1)
    for key, probability in expected.items():
        assert found[key] == pytest.approx(probability)


def test_another_burstiness_has_another_law():
    once, never = (_law(enumerate_contexts(Recall(vocab=7, pairs=1, length=4, burstiness=b))) for b in (1.0, 0.0))
    assert once.keys() != never.keys()


def test_on_a_ring_every_turn_is_equally_likely_and_the_query_turns_along():
    straight = enumerate_contexts(Recall(vocab=5, pairs=1, length=5))
    ring = straight.on_a_ring()
    assert len(ring) == 5 * len(straight)
    assert float(ring.weights.sum()) == pytest.approx(1)
    batch = ring.batch
    asked = batch.tokens.gather(1, batch.queries).squeeze(1)
    assert torch.equal(asked, straight.batch.tokens[:, -1].repeat(5))
    assert torch.bincount(batch.queries[:, 0]).tolist() == [len(straight)] * 5
    turned = {(*row, q) for row, q in zip(batch.tokens.roll(1, 1).tolist(), batch.queries[:, 0].tolist(), strict=True)}
    assert {row[:-1] for row in turned} == {tuple(row) for row in batch.tokens.tolist()}


def test_random_turns_are_turns(generator):
    task = Recall(vocab=9, pairs=2, length=8)
    straight = WeightedContexts.sample_of(task.sample(500, generator))
    turned = straight.turned_at_random(generator).batch
    assert torch.equal(turned.tokens.gather(1, turned.queries)[:, 0], straight.batch.tokens[:, -1])
    assert len(turned.queries.unique()) == 8
    assert torch.equal(turned.tokens.sort(1).values, straight.batch.tokens.sort(1).values)


def test_tasks_with_too_many_contexts_are_refused():
    with pytest.raises(OptionError, match="enumerate a smaller task"):
        enumerate_contexts(make_task("recall"))
