"""Weights whose attention is the posterior over parents: the exact construction (Theorem 1).

Head k copies the same position of example k, by position biases of ±beta; the second layer compares what head k brought
to two positions by log pi, and adds up over k. So the score of h' at h is `Σ_k log pi(x_h^k | x_h'^k)`, whose softmax
over candidates is the posterior under a uniform prior.

**How the error falls with beta.** A head's weight elsewhere is, over L examples and H positions,

    ε = 1 − 1/((1 + (L−1) e^{−2β}) (1 + (H−1) e^{−2β}))  ≤  (L + H − 2) e^{−2β}.

What it brings is the wanted row with weight 1 − ε and some mixture of rows with weight ε. A block of the score is
therefore an average of entries of log pi, with weight at least (1 − ε)² on the right one; if R is the range of log pi
(max − min), it is off by at most `(1 − (1−ε)²) R ≤ 2εR`, and the score, a sum of L blocks, by at most

    δ = 2 L R (L + H − 2) e^{−2β}.

Scores that are off by at most δ multiply the odds of any set of candidates by at most `e^{2δ}`, so the attention's
total variation to the posterior is at most `tanh(δ/2) ≤ δ/2`. On a logarithmic axis the error falls with slope −2.

For vectors, A being orthogonal, the same holds with `R = 2 c1 max|x|²` for the error against the attention of the same
bilinear score. That is the posterior only where the missing term `c2 |x_h'|²` is constant, as with unit norm.
"""

import math
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.config import CausalConfig
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.errors import OptionError, TaskError
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import CausalTask
from imir_lens.tasks.kernels import check_kernel
from imir_lens.tasks.linear_dynamics import LinearDynamics

BETA = 30.0


def construct(
    task: CausalTask | Float[Tensor, "parent child"],
    *,
    n_positions: int | None = None,
    n_examples: int | None = None,
    beta_rpe: float = BETA,
) -> CausalTransformer:
    """Build the model that attends by the posterior over parents, in float64.

    For a `CausalTree`, or a kernel pi of one's own, `W_KQ = blockdiag(log pi)` and `W_OV = log pi`. The readout of the
    attended mixture is a geometric mean of the parents' predictions, where BMA takes the arithmetic one: they agree
    when the posterior is sure.

    For `LinearDynamics`, `W_KQ = blockdiag(c1 A)` and `W_OV = rho A` (with unit norm, `shrinkage A`): as rows, the mean
    of x_h is `rho x_pa A`, and c1 `x_pa A x_hᵀ` is the bilinear part of its log-likelihood.

    Args:
        task: a `CausalTree` or `LinearDynamics`, or a kernel `[parent, child]`.
        n_positions: H; the task's by default.
        n_examples: L; the task's by default.
        beta_rpe: position biases are ±beta_rpe.

    Raises:
        TaskError: when the kernel is not stochastic or has zeros, or there is no such construction for the task.
        OptionError: when a size or beta_rpe is out of range, or a kernel comes without sizes.
    """
    if not 0 <= beta_rpe < math.inf:
        raise OptionError(f"beta_rpe must be a number of at least 0: found {beta_rpe}")
    if isinstance(task, CausalTree | LinearDynamics):
        n_positions = task.positions if n_positions is None else n_positions
        n_examples = task.examples if n_examples is None else n_examples
    elif not isinstance(task, Tensor):
        _refuse(task)
    if n_positions is None or n_examples is None:
        raise OptionError("a kernel does not say how long examples are: expected n_positions=H and n_examples=L")
    if isinstance(task, LinearDynamics):
        config = CausalConfig(task.d, n_positions, n_examples, continuous=True)
        return _copying(config, task.c1 * task.matrix, task.shrinkage * task.matrix, beta_rpe)
    log_pi = check_kernel(task if isinstance(task, Tensor) else task.kernel).log()
    return _copying(CausalConfig(len(log_pi), n_positions, n_examples), log_pi, log_pi, beta_rpe)


def _refuse(task: CausalTask) -> NoReturn:
    raise TaskError(
        f"no construction for {task.name!r}: expected causal_tree, linear_dynamics or a kernel, "
        "or for lag_chain `construct_lags`"
    )


def leakage(beta_rpe: float, n_positions: int, n_examples: int) -> float:
    """Return ε: the attention that a constructed head spends elsewhere."""
    others = math.exp(-2 * beta_rpe)
    return 1 - 1 / ((1 + (n_examples - 1) * others) * (1 + (n_positions - 1) * others))


def score_bound(beta_rpe: float, spread: float, n_positions: int, n_examples: int) -> float:
    """Return δ: no score is off by more. `spread` is R, the range of log pi."""
    return 2 * n_examples * spread * (n_examples + n_positions - 2) * math.exp(-2 * beta_rpe)


def variation_bound(score_error: float) -> float:
    """Return the greatest total variation between the softmaxes of scores that differ by at most `score_error`."""
    return math.tanh(score_error / 2)


def _copying(
    config: CausalConfig,
    block: Float[Tensor, "parent child"],
    readout: Float[Tensor, "parent child"],
    beta_rpe: float,
) -> CausalTransformer:
    model = CausalTransformer(config).to(block.dtype)
    with torch.no_grad():
        model.copyers.w_L.copy_(beta_rpe * (2 * torch.eye(config.n_examples) - 1))
        model.copyers.w_H.fill_(-beta_rpe)
        model.copyers.w_H[:, config.n_positions - 1] = beta_rpe
        model.bma.W_KQ.copy_(torch.block_diag(*[block] * config.n_heads))
        model.bma.W_OV.copy_(readout)
    return model.eval()
