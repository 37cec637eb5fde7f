"""The second layer: one head inside the query, and its readout."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from imir_lens.compat import HookPoint
from imir_lens.tasks.episodes import masked_softmax


class BmaHead(nn.Module):
    """Attends from a position to the candidates for its parent, by what the copyers brought to both.

    With v_h ∈ R^{K·d} what they brought to position h, and x_h its own input::

        scores[h, h'] = v_h' W_KQ v_hᵀ          key first: rows of W_KQ are the parent, columns the child
        out_h = (Σ_h' softmax(scores[h])_h' x_h') W_OV

    It compares `log p(child | parent)` when `W_KQ = blockdiag(log pi)`: then the pattern is the posterior over parents.
    `hook_scores` sees scores of all pairs of positions, also of those that are no candidates; `hook_pattern` what is
    left after the softmax over candidates. A position without candidates attends to nothing, and its output is 0.
    """

    def __init__(self, d_context: int, d_input: int) -> None:
        super().__init__()
        self.W_KQ = nn.Parameter(torch.zeros(d_context, d_context))
        self.W_OV = nn.Parameter(torch.zeros(d_input, d_input))
        self.hook_scores, self.hook_pattern = HookPoint(), HookPoint()

    def forward(
        self,
        v: Float[Tensor, "context position d_context"],
        x: Float[Tensor, "context position d_input"],
        candidates: Bool[Tensor, "position position"],
    ) -> Float[Tensor, "context position d_input"]:
        """Return the readout of what each position attends to."""
        keys = v @ self.W_KQ
        scores = self.hook_scores(torch.bmm(v, keys.transpose(1, 2)))
        pattern = self.hook_pattern(masked_softmax(scores, candidates))
        return torch.bmm(pattern, x) @ self.W_OV
