"""The kernel through an ordinary transformer's copyers, against the one that was built in and against its scores."""

from dataclasses import replace

import pytest
import torch
from causal.flat_models import TASK, episodes, untrained, with_idle_mlp

from imir_lens.causal.capture import capture_copyers
from imir_lens.causal.flat_construction import FLAT_READER, construct_flat
from imir_lens.causal.flat_model import query_patterns
from imir_lens.causal.parameters import block_diagonality, column_error, mean_block, own_blocks, row_error, scale
from imir_lens.causal.transfer_kernel import transfer_kernel
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.ids import Head
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.episodes import masked_softmax


def kernel_of(model, reader=FLAT_READER, **options):
    return transfer_kernel(model, capture_copyers(model, TASK, episodes(2)), reader, **options)


def test_the_flat_construction_compares_by_log_pi_within_each_example():
    blocks = kernel_of(construct_flat(TASK))
    assert torch.allclose(own_blocks(blocks), TASK.log_kernel.expand(2, -1, -1), atol=1e-6)
    assert float(column_error(mean_block(blocks), TASK.kernel)) < 1e-6
    assert float(row_error(mean_block(blocks), TASK.kernel)) < 1e-6
    assert float(column_error(mean_block(blocks).T, TASK.kernel)) > 0.1  # parents are rows
    assert torch.allclose(scale(own_blocks(blocks), TASK.log_kernel), torch.ones(2).double())
    assert block_diagonality(blocks) > 1 - 1e-6


def test_an_idle_mlp_changes_nothing():
    assert torch.allclose(kernel_of(with_idle_mlp(construct_flat(TASK))), kernel_of(construct_flat(TASK)))


def test_an_untrained_model_has_no_such_kernel():
    blocks = kernel_of(untrained())
    assert float(column_error(mean_block(blocks), TASK.kernel)) > 0.1
    assert float(scale(mean_block(blocks), TASK.log_kernel).abs()) < 0.1
    assert block_diagonality(blocks) < 0.9


def test_scores_of_mixing_copyers_are_those_of_the_kernel():
    """Random values and readers behind copyers that mix examples: the reader's pattern follows from W_tf alone."""
    model = _mixing(construct_flat(TASK), seed=1)
    drawn = episodes(12)
    blocks = kernel_of(model)
    found = query_patterns(model, TASK, drawn)[1][:, 0, :-1, -1]  # rows h − 1, keys in the query
    one_hot = torch.nn.functional.one_hot(drawn.examples, TASK.d).double()
    scores = torch.einsum("clpi,lnij,cnhj->chp", one_hot, blocks, one_hot)
    expected = masked_softmax(scores, drawn.candidates)[:, 1:]
    # Both attend within the query only up to the bonus: compare what is left there.
    found = found * drawn.candidates[1:]
    assert torch.allclose(found / found.sum(2, keepdim=True), expected, atol=1e-6)
    assert float(blocks[0, 1].std()) > 0.1 and float(expected.std()) > 0.1
    plain = masked_softmax(torch.einsum("clpi,lij,clhj->chp", one_hot, own_blocks(blocks), one_hot), drawn.candidates)
    assert not torch.allclose(plain[:, 1:], expected, atol=0.05)  # the cross blocks are needed


def _mixing(model: ImirTransformer, seed: int) -> ImirTransformer:
    generator = torch.Generator().manual_seed(seed)
    d, examples, nodes = TASK.d, TASK.examples, TASK.positions
    first, second = model.blocks[0].attn, model.blocks[1].attn
    node = torch.arange(nodes)
    with torch.no_grad():
        for copyer in range(2 * examples):
            other = (copyer % examples + 1) % examples
            first.W_K[copyer, d + other * nodes + node, node] = (
                0.95 + 0.02 * copyer
            )  # examples mixed, all positions alike
            first.W_V[copyer, :d, :d] = torch.randn(d, d, generator=generator).double()
        dims = examples * d
        second.W_Q[0, d + model.cfg.n_ctx : -d, :dims] = torch.randn(2 * dims, dims, generator=generator).double()
        second.W_K[0, d + model.cfg.n_ctx : -d, :dims] = torch.randn(2 * dims, dims, generator=generator).double()
        # What the query holds of the same position, and the key of the next, is no part of W_tf.
        second.W_Q[0, d + model.cfg.n_ctx :][:dims] = 0
        second.W_K[0, d + model.cfg.n_ctx :][dims : 2 * dims] = 0
        second.W_K[0, : d + model.cfg.n_ctx, :dims] = 0
    return model


def test_leaving_out_a_copyer_takes_its_example_out():
    model = construct_flat(TASK)
    blocks = kernel_of(model, without=[Head(0, 2)])  # the next position of example 0
    assert float(blocks[:, 0].abs().max()) < 1e-6
    assert torch.allclose(blocks[1, 1], TASK.log_kernel, atol=1e-6)


def test_readers_that_cannot_read_copyers_are_refused():
    model = construct_flat(TASK)
    with pytest.raises(OptionError, match="no head L0H1 with heads below it in a model of 2 layers of 4 heads"):
        kernel_of(model, Head(0, 1))
    with pytest.raises(OptionError, match="no heads below L1H0 among the copyers"):
        transfer_kernel(model, [], FLAT_READER)


def test_capped_scores_are_refused_and_capped_logits_are_not():
    plain = construct_flat(TASK)
    capped, capped_logits = (
        ImirTransformer(replace(plain.cfg, **{name: 20.0}))
        for name in ("attn_scores_soft_cap", "output_logits_soft_cap")
    )
    for model in (capped, capped_logits):
        model.load_transformer_lens_state(plain.state_dict())
    assert torch.equal(kernel_of(capped_logits), kernel_of(plain))
    with pytest.raises(UnsupportedModelError, match=r"^the transfer kernel does not support soft-capped .*=20.0. yet"):
        kernel_of(capped)
