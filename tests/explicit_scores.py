"""The atlas' scores the long way: every pair of tokens, every pair of positions, every offset, written out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_lens.lens_model import LensModel


@dataclass
class Explicit:
    """What layer 0 and the layers above read of each token, and every score between them."""

    lens: LensModel

    def embedded(self, source: int) -> Tensor:
        """Tokens as a source brings them, before σ."""
        model, E = self.lens.model, self.lens.weights.W_E
        if source == 0:
            return E
        block, form = model.blocks[0], self.lens.weights.form
        x = E.unsqueeze(1)
        if form.positions == "standard":
            x = x + self.lens.weights.W_pos.mean(0)
        place = self.lens.weights.W_pos.mean(0) if form.positions == "shortformer" else torch.zeros_like(E[0])
        with torch.no_grad():
            read = block.ln1(x) if hasattr(block, "ln1") else x
            attended = block.attn(read + place, read + place, read, None)
            return E + block.mlp(block.ln2(x if form.mlp == "beside" else x + attended))[:, 0]

    def tokens(self, source: int) -> Tensor:
        """Tokens as heads read them."""
        weights, x = self.lens.weights, self.embedded(source)
        return x / self.sigma(x).unsqueeze(1) if weights.form.norm else x

    def sigma(self, x: Tensor) -> Tensor:
        """Root mean square of each token's stream over all positions."""
        weights = self.lens.weights
        places = weights.W_pos if weights.form.positions == "standard" else weights.W_pos[:1] * 0
        streams = x[:, None] + places[None]
        if weights.form.norm == "LN":
            streams = streams - streams.mean(-1, keepdim=True)
        return streams.square().mean((1, 2)).sqrt()

    def positions(self, source: int) -> Tensor:
        """Learned positions as heads read them."""
        weights = self.lens.weights
        by = self.sigma(self.embedded(source)).mean() if weights.form.norm else 1.0
        return weights.W_pos / by

    def scores(self, layer: int, q: Tensor, k: Tensor, offset: int) -> Tensor:
        """Scores of rows of q for rows of k that stand `offset` before them."""
        rotary = self.lens.model.blocks[layer].attn.rotary
        if rotary is not None:
            length = offset + 1
            q = rotary(q[None, None].expand(1, length, -1, -1).contiguous())[0, offset]
            k = rotary(k[None, None].expand(1, length, -1, -1).contiguous())[0, 0]
        return q @ k.T / self.lens.weights.scale

    def mean_scores(self, layer: int, q: Tensor, k: Tensor, offsets: list[int]) -> Tensor:
        """The same, averaged over offsets."""
        return torch.stack([self.scores(layer, q, k, offset) for offset in offsets]).mean(0)


def centred(matrix: Tensor) -> Tensor:
    """A matrix without its row and column means."""
    return matrix - matrix.mean(0) - matrix.mean(1, keepdim=True) + matrix.mean()


def diagonal_contrast(matrix: Tensor) -> tuple[float, float]:
    """Mean of the diagonal over the mean of all, and that in standard deviations of all entries."""
    rest = centred(matrix)
    mean = float(rest.diagonal().mean())
    return mean, mean / float(rest.square().mean().sqrt())
