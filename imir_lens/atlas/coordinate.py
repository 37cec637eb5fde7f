"""The match coordinate of a head as a score on a context: its own token among those that copyers brought to the key.

    Δ_ij = Σ_u c_u(i − j) · (same A_uᵀ)_ij / σ_j        c_u(k) = mean_t x_t W_Q R(k) (x_t OV_u W_K)ᵀ / scale

over the chosen upstream heads u, with the patterns `A_u` and the norm scales `σ` of that same run. `c` comes from the
weights alone. Later MLPs amplify what a token brings, so its size in a deep layer is larger than that; how much larger
is measured (`imir_lens.atlas.explained`).
"""

from copy import copy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.atlas.moments import Moments
from imir_lens.weights import CircuitWeights

Place = tuple[int, int]


def match_sizes(
    weights: CircuitWeights, moments: Moments, layer: int, upstream: Place, n_offsets: int
) -> Float[Tensor, "head offset"]:
    """Return `c_u` of every head of a layer at offsets 0 … n_offsets − 1."""
    read, source = moments.source(upstream[0]), moments.source(layer)
    W_Q, keys = weights.W_Q[layer] / weights.scale, weights.W_O[upstream] @ weights.W_K[layer]
    cross = W_Q.mT @ (moments.covariances[source, read] @ weights.W_V[upstream]) @ keys
    return by_offset(weights, layer, cross, n_offsets)


def by_offset(
    weights: CircuitWeights, layer: int, cross: Float[Tensor, "head d_head d_head"], n_offsets: int
) -> Float[Tensor, "head offset"]:
    """Return the mean score of marked pairs at each offset, from the mean of their products of query and key."""
    still = cross.diagonal(dim1=1, dim2=2)
    if weights.form.positions != "rotary":
        return still.sum(1, keepdim=True).expand(-1, n_offsets)
    turned = weights.form.turned(cross.mT).diagonal(dim1=1, dim2=2)
    cos, sin = (x.to(cross) for x in weights.form.rotation(layer, n_offsets, weights.d_head, device=cross.device))
    return still @ cos.T + turned @ sin.T


class MatchTerms:
    """Computes the match coordinates of some heads during a run, layer by layer.

    Args:
        weights: the model's.
        moments: of its tokens.
        chosen: upstream heads to look through.
        tokens: the contexts of the run.
        heads: heads whose coordinates are wanted.
    """

    def __init__(
        self,
        weights: CircuitWeights,
        moments: Moments,
        chosen: list[Place],
        tokens: Int[Tensor, "context position"],
        heads: list[Place],
    ) -> None:
        self.chosen = chosen
        length = tokens.shape[1]
        steps = torch.arange(length, device=tokens.device)
        self._offsets = (steps.unsqueeze(1) - steps).clamp(min=0)
        self.same = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).to(weights.W_E.dtype)
        self._sizes: dict[int, dict[Place, Tensor]] = {
            layer: {u: match_sizes(weights, moments, layer, u, length) for u in chosen if u[0] < layer}
            for layer in sorted({layer for layer, _ in heads})
        }
        self._brought: dict[Place, Tensor] = {}

    def on(self, tokens: Int[Tensor, "context position"]) -> "MatchTerms":
        """Return the same coordinates for a run on other contexts of the same length."""
        other = copy(self)
        other.same = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).to(self.same)
        other._brought = {}
        return other

    def extend(self, layer: int, pattern: Float[Tensor, "context head query key"]) -> None:
        """Note a layer's patterns, for the layers above."""
        for place in self.chosen:
            if place[0] == layer:
                self._brought[place] = self.same @ pattern[:, place[1]].to(self.same).mT

    def term(
        self, place: Place, scales: Float[Tensor, "context position"] | None
    ) -> Float[Tensor, "context query key"]:
        """Return Δ of one head, from the patterns noted so far.

        Args:
            place: layer and head.
            scales: σ of its layer's inputs; None in a model without norms.
        """
        layer, head = place
        total = torch.zeros_like(self.same)
        for upstream, sizes in self._sizes[layer].items():
            total += sizes[head][self._offsets] * self._brought[upstream]
        return total if scales is None else total / scales.unsqueeze(1)


def places_of(chosen: Bool[Tensor, "layer head"]) -> list[Place]:
    """Return the places that are set, lowest layer first."""
    return [(int(a), int(b)) for a, b in chosen.nonzero().tolist()]
