"""The causal transformer within one sequence: the sequence so far is the evidence, and the parent is a lag (Theorem 1).

In `LagChain` every token has the parent t − k, with one lag k for the whole sequence, and for tokens from m on, m the
largest lag,

    P(lag = k | x_0 … x_{t−1}) = softmax over k of Σ_{t' = m}^{t−1} log pi[x_{t'−k}, x_t'].

**Construction.** Head j copies what stands j places back. Position t then holds x_{t−j} and position t − k holds
x_{t−k−j}, so the second layer, comparing what head j brought to both by log pi and adding up over j, scores position
t − k with `Σ_j log pi[x_{t'−k}, x_t']` where t' = t − j: all terms, if there are heads for j = 1 … t − m. Restricted to
keys at the lags, its attention is the posterior. With fewer heads it is the posterior given the last tokens only.

**The boundary.** Terms with t' < m must not be there: those tokens have no parent. Yet the same tokens are parents of
later ones. So a token enters in two halves, as a parent (always) and as a child (where it has one), and log pi joins
the parent's half of the key to the child's half of the query. And a head that finds nothing at its offset must bring
nothing: besides earlier positions, every head can attend to a *sink* with score 0, which holds 0.

**How the error falls with beta.** With biases ±beta the sink takes about e^{−β} of a head that finds its position, and
positions take at most T e^{−β} of one that does not. What a head brings is off by at most 2ε in the sum of its
absolute entries, ε = T e^{−β}; a block of the score by 4ε max|log pi|, and a score of M heads by
`δ = 4 M T e^{−β} max|log pi|`. The slope is −1, as the sink stands between +beta and −beta.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from imir_lens.causal.bma_head import BmaHead
from imir_lens.compat import HookedRootModule, HookPoint
from imir_lens.errors import OptionError, TaskError
from imir_lens.tasks.episodes import CausalTask, Episodes
from imir_lens.tasks.lag_chain import LagChain

BETA = 30.0


class SequenceCopyers(nn.Module):
    """Heads with a bias for each offset 1 … T−1 back, and a sink of score 0 that holds nothing.

    Attributes:
        w_H: `[head, offset − 1]`.
    """

    def __init__(self, n_heads: int, n_positions: int) -> None:
        super().__init__()
        self.w_H = nn.Parameter(torch.zeros(n_heads, n_positions - 1))
        self.hook_positions, self.hook_out = HookPoint(), HookPoint()

    def maps(self, n_positions: int) -> Float[Tensor, "head query key"]:
        """Return each head's attention to earlier positions; what is missing to 1 is the sink's.

        Raises:
            OptionError: for more positions than w_H has offsets for.
        """
        heads, most = self.w_H.shape[0], self.w_H.shape[1] + 1
        if n_positions > most:
            raise OptionError(f"expected sequences of at most {most} positions, found {n_positions}")
        place = torch.arange(n_positions, device=self.w_H.device)
        apart = place.unsqueeze(1) - place
        scores = self.w_H[:, (apart - 1).clamp(min=0)].masked_fill(apart < 1, -torch.inf)
        with_sink = torch.cat([scores, scores.new_zeros(heads, n_positions, 1)], dim=2)
        return with_sink.softmax(dim=2)[:, :, :-1]

    def forward(self, x: Float[Tensor, "context position halves"]) -> Float[Tensor, "context position head halves"]:
        """Return what each head copies to each position."""
        maps = self.hook_positions(self.maps(x.shape[1]))
        return self.hook_out(torch.einsum("kqp,cpd->cqkd", maps, x))


class LagTransformer(HookedRootModule):
    """Copyers within the sequence, and a head that attends to the candidates for the parent; see the module.

    Hooks: `copyers.hook_positions` [head query key], `copyers.hook_out` [context position head 2d], `bma.hook_scores`
    and `bma.hook_pattern` [context query key], `hook_readout` [context position out].

    Args:
        d: number of tokens.
        n_positions: T, the longest sequence.
        n_heads: M.

    Raises:
        OptionError: when a size is too small.
    """

    def __init__(self, d: int, n_positions: int, n_heads: int) -> None:
        super().__init__()
        for name, size, least in (("d", d, 2), ("n_positions", n_positions, 2), ("n_heads", n_heads, 1)):
            if size < least:
                raise OptionError(f"{name} must be at least {least} in a lag transformer: found {name}={size}")
        self.d = d
        self.copyers = SequenceCopyers(n_heads, n_positions)
        self.bma = BmaHead(n_heads * 2 * d, d)
        self.hook_readout = HookPoint()
        self.setup()

    def forward(self, episodes: Episodes) -> Float[Tensor, "context position out"]:
        """Return logits at every position of the query; examples before it are not looked at.

        Raises:
            OptionError: for tokens outside d, or sequences that are too long.
        """
        tokens, candidates = episodes.query, episodes.candidates
        x = self.embed(tokens, candidates.any(dim=1))
        v = self.copyers(x)
        return self.hook_readout(self.bma(v.flatten(2), x[..., : self.d], candidates))

    def embed(
        self, tokens: Int[Tensor, "context position"], has_parent: Bool[Tensor, " position"]
    ) -> Float[Tensor, "context position halves"]:
        """Return one-hot tokens twice: as a parent, and, where they have a parent, as a child."""
        if tokens.numel() and not (int(tokens.min()) >= 0 and int(tokens.max()) < self.d):
            raise OptionError(
                f"the model has tokens 0 … {self.d - 1}: found tokens from {int(tokens.min())} to {int(tokens.max())}"
            )
        parent = torch.eye(self.d).to(self.bma.W_OV)[tokens]
        return torch.cat([parent, parent * has_parent.unsqueeze(1)], dim=2)


def construct_lags(task: CausalTask, *, n_heads: int | None = None, beta_rpe: float = BETA) -> LagTransformer:
    """Build the model that attends by the posterior over lags, in float64.

    Args:
        task: a `LagChain`: the kernel, the lags and the length T.
        n_heads: M, how many tokens back the evidence reaches; by default all of it, T − 1 − max(lags).
        beta_rpe: position biases are ±beta_rpe.

    Raises:
        OptionError: when n_heads or beta_rpe is out of range.
        TaskError: for another task.
    """
    if not isinstance(task, LagChain):
        raise TaskError(f"expected the task lag_chain, found {task.name!r}")
    all_evidence = task.positions - 1 - int(task.lag_values[-1])
    n_heads = all_evidence if n_heads is None else n_heads
    if not 1 <= n_heads <= task.positions - 1:
        raise OptionError(f"n_heads must lie between 1 and {task.positions - 1}: found {n_heads}")
    if not 0 <= beta_rpe < float("inf"):
        raise OptionError(f"beta_rpe must be a number of at least 0: found {beta_rpe}")
    model = LagTransformer(task.d, task.positions, n_heads).double()
    log_pi = task.log_kernel
    block = log_pi.new_zeros(2 * task.d, 2 * task.d)
    block[: task.d, task.d :] = log_pi
    with torch.no_grad():
        model.copyers.w_H.copy_(beta_rpe * (2 * torch.eye(n_heads, task.positions - 1) - 1))
        model.bma.W_KQ.copy_(torch.block_diag(*[block] * n_heads))
        model.bma.W_OV.copy_(log_pi)
    return model.eval()


def lag_score_bound(beta_rpe: float, task: LagChain, n_heads: int) -> float:
    """Return δ: no score of the construction is off by more."""
    largest = float(task.log_kernel.abs().max())
    leaks = task.positions * torch.tensor(-beta_rpe, dtype=torch.float64).exp()
    return float(4 * n_heads * leaks * largest)
