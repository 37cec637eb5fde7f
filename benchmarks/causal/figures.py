"""What is measured on a trained causal transformer, the same in all experiments."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.attention_match import AttentionMatch, match_attention
from imir_lens.causal.behaviour import head_attention
from imir_lens.causal.parameters import (
    block_diagonality,
    column_error,
    effective_kernel,
    mean_block,
    own_blocks,
    readout_error,
    row_error,
    scale,
)
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.tasks.episodes import CausalTask, Episodes
from imir_lens.tasks.fixed_kernel import FixedKernel

TEST_SEED = 1234  # of test episodes, which no training run draws


def held_out(task: CausalTask, contexts: int, n_examples: int | None = None) -> Episodes:
    """Return the episodes that models are tested on."""
    return task.sample_episodes(contexts, torch.Generator().manual_seed(TEST_SEED), n_examples=n_examples)


def matched(model: CausalTransformer, task: CausalTask, episodes: Episodes) -> AttentionMatch:
    """Return the second layer's attention beside the posterior."""
    (attention,) = head_attention(model, task, episodes)
    return match_attention(attention.weights, task.posterior(episodes), episodes)


def behaviour_figures(model: CausalTransformer, task: CausalTask, contexts: int) -> dict[str, Any]:
    """Return L_pa beside that of BMA and of equal attention, and the total variation to the posterior."""
    match = matched(model, task, held_out(task, contexts))
    return {**loss_figures(match), "total variation": match.total_variation}


def loss_figures(match: AttentionMatch) -> dict[str, float]:
    """Return L_pa beside that of BMA and of equal attention."""
    return {
        "L_pa": match.parent_loss,
        "L_pa, BMA": match.bma_parent_loss,
        "L_pa, uniform": match.uniform_parent_loss,
        "gap": match.parent_loss - match.bma_parent_loss,
    }


def parameter_figures(model: CausalTransformer, task: FixedKernel) -> dict[str, Any]:
    """Return how close the weights come to the construction.

    Errors are means over examples of the effective kernel's own blocks, beside that of their mean; `raw` is the column
    error of W_KQ's own blocks as they stand, head by head.
    """
    pi = task.kernel
    blocks = effective_kernel(model).double()
    own = own_blocks(blocks)
    maps = model.maps()
    middle = model.copyers.w_H.shape[1] // 2
    copied = maps.examples.detach().argmax(dim=1)
    return {
        "column": float(column_error(own, pi).mean()),
        "row": float(row_error(own, pi).mean()),
        "column, mean block": float(column_error(mean_block(blocks), pi)),
        "row, mean block": float(row_error(mean_block(blocks), pi)),
        "column, raw": float(column_error(raw_own_blocks(model).double(), pi).mean()),
        "column, zero kernel": float(column_error(torch.zeros_like(pi), pi)),
        "readout": readout_error(model, pi),
        "block-diagonality": block_diagonality(blocks),
        "scale": float(scale(own, task.log_kernel).mean()),
        "heads with w_H highest at 0": int((model.copyers.w_H.argmax(dim=1) == middle).sum()),
        "heads": model.cfg.n_heads,
        "same-position mass": float(maps.positions.detach().diagonal(dim1=1, dim2=2).mean()),
        "examples copied": int(copied.unique().numel()),
    }


def raw_own_blocks(model: CausalTransformer) -> Float[Tensor, "head parent child"]:
    """Return W_KQ's diagonal blocks, one for each head."""
    heads, d = model.cfg.n_heads, model.cfg.d_input
    return own_blocks(model.bma.W_KQ.detach().view(heads, d, heads, d).transpose(1, 2))
