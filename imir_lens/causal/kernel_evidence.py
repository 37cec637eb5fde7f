"""Tier 2 of a verification: whether the weights compare tokens by log pi, example by example.

For a CausalTransformer it is the effective kernel, for an ordinary transformer the transfer kernel through its copyers'
OV maps. For vectors it is compared with c1 A, as it stands: a bilinear form of vectors has no gauge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.causal.capture import CopyerHead
from imir_lens.causal.flat_model import as_imir_transformer
from imir_lens.causal.parameters import (
    Blocks,
    Kernel,
    block_diagonality,
    column_error,
    effective_kernel,
    mean_block,
    own_blocks,
    readout_error,
    row_error,
    scale,
)
from imir_lens.causal.transfer_kernel import transfer_kernel
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.ids import Head
from imir_lens.tasks.episodes import CausalTask
from imir_lens.tasks.fixed_kernel import FixedKernel
from imir_lens.tasks.linear_dynamics import LinearDynamics


@dataclass(frozen=True)
class KernelErrors:
    """Errors of one kind: of each example's own block, and of kernels that know less.

    Attributes:
        per_example: of `W_eff[l, l]`, oldest example first.
        averaged: of the mean of these blocks.
        uniform: of the zero kernel, which tells no parents apart.
        shuffled: of the mean block with the rows of each column permuted at random: as large, but of another kernel.
    """

    per_example: tuple[float, ...]
    averaged: float
    uniform: float
    shuffled: float

    @property
    def mean(self) -> float:
        """The mean over examples."""
        return sum(self.per_example) / len(self.per_example)


@dataclass(frozen=True, eq=False)
class KernelEvidence:
    """What the parameters say.

    Attributes:
        kind: `effective kernel` or `transfer kernel`.
        exact: whether the blocks are the whole part of the score that compares tokens of the examples; False for
            ordinary transformers with MLPs or norms, where they are a hint.
        blocks: the kernel, `[l, l']`.
        raw: W_KQ before the effective map, where there is one.
        reference: log pi, or c1 A.
        column: column errors; None for vectors.
        row: row errors; None for vectors.
        scales: slope of each example's own block against the reference; 1 in the exact construction.
        alignments: cosine of each own block with the reference.
        block_diagonality: share of the squared norm in own blocks.
        readout: error of W_OV; None for ordinary transformers.
        readout_uniform: that of a readout which says nothing.
    """

    kind: str
    exact: bool
    blocks: Blocks
    raw: Float[Tensor, "row column"] | None
    reference: Kernel
    column: KernelErrors | None
    row: KernelErrors | None
    scales: tuple[float, ...]
    alignments: tuple[float, ...]
    block_diagonality: float | None
    readout: float | None
    readout_uniform: float | None

    @property
    def scale(self) -> float:
        """The mean slope."""
        return sum(self.scales) / len(self.scales)

    @property
    def alignment(self) -> float:
        """The mean cosine."""
        return sum(self.alignments) / len(self.alignments)


def kernel_evidence(
    model: nn.Module, task: CausalTask, copyers: Sequence[CopyerHead], reader: Head, *, seed: int = 0
) -> KernelEvidence | None:
    """Read the kernel off the weights and compare it with the task's.

    Args:
        model: a CausalTransformer or an ordinary transformer.
        task: whose kernel it should be.
        copyers: all heads, from `capture_copyers`.
        reader: the head whose scores they are.
        seed: of the shuffled kernel.

    Returns:
        The evidence; None for a task without a kernel.

    Raises:
        ImirError: when the weights of an ordinary transformer cannot be read.
    """
    causal = isinstance(model, CausalTransformer)
    if not isinstance(task, FixedKernel | LinearDynamics):
        return None
    reference = task.log_kernel if isinstance(task, FixedKernel) else task.c1 * task.matrix
    if isinstance(model, CausalTransformer):
        blocks, raw, exact = effective_kernel(model), model.bma.W_KQ.detach().cpu().double(), True
    else:
        cfg = as_imir_transformer(model).cfg
        exact = bool(cfg.attn_only) and cfg.normalization_type is None
        blocks, raw = transfer_kernel(model, copyers, reader, d=task.d), None
    blocks = blocks.cpu().double()
    tokens = isinstance(task, FixedKernel)
    own = _centred(own_blocks(blocks)) if tokens else own_blocks(blocks)
    wanted = _centred(reference) if tokens else reference
    inner = (own * wanted).sum(dim=(1, 2))
    norms = own.square().sum(dim=(1, 2)).sqrt() * wanted.square().sum().sqrt()
    diagonality = block_diagonality(blocks) if tokens else _share_in_own(blocks)
    column = row = readout = none = None
    if isinstance(task, FixedKernel):
        shuffled = _shuffled(mean_block(blocks), seed)
        column, row = (_errors(error, blocks, shuffled, task.kernel) for error in (column_error, row_error))
        slopes = scale(own_blocks(blocks), reference)
    else:
        slopes = inner / wanted.square().sum()
    if isinstance(model, CausalTransformer):
        if isinstance(task, FixedKernel):
            readout, none = (
                readout_error(model, task.kernel),
                float(row_error(torch.zeros_like(reference), task.kernel)),
            )
        else:
            target = task.shrinkage * task.matrix
            readout = float((model.bma.W_OV.detach().cpu().double() - target).norm() / target.norm())
            none = 1.0
    return KernelEvidence(
        kind="effective kernel" if causal else "transfer kernel",
        exact=exact,
        blocks=blocks,
        raw=raw,
        reference=reference,
        column=column,
        row=row,
        scales=tuple(slopes.tolist()),
        alignments=tuple((inner / norms.clamp(min=1e-300)).tolist()),
        block_diagonality=diagonality if diagonality == diagonality else None,
        readout=readout,
        readout_uniform=none,
    )


def _errors(error: object, blocks: Blocks, shuffled: Kernel, kernel: Kernel) -> KernelErrors:
    assert callable(error)
    return KernelErrors(
        per_example=tuple(error(own_blocks(blocks), kernel).tolist()),
        averaged=float(error(mean_block(blocks), kernel)),
        uniform=float(error(torch.zeros_like(kernel), kernel)),
        shuffled=float(error(shuffled, kernel)),
    )


def _shuffled(block: Kernel, seed: int) -> Kernel:
    """Permute the rows of each column."""
    order = torch.rand(block.shape, generator=torch.Generator().manual_seed(seed)).argsort(dim=0)
    return block.gather(0, order)


def _centred(weights: Float[Tensor, "*batch parent child"]) -> Float[Tensor, "*batch parent child"]:
    return weights - weights.mean(dim=-2, keepdim=True)


def _share_in_own(blocks: Blocks) -> float:
    squares = blocks.square().sum(dim=(-2, -1))
    return float(squares.diagonal().sum() / squares.sum())
