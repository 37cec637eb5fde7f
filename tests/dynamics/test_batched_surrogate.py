"""Many surrogates as one program against the surrogate one by one."""

import pytest
import torch
from surrogate_cases import mask_of, random_values, small_recall, space_of

from imir_lens.attention_form import AttentionForm
from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
from imir_lens.dynamics.run_batch import RunBatch, drawn_batches
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.evaluation import cross_entropy, score_logits
from imir_lens.paths import PathTable
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task
from imir_lens.terms import Reads

RUNS = 3
CASES = {
    "recall, 1 layer": ("recall", {"vocab": 16, "pairs": 3, "length": 9, "f_r": 0.5}, 1, 2),
    "recall, 2 layers": ("recall", {"vocab": 16, "pairs": 3, "length": 9, "f_r": 0.5}, 2, 2),
    "recall, 3 layers": ("recall", {"vocab": 16, "pairs": 3, "length": 9}, 3, 1),
    "ragged queries": ("copy", {}, 2, 1),
}


def one_by_one(space, values, batches):
    return torch.stack([Surrogate(space).logits(row, batch) for row, batch in zip(values, batches, strict=True)])


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("case", CASES)
def test_logits_of_every_run_equal_those_of_the_surrogate_alone(case, share):
    name, knobs, n_layers, n_heads = CASES[case]
    task = make_task(name, **knobs)
    space = space_of(task, n_layers, n_heads)
    values = random_values(space, RUNS, share=share)
    own = [task.sample(4, torch.Generator().manual_seed(seed)) for seed in range(RUNS)]
    batched = BatchedSurrogate(space, (values != 0).any(0))
    torch.testing.assert_close(batched.logits(values, own), one_by_one(space, values, own))
    shared = batched.logits(values, own[0])
    torch.testing.assert_close(shared, one_by_one(space, values, own[:1] * RUNS))
    assert float((shared[0] - shared[1]).abs().max()) > 0.1


def test_logits_are_those_of_a_form_whose_positions_do_not_move_and_whose_window_is_short():
    task = small_recall()
    form = AttentionForm(positions="rotary", rotary_dim=4, rotary_bases=(1e4, 1e4), windows=(3, None))
    space = CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions, form=form)
    values = random_values(space, RUNS)
    batch = task.sample(4, torch.Generator().manual_seed(0))
    found = BatchedSurrogate(space).logits(values, batch)
    torch.testing.assert_close(found, one_by_one(space, values, [batch] * RUNS))


def test_one_backward_pass_gives_every_runs_own_gradient():
    task = small_recall(f_r=0.5)
    space = space_of(task)
    values = random_values(space, RUNS, share=0.5)
    own = [task.sample(4, torch.Generator().manual_seed(seed)) for seed in range(RUNS)]
    together = values.clone().requires_grad_(True)
    RunBatch.of(own).losses(BatchedSurrogate(space).logits(together, own)).sum().backward()
    for row, batch, gradient in zip(values, own, together.grad, strict=True):
        alone = row.clone().requires_grad_(True)
        logits = Surrogate(space).logits(alone, batch, reads=Reads.of(space, space.active))
        cross_entropy(logits, batch).backward()
        torch.testing.assert_close(gradient, torch.where(space.active, alone.grad, 0.0))
    assert float(together.grad.abs().min(0).values.max()) > 1e-3


def test_losses_and_accuracies_are_those_of_evaluation():
    task = make_task("copy")
    batches = [task.sample(6, torch.Generator().manual_seed(seed)) for seed in range(2)]
    logits = torch.randn(2, *batches[0].targets.shape, task.d_vocab)
    many = RunBatch.of(batches)
    for row, batch, loss, accuracy in zip(logits, batches, many.losses(logits), many.accuracies(logits), strict=True):
        score = score_logits(row, batch)
        assert (float(loss), float(accuracy)) == pytest.approx((score.loss, score.accuracy), abs=1e-6)


def test_coordinates_outside_the_chosen_ones_are_taken_as_zero():
    task = small_recall()
    space = space_of(task)
    values = random_values(space, 2)
    chosen = mask_of(space, ("readout/via:L1H0/same", "L1H0/score/q:res/k:L0H0/same"))
    batch = task.sample(4, torch.Generator().manual_seed(0))
    found = BatchedSurrogate(space, chosen).logits(values, batch)
    torch.testing.assert_close(found, BatchedSurrogate(space).logits(torch.where(chosen, values, 0.0), batch))
    assert float((found - BatchedSurrogate(space).logits(values, batch)).abs().max()) > 0.1


def test_a_seeds_contexts_do_not_depend_on_the_seeds_beside_it():
    task = small_recall()
    many = list(drawn_batches(task, [5, 6], batch=3, steps=4))
    alone = list(drawn_batches(task, [6], batch=3, steps=4))
    for both, one in zip(many, alone, strict=True):
        torch.testing.assert_close(both.tokens[1:], one.tokens)
    assert not torch.equal(many[0].tokens[0], many[0].tokens[1])
    assert not torch.equal(many[0].tokens, many[1].tokens)


def test_what_does_not_fit_is_refused():
    task = small_recall()
    space = space_of(task)
    batch = task.sample(2, torch.Generator().manual_seed(0))
    with pytest.raises(CoordinateError, match="cannot act"):
        BatchedSurrogate(space, torch.ones(space.size, dtype=torch.bool))
    with pytest.raises(CoordinateError, match="expected values"):
        BatchedSurrogate(space).logits(torch.zeros(1, space.size - 1), batch)
    with pytest.raises(CoordinateError, match="one batch, or one for each of 3 runs: found 2"):
        BatchedSurrogate(space).logits(torch.zeros(3, space.size), [batch, batch])
    with pytest.raises(CoordinateError, match="positions"):
        longer = small_recall(length=10).sample(2, torch.Generator().manual_seed(0))
        BatchedSurrogate(space).logits(torch.zeros(1, space.size), longer)
    with pytest.raises(OptionError, match="one shape"):
        RunBatch.of([batch, batch[:1]])
