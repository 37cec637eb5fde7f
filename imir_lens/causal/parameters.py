"""What the weights of a causal transformer say: the kernel its second layer compares with, and how close to log pi.

**Gauge.** Adding to a block of `W_KQ` the same number in all rows of a column, `W + 1aᵀ`, changes no attention: heads
copy mixtures of one-hot rows, so every key's score grows by the same amount. So W is compared with `log pi`
column by column: `softmax over rows` of a column of log pi is pi normalised over parents, and any gauge drops out. The
row softmax, which would give pi itself, depends on the gauge; nothing in training fixes it. The readout's gauge is a
constant per row, so there the row softmax is right.

**Effective kernel.** Heads need not copy one example each: any invertible mixture serves, with W_KQ mixed back. What
counts is how the tokens of example l are compared with those of example l'::

    W_eff[l, l'] = Σ_{k,m} c_kl c_ml' W_KQ[k, m]        c_kl = attention of head k to the same position of example l
"""

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.transformer import CausalTransformer

Kernel = Float[Tensor, "parent child"]
Blocks = Float[Tensor, "example example parent child"]


def copy_mass(model: CausalTransformer, n_examples: int | None = None) -> Float[Tensor, "head example"]:
    """Return `c_kl`: the attention of head k to the same position of example l, averaged over positions."""
    maps = model.maps(n_examples)
    return (maps.examples * maps.positions.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True)).detach()


def effective_kernel(model: CausalTransformer, n_examples: int | None = None) -> Blocks:
    """Return `W_eff[l, l']` for all pairs of examples, oldest first."""
    mass = copy_mass(model, n_examples)
    heads, d = model.cfg.n_heads, model.cfg.d_input
    blocks = model.bma.W_KQ.detach().view(heads, d, heads, d)
    return torch.einsum("kl,mn,kimj->lnij", mass, mass, blocks)


def own_blocks(blocks: Blocks) -> Float[Tensor, "example parent child"]:
    """Return the diagonal blocks: each example compared with itself."""
    return blocks.diagonal(dim1=0, dim2=1).permute(2, 0, 1)


def mean_block(blocks: Blocks) -> Kernel:
    """Return the mean of the diagonal blocks."""
    return own_blocks(blocks).mean(dim=0)


def column_error(weights: Float[Tensor, "*batch parent child"], kernel: Kernel) -> Float[Tensor, "*batch"]:
    """Return the mean over columns of the total variation between `softmax over rows` of W and of log pi.

    Args:
        weights: W, or several.
        kernel: pi, rows are the parent.
    """
    expected = kernel / kernel.sum(dim=0)
    return _variation(weights.to(expected).softmax(dim=-2), expected).sum(dim=-2).mean(dim=-1)


def row_error(weights: Float[Tensor, "*batch parent child"], kernel: Kernel) -> Float[Tensor, "*batch"]:
    """Return the mean over rows of the total variation between `softmax over columns` of W and pi."""
    return _variation(weights.to(kernel).softmax(dim=-1), kernel).sum(dim=-1).mean(dim=-1)


def readout_error(model: CausalTransformer, kernel: Kernel) -> float:
    """Return `row_error` of W_OV, whose gauge is a constant per row."""
    return float(row_error(model.bma.W_OV.detach(), kernel))


def scale(weights: Float[Tensor, "*batch parent child"], reference: Kernel) -> Float[Tensor, "*batch"]:
    """Return the slope of W against a reference such as log pi, after both lost their columns' means."""
    wanted = _centred(reference)
    return (_centred(weights.to(wanted)) * wanted).sum(dim=(-2, -1)) / wanted.square().sum()


def block_diagonality(blocks: Blocks) -> float:
    """Return the share of the squared norm, columns centred, that lies in the diagonal blocks; 1/L by chance.

    It is not a number when all blocks are constant over parents.
    """
    squares = _centred(blocks).square().sum(dim=(-2, -1))
    return float(squares.diagonal().sum() / squares.sum())


def _centred(weights: Float[Tensor, "*batch parent child"]) -> Float[Tensor, "*batch parent child"]:
    return weights - weights.mean(dim=-2, keepdim=True)


def _variation(found: Float[Tensor, "*batch row column"], expected: Kernel) -> Float[Tensor, "*batch row column"]:
    return (found - expected).abs() / 2
