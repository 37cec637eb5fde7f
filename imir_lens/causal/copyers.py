"""The first layer: heads that copy one position of one example, chosen by position alone."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.compat import HookPoint
from imir_lens.errors import OptionError


class CopyMaps(NamedTuple):
    """Where the copyers look. The attention of head k at (example l, position h') is the product of both.

    Attributes:
        examples: over examples, oldest first. Those further back than L get 0.
        positions: over the positions of an example, from each position of the query.
    """

    examples: Float[Tensor, "head example"]
    positions: Float[Tensor, "head query key"]


class Copyers(nn.Module):
    """K heads with relative position biases and nothing else.

    From position h of the query, head k scores position h' of the example l places before the query::

        w_L[k, l] + w_H[k, h − h']          l = 1 is the last example; h − h' runs from −(H−1) to H−1

    and takes the softmax over all positions of all examples. It is the product of a softmax over examples and one over
    positions, so a forward pass is two small products: `v_k = P_k Σ_l E_kl x^l`.

    With fewer than L examples, the softmax is over those that exist. With more, only the nearest L are seen: `w_L` has
    no entry for the others. Without any, the heads write 0.

    Attributes:
        w_L: `[head, l − 1]`.
        w_H: `[head, offset + H − 1]`, offset h − h'.
    """

    def __init__(self, n_heads: int, n_examples: int, n_positions: int) -> None:
        super().__init__()
        self.w_L = nn.Parameter(torch.zeros(n_heads, n_examples))
        self.w_H = nn.Parameter(torch.zeros(n_heads, 2 * n_positions - 1))
        self.hook_examples, self.hook_positions, self.hook_out = HookPoint(), HookPoint(), HookPoint()

    def maps(self, n_examples: int, n_positions: int) -> CopyMaps:
        """Return the attention of every head for so many examples and positions.

        Raises:
            OptionError: for more positions than w_H has offsets for.
        """
        most = (self.w_H.shape[1] + 1) // 2
        if n_positions > most:
            raise OptionError(
                f"expected examples of at most {most} positions, found {n_positions}: the model was built for H={most}"
            )
        seen = min(n_examples, self.w_L.shape[1])
        nearest = self.w_L[:, :seen].softmax(dim=1).flip(1)
        examples = nn.functional.pad(nearest, (n_examples - seen, 0))
        place = torch.arange(n_positions, device=self.w_H.device)
        offset = place.unsqueeze(1) - place + most - 1
        return CopyMaps(examples, self.w_H[:, offset].softmax(dim=2))

    def forward(
        self, examples: Float[Tensor, "context example position d_input"]
    ) -> Float[Tensor, "context position head d_input"]:
        """Return what each head copies to each position of the query."""
        contexts, n_examples, n_positions, d_input = examples.shape
        maps = self.maps(n_examples, n_positions)
        over_examples, over_positions = self.hook_examples(maps.examples), self.hook_positions(maps.positions)
        mixed = torch.matmul(over_examples, examples.reshape(contexts, n_examples, n_positions * d_input))
        mixed = mixed.view(contexts, -1, n_positions, d_input)
        return self.hook_out(torch.matmul(over_positions, mixed).transpose(1, 2))
