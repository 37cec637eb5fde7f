"""What removals do to L_pa, predicted from the posterior and measured in models that are it, and that are not."""

import pytest
import torch
from causal.flat_models import TASK, episodes, untrained, with_idle_mlp

from imir_lens.causal.construction import construct
from imir_lens.causal.flat_construction import construct_flat
from imir_lens.causal.kernel_edits import (
    parent_entries,
    same_entries,
    with_effective_kernel,
    without_cross_blocks,
    without_entries,
)
from imir_lens.causal.leave_out import (
    find_reader,
    leave_out_each,
    leave_out_example,
    leave_out_head,
    leave_out_relation,
)
from imir_lens.causal.parameters import effective_kernel
from imir_lens.causal.parent_attention import parent_attention
from imir_lens.causal.transformer import CausalConfig, CausalTransformer, initialise
from imir_lens.errors import OptionError, TaskError
from imir_lens.ids import Head
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.linear_dynamics import LinearDynamics

THREE = CausalTree(d=4, positions=6, examples=3)


def fresh():
    model = CausalTransformer(CausalConfig(THREE.d, THREE.positions, THREE.examples))
    initialise(model, torch.Generator().manual_seed(0))
    return model


def drawn(contexts=300):
    return episodes(contexts, task=THREE)


def test_removals_do_in_the_construction_what_they_do_to_the_posterior():
    found = leave_out_each(construct(THREE), THREE, drawn())
    assert [one.what for one in found] == [
        *("example 0", "example 1", "example 2", "head L0H0", "head L0H1", "head L0H2"),
        *("same", "cross-example blocks", "parent 0", "parent 1", "parent 2", "parent 3"),
    ]
    assert max(abs(one.error) for one in found) < 1e-6
    for one in found:
        if one.what.startswith(("example", "head")):
            assert one.measured > 0.05
    by_name = {one.what: one.measured for one in found}
    assert max(abs(by_name[f"parent {token}"]) for token in range(4)) > 0.05 and abs(by_name["same"]) > 0.01
    assert abs(by_name["cross-example blocks"]) < 1e-9


def test_heads_that_mix_examples_are_predicted_too():
    """Every head copies all examples, W_KQ undoes the mixture: attention is still the posterior."""
    model = construct(THREE)
    wanted = effective_kernel(model)
    with torch.no_grad():
        model.copyers.w_L.copy_(torch.tensor([[1.0, 0.2, 0.0], [0.0, 1.5, 0.3], [0.4, 0.0, 2.0]]))
    model = with_effective_kernel(model, wanted)
    some = drawn()
    assert torch.allclose(effective_kernel(model), wanted, atol=1e-9)
    assert torch.allclose(parent_attention(model, THREE, some)[0].weights, THREE.posterior(some), atol=1e-6)
    for example in range(3):
        one = leave_out_example(model, THREE, some, example)
        assert abs(one.error) < 1e-6 and one.measured > 0.05
    for relation in ("same", "parent 1"):
        assert abs(leave_out_relation(model, THREE, some, relation).error) < 1e-6


def test_an_untrained_model_does_not_lose_what_the_posterior_loses():
    found = leave_out_each(fresh(), THREE, drawn())
    examples = [one for one in found if one.what.startswith(("example", "head"))]
    assert len(examples) == 6
    assert all(abs(one.measured) < 0.01 for one in examples)
    assert all(one.predicted > 0.05 for one in examples if one.what.startswith("example"))
    assert max(abs(one.error) for one in examples) > 0.05


def test_a_model_of_another_kernel_is_not_predicted():
    other = CausalTree.with_kernel(THREE.kernel.roll(1, dims=1), positions=6, examples=3)
    one = leave_out_example(construct(other), THREE, drawn(), 1)
    assert abs(one.error) > 0.05


@pytest.mark.parametrize("idle_mlp", [False, True])
def test_the_flat_construction_loses_what_the_posterior_loses(idle_mlp):
    model = construct_flat(TASK)
    model = with_idle_mlp(model) if idle_mlp else model
    some = episodes()
    assert find_reader(model, TASK, some) == Head(1, 0)
    found = leave_out_each(model, TASK, some)
    assert [one.what for one in found] == [f"example {place}" for place in (0, 1)] + [f"head L0H{k}" for k in range(4)]
    assert max(abs(one.error) for one in found) < 1e-6
    assert min(one.measured for one in found) > 0.05


def test_an_untrained_ordinary_model_has_no_copyers_to_leave_out():
    some = episodes()
    found = leave_out_each(untrained(), TASK, some)
    assert [one.what for one in found] == ["example 0", "example 1"]
    assert all(abs(one.measured) < 0.01 < 0.05 < one.predicted for one in found)


def test_vectors_have_examples_and_heads_to_leave_out_and_no_kernel():
    task = LinearDynamics(d=4, positions=5, examples=2, unit_norm=True)
    some = task.sample_episodes(300, torch.Generator().manual_seed(0))
    model = construct(task)
    found = leave_out_each(model, task, some)
    assert [one.what for one in found] == ["example 0", "example 1", "head L0H0", "head L0H1"]
    assert max(abs(one.error) for one in found) < 1e-3 < 0.05 < min(one.measured for one in found)
    with pytest.raises(TaskError, match="linear_dynamics has no kernel"):
        leave_out_relation(model, task, some, "same")


def test_edits_do_not_depend_on_the_gauge():
    kernel, shift = TASK.log_kernel, torch.arange(4).double()
    for removed in (same_entries(4), parent_entries(4, 2)):
        edited = without_entries(kernel, removed)
        assert torch.allclose(without_entries(kernel + shift, removed), edited + shift)
        assert not torch.allclose(edited, kernel) and torch.equal(edited[~removed], kernel[~removed])
    blocks = torch.randn(2, 2, 4, 4).double()
    crossless = without_cross_blocks(blocks)
    assert torch.equal(crossless[0, 0], blocks[0, 0]) and float(crossless[0, 1].std(dim=0).abs().max()) < 1e-12


def test_models_are_left_as_they_were():
    model = construct(THREE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    leave_out_each(model, THREE, drawn(4))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_what_is_not_there_cannot_be_left_out():
    model, some = construct(THREE), drawn(2)
    with pytest.raises(OptionError, match="examples 0 … 2: found 3"):
        leave_out_example(model, THREE, some, 3)
    with pytest.raises(OptionError, match="expected a copyer L0H0 … L0H2, found L1H0"):
        leave_out_head(model, THREE, some, Head(1, 0))
    with pytest.raises(OptionError, match="a head in a layer below L1H0, found L0H9"):
        leave_out_head(construct_flat(TASK), TASK, episodes(2), Head(0, 9))
    with pytest.raises(OptionError, match="'diagonal' cannot be left out"):
        leave_out_relation(model, THREE, some, "diagonal")
    with pytest.raises(OptionError, match="parents 0 … 3: found 7"):
        leave_out_relation(model, THREE, some, "parent 7")
    with pytest.raises(OptionError, match="lose all its entries"):
        without_entries(TASK.log_kernel, torch.ones(4, 4, dtype=torch.bool))
