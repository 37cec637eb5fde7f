"""What is read off the weights: exact on the construction, and blind to the gauge where it should be."""

import pytest
import torch

from imir_lens.causal.construction import construct
from imir_lens.causal.parameters import (
    block_diagonality,
    column_error,
    copy_mass,
    effective_kernel,
    mean_block,
    own_blocks,
    readout_error,
    row_error,
    scale,
)
from imir_lens.causal.transformer import CausalConfig, CausalTransformer, initialise
from imir_lens.tasks.causal_tree import CausalTree

TASK = CausalTree(d=6, positions=8, examples=3)


def untrained():
    model = CausalTransformer(CausalConfig(6, 8, 3))
    initialise(model, torch.Generator().manual_seed(0))
    return model.double()


def test_the_construction_has_no_error():
    model = construct(TASK)
    blocks = effective_kernel(model)
    assert torch.allclose(own_blocks(blocks), TASK.log_kernel.expand(3, -1, -1))
    for error in (column_error, row_error):
        assert float(error(own_blocks(blocks), TASK.kernel).max()) < 1e-9
        assert float(error(mean_block(blocks), TASK.kernel)) < 1e-9
    assert block_diagonality(blocks) == pytest.approx(1)
    assert float(scale(mean_block(blocks), TASK.log_kernel)) == pytest.approx(1)
    assert readout_error(model, TASK.kernel) < 1e-9


def test_an_untrained_model_has_all_errors():
    model = untrained()
    blocks = effective_kernel(model)
    assert float(column_error(mean_block(blocks), TASK.kernel)) > 0.2
    assert float(row_error(mean_block(blocks), TASK.kernel)) > 0.2
    assert block_diagonality(blocks) < 0.6
    assert abs(float(scale(mean_block(blocks), TASK.log_kernel))) < 0.05
    assert readout_error(model, TASK.kernel) > 0.2


def test_a_constant_in_each_column_changes_the_row_error_only(generator):
    model = construct(TASK)
    episodes = TASK.sample_episodes(16, generator)
    before, pattern = effective_kernel(model), model.run_with_cache(episodes)[1]["bma.hook_pattern"]
    with torch.no_grad():
        model.bma.W_KQ += 2 * torch.randn(18, generator=generator)
    after, shifted = effective_kernel(model), model.run_with_cache(episodes)[1]["bma.hook_pattern"]
    assert float((shifted - pattern).abs().max()) < 1e-6
    assert not torch.allclose(before, after)
    columns = [column_error(own_blocks(blocks), TASK.kernel) for blocks in (before, after)]
    assert torch.allclose(*columns, atol=1e-9)
    assert float(row_error(own_blocks(before), TASK.kernel).max()) < 1e-9
    assert float(row_error(own_blocks(after), TASK.kernel).min()) > 0.2
    assert block_diagonality(after) == pytest.approx(1)
    assert scale(mean_block(after), TASK.log_kernel).item() == pytest.approx(1)


def test_a_constant_in_each_row_is_no_gauge_of_the_scores(generator):
    weights = TASK.log_kernel + torch.randn(6, 1, generator=generator)
    assert float(row_error(weights, TASK.kernel)) < 1e-6
    assert float(column_error(weights, TASK.kernel)) > 0.1


def test_errors_are_mean_total_variations():
    kernel = torch.tensor([[0.8, 0.2], [0.4, 0.6]]).double()
    flat = torch.zeros(2, 2).double()
    assert float(row_error(flat, kernel)) == pytest.approx((0.3 + 0.1) / 2)
    # columns of the kernel over parents: (2/3, 1/3) and (1/4, 3/4)
    assert float(column_error(flat, kernel)) == pytest.approx((1 / 6 + 1 / 4) / 2)


def test_heads_that_mix_examples_have_the_same_effective_kernel(generator):
    # Two heads at 0.75/0.25 and 0.25/0.75 of two examples, and W_KQ that undoes it on both sides.
    task = CausalTree(d=6, positions=8, examples=2)
    model = construct(task)
    mixture = torch.tensor([[0.25, 0.75], [0.75, 0.25]]).double()
    with torch.no_grad():
        model.copyers.w_L.copy_(mixture.flip(1).log())
        undo = mixture.inverse()
        blocks = torch.einsum("lk,lm,ij->kimj", undo, undo, task.log_kernel)
        model.bma.W_KQ.copy_(blocks.reshape(12, 12))
    assert torch.allclose(copy_mass(model), mixture)
    effective = effective_kernel(model)
    assert float(column_error(mean_block(effective), task.kernel)) < 1e-9
    assert block_diagonality(effective) == pytest.approx(1)
    assert float(column_error(model.bma.W_KQ[:6, :6].detach(), task.kernel)) > 0.1
    episodes = task.sample_episodes(16, generator)
    pattern = model.run_with_cache(episodes)[1]["bma.hook_pattern"]
    assert torch.allclose(pattern, task.posterior(episodes), atol=1e-9)


def test_the_scale_is_that_of_the_weights(generator):
    weights = 0.5 * TASK.log_kernel + torch.randn(6, generator=generator)
    assert float(scale(weights, TASK.log_kernel)) == pytest.approx(0.5, abs=1e-6)
