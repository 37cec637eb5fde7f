"""Training on the coordinates: runs side by side, what moves and what stays, and what the metric is for."""

from dataclasses import replace

import pytest
import torch
from surrogate_cases import INDUCTION, mask_of, random_values, small_recall, space_of

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics import train_many
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.evaluation import cross_entropy, score_logits
from imir_lens.surrogate import Surrogate
from imir_lens.terms import Reads

TASK = small_recall()
SPACE = space_of(TASK)
KEY_BIASES = ("L1H0/score/q:const/k:res/word", "L1H0/score/q:const/k:L0H0/word")
LEARNT = mask_of(SPACE, (*INDUCTION, *KEY_BIASES))


def train(initial, **options):
    common = {"chosen": LEARNT, "steps": 30, "learning_rate": 3.0, "batch": 16, "record_every": 10}
    return train_many(TASK, SPACE, initial, **{**common, **options})


@pytest.mark.parametrize("pool", [None, TASK.sample(64, torch.Generator().manual_seed(8))], ids=["fresh", "pool"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_runs_side_by_side_end_where_each_ends_alone(optimizer, pool):
    initial = random_values(SPACE, 3, share=0.3).float()
    options = {"optimizer": optimizer, "pool": pool, "learning_rate": 0.1}
    together = train(initial, seeds=[4, 5, 6], **options)
    for run in range(3):
        alone = train(initial[run : run + 1], seeds=[4 + run], held_out=None, **options)
        torch.testing.assert_close(together.values[run], alone.values[0], atol=1e-5, rtol=0)
    moved = (together.values - initial).abs()
    assert float(moved[:, LEARNT].min()) > 1e-4
    assert float(moved[:, ~LEARNT].max()) == 0
    other = train(initial, seeds=[7, 5, 6], **options)
    assert float((other.values[0] - together.values[0]).abs().max()) > 1e-3


def test_a_run_repeats_bit_for_bit_and_its_losses_are_the_surrogates():
    initial = random_values(SPACE, 2).float()
    held_out = TASK.sample(64, torch.Generator().manual_seed(9))
    first, again = (train(initial, seeds=[1, 2], held_out=held_out) for _ in range(2))
    assert torch.equal(first.values, again.values)
    for run in range(2):
        score = score_logits(Surrogate(SPACE).logits(first.values[run], held_out), held_out)
        found = float(first.losses[run]), float(first.accuracies[run])
        assert found == pytest.approx((score.loss, score.accuracy), abs=1e-5)


def test_gradient_descent_takes_the_steps_of_plain_torch():
    values = random_values(SPACE, 1, share=0.4)
    batch = TASK.sample(32, torch.Generator().manual_seed(3))
    metric = coordinate_metric(SPACE, LEARNT)
    found = train_many(batch, SPACE, values, chosen=LEARNT, steps=1, learning_rate=0.5, metric=metric)

    alone = values[0].clone().requires_grad_(True)
    cross_entropy(Surrogate(SPACE).logits(alone, batch, reads=Reads.of(SPACE, SPACE.active)), batch).backward()
    expected = values[0].clone()
    expected[LEARNT] -= 0.5 * metric @ alone.grad[LEARNT]
    torch.testing.assert_close(found.values[0], expected)
    assert float((found.values - values).abs().max()) > 1e-3


def test_adam_takes_the_steps_of_torchs_adam():
    values = random_values(SPACE, 1, share=0.4)
    batch = TASK.sample(32, torch.Generator().manual_seed(3))
    found = train_many(batch, SPACE, values, steps=5, learning_rate=0.05, optimizer="adam")

    alone = values[0].clone().requires_grad_(True)
    adam = torch.optim.Adam([alone], lr=0.05)
    for _ in range(5):
        adam.zero_grad()
        cross_entropy(Surrogate(SPACE).logits(alone, batch, reads=Reads.of(SPACE, SPACE.active)), batch).backward()
        adam.step()
    torch.testing.assert_close(found.values[0], alone.detach())


def test_the_induction_circuit_emerges_from_zero():
    done = train(
        torch.zeros(1, SPACE.size), steps=400, learning_rate=10.0, batch=64, metric=coordinate_metric(SPACE, LEARNT)
    )
    assert float(done.accuracies[0]) > 0.75
    for name in INDUCTION:
        assert done.curves.of(SPACE, name)[0, 0] == 0
        assert float(done.curves.of(SPACE, name)[-1, 0]) > 2


def test_with_a_relation_of_shuffled_tokens_nothing_is_learnt():
    partner = torch.arange(TASK.d_vocab)
    partner[1:] = 1 + (torch.arange(TASK.d_vocab - 1) + 3) % (TASK.d_vocab - 1)
    shuffled = replace(TASK.relations, matchings={"same": partner})
    space = CoordinateSpace(SPACE.paths, shuffled, TASK.n_positions, TASK.query_positions)
    options = {"steps": 400, "learning_rate": 10.0, "batch": 64, "metric": coordinate_metric(SPACE, LEARNT)}
    done = train_many(TASK, space, torch.zeros(1, SPACE.size), chosen=LEARNT, **options)
    assert float(done.accuracies[0]) < 0.4


def test_a_diverged_run_does_not_touch_the_others():
    initial = torch.zeros(2, SPACE.size)
    initial[1, SPACE.place(INDUCTION[2])] = torch.inf
    both = train(initial)
    assert not bool(both.losses[1].isfinite())
    torch.testing.assert_close(both.values[0], train(initial[:1]).values[0])


def test_options_out_of_range_are_refused():
    zeros = torch.zeros(2, SPACE.size)
    with pytest.raises(OptionError, match="one for each of 2 runs: found 3 seeds"):
        train(zeros, seeds=[1, 2, 3])
    with pytest.raises(OptionError, match="did you mean 'adam'"):
        train(zeros, optimizer="adan")
    with pytest.raises(OptionError, match="metric goes with"):
        train(zeros, optimizer="adam", metric=torch.ones(5))
    with pytest.raises(OptionError, match="metric for 5"):
        train(zeros, metric=torch.ones(4))
    with pytest.raises(OptionError, match="batch must be at least 1: found 0"):
        train(zeros, batch=0)
    with pytest.raises(CoordinateError, match="initial values"):
        train(zeros[:, 1:], chosen=None)
    with pytest.raises(CoordinateError, match="was not trained"):
        train(zeros).curves.of(SPACE, "readout/via:res/same")
