"""Taking a relation out of a kernel, and out of a causal transformer's effective kernel.

An entry is taken out by giving it the mean of the other entries of its column, those that stay. So it no longer tells
parents apart, and a constant added to a column, which changes no attention, changes no edit either.
"""

import copy

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.causal.parameters import Blocks, copy_mass, effective_kernel
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.errors import OptionError

Edited = Float[Tensor, "*batch parent child"]


def without_entries(weights: Edited, removed: Bool[Tensor, "parent child"]) -> Edited:
    """Return weights in which removed entries are the mean of what is left in their column.

    Raises:
        OptionError: when a whole column would go.
    """
    if bool(removed.all(dim=0).any()):
        raise OptionError("a column of the kernel would lose all its entries: leave at least one parent")
    left = weights.masked_fill(removed, 0).sum(dim=-2, keepdim=True) / (~removed).sum(dim=0)
    return torch.where(removed, left, weights)


def parent_entries(d: int, parent: int) -> Bool[Tensor, "parent child"]:
    """Return the entries of one parent token: its row.

    Raises:
        OptionError: for a token outside d.
    """
    if not 0 <= parent < d:
        raise OptionError(f"the kernel has parents 0 … {d - 1}: found {parent}")
    removed = torch.zeros(d, d, dtype=torch.bool)
    removed[parent] = True
    return removed


def same_entries(d: int) -> Bool[Tensor, "parent child"]:
    """Return the entries in which parent and child are the same token: the diagonal."""
    return torch.eye(d, dtype=torch.bool)


def without_cross_blocks(blocks: Blocks) -> Blocks:
    """Return blocks whose off-diagonal ones, between different examples, are constant over parents."""
    own = torch.eye(len(blocks), dtype=torch.bool, device=blocks.device)[:, :, None, None]
    return torch.where(own, blocks, blocks.mean(dim=-2, keepdim=True))


def without_in_own_blocks(blocks: Blocks, removed: Bool[Tensor, "parent child"]) -> Blocks:
    """Return blocks in which entries are taken out of the diagonal ones, where an example meets itself."""
    own = torch.eye(len(blocks), dtype=torch.bool, device=blocks.device)[:, :, None, None]
    return torch.where(own, without_entries(blocks, removed.to(blocks.device)), blocks)


def with_effective_kernel(model: CausalTransformer, wanted: Blocks) -> CausalTransformer:
    """Return a copy of a model whose effective kernel is another one.

    With c the copy masses `[head, example]` and G its pseudo-inverse, W_KQ changes by

        ΔW_KQ[k, m] = Σ_{l,l'} G_lk G_l'm ΔW_eff[l, l'],

    the smallest change that does it. With fewer heads than examples there need be none; this is then the nearest.
    """
    copied = copy.deepcopy(model)
    heads, d = model.cfg.n_heads, model.cfg.d_input
    inverse = torch.linalg.pinv(copy_mass(model, len(wanted)))
    change = (wanted - effective_kernel(model, len(wanted))).to(inverse)
    lifted = torch.einsum("lk,nm,lnij->kimj", inverse, inverse, change).reshape(heads * d, heads * d)
    with torch.no_grad():
        copied.bma.W_KQ.add_(lifted)
    return copied
