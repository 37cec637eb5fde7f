"""Matching: whether a head's score is higher where query and key hold the same token, directly or through other heads.

Through an upstream head u the key holds what u copied there: the block is `E W_QK (E OV_u)ᵀ`, and its `same` contrast
says that the head looks for its own token among those that u brought. The copied content of layer l as a whole is
`Σ_u m_u E OV_u`, with `m_u` the attention that u's offset kernel gives to the previous token, over what even attention
would: its contrast is the attention half of an induction head, with no path left out and no threshold.

Rotary scores depend on how far apart query and key stand. The scores here are means over offsets, `q R̄ k` with `R̄` the
mean rotation: pairs of entries that turn fast cancel, those that turn slowly carry the match.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.atlas.kernels import OffsetKernels
from imir_lens.atlas.moments import Moments
from imir_lens.atlas.statistics import Contrast, contrast
from imir_lens.weights import CircuitWeights

OFFSETS = 128
BOUND = 0.05


@dataclass(frozen=True, eq=False)
class Paths:
    """Which upstream heads are looked through one by one, and which are not.

    A pattern's rows sum to one, so at most `mass` of what a head delivers is the previous token's: a head whose kernel
    puts less than `bound` there cannot carry much of a match with the previous token.

    Attributes:
        chosen: upstream heads looked through.
        bound: the least mass one back of a chosen head.
        n_chosen: pairs (head, upstream head) looked at.
        n_skipped: pairs that were not.
        largest_skipped: the largest mass of a head that was skipped; 0 when none was.
    """

    chosen: Bool[Tensor, "layer head"]
    bound: float
    n_chosen: int
    n_skipped: int
    largest_skipped: float


def choose_paths(kernels: OffsetKernels, *, bound: float = BOUND) -> Paths:
    """Choose the upstream heads whose kernel gives the previous token at least `bound` of the attention."""
    mass = kernels.mass
    n_layers, n_heads = mass.shape
    chosen = mass >= bound
    above = torch.arange(n_layers - 1, -1, -1, device=mass.device).unsqueeze(1) * n_heads
    n_chosen = int((chosen * above).sum())
    total = n_heads**2 * n_layers * (n_layers - 1) // 2
    skipped = mass[:-1][~chosen[:-1]]  # nothing reads the last layer
    return Paths(chosen, bound, n_chosen, total - n_chosen, float(skipped.max()) if len(skipped) else 0.0)


@dataclass(frozen=True, eq=False)
class Matching:
    """`same` contrasts of all heads' scores.

    Attributes:
        direct: with the key's own token.
        copied: with what heads copied from one back, all upstream heads by their mass.
        through: z through each upstream head, −inf where it was not looked at; [layer, head, upstream layer, head].
        assoc: a relation's pairs (query token, key token), directly; None without one.
    """

    direct: Contrast
    copied: Contrast
    through: Float[Tensor, "layer head upstream_layer upstream_head"]
    assoc: Contrast | None


def mean_rotation(
    weights: CircuitWeights, layer: int, x: Float[Tensor, "*rows d_head"], *, n_offsets: int = OFFSETS
) -> Float[Tensor, "*rows d_head"]:
    """Return queries turned by the mean rotation over offsets 1 … n_offsets; unchanged where positions do not rotate.

    Windows and the context's length cut the offsets.
    """
    if weights.form.positions != "rotary":
        return x
    window = weights.form.windows[layer] if weights.form.windows else None
    last = max(1, min(n_offsets, weights.n_ctx - 1, *(() if window is None else (window - 1,))))
    cos, sin = weights.form.rotation(layer, last + 1, weights.d_head, device=x.device)
    return x * cos[1:].mean(0).to(x) + weights.form.turned(x) * sin[1:].mean(0).to(x)


def layer_queries(weights: CircuitWeights, layer: int) -> Float[Tensor, "head d_model d_head"]:
    """Return a layer's query weights with scale and mean rotation in them."""
    return mean_rotation(weights, layer, weights.W_Q[layer] / weights.scale)


def layer_matching(
    weights: CircuitWeights, moments: Moments, kernels: OffsetKernels, paths: Paths, copied: "CopiedContent", layer: int
) -> tuple[Contrast, Contrast, Float[Tensor, "head upstream_layer upstream_head"], Contrast | None]:
    """Return one layer's part of `Matching`."""
    source = moments.source(layer)
    own = moments.covariances[source, source]
    W_Q, W_K = layer_queries(weights, layer), weights.W_K[layer]
    queries, keys = W_Q.mT @ own @ W_Q, W_K.mT @ own @ W_K
    direct = contrast(W_Q.mT @ own @ W_K, queries, keys)
    cross = sum(moments.covariances[source, s] @ content for s, content in enumerate(copied.maps))
    from_copied = contrast(W_Q.mT @ cross @ W_K, queries, W_K.mT @ copied.covariance(moments) @ W_K)
    through = W_Q.new_full((weights.n_heads, weights.n_layers, weights.n_heads), -torch.inf)
    for upper in range(layer):
        for head in paths.chosen[upper].nonzero().flatten().tolist():
            through[:, upper, head] = through_head(weights, moments, W_Q, queries, layer, (upper, head))
    assoc = None
    if moments.matched is not None:
        marked = W_Q.mT @ moments.matched[source].to(W_Q) @ W_K
        assoc = contrast(marked, queries, keys)
    return direct, from_copied, through, assoc


def through_head(
    weights: CircuitWeights,
    moments: Moments,
    W_Q: Float[Tensor, "head d_model d_head"],
    queries: Float[Tensor, "head d_head d_head"],
    layer: int,
    upstream: tuple[int, int],
) -> Float[Tensor, " head"]:
    """Return the z of `same` through one upstream head, for all heads of a layer."""
    read, source = moments.source(upstream[0]), moments.source(layer)
    W_V, W_O = weights.W_V[upstream], weights.W_O[upstream]
    keys = W_O @ weights.W_K[layer]  # what the head's keys make of the upstream head's values
    cross = W_Q.mT @ (moments.covariances[source, read] @ W_V) @ keys
    return contrast(cross, queries, keys.mT @ (W_V.T @ moments.covariances[read, read] @ W_V) @ keys).z


class CopiedContent:
    """What the heads below a layer copied from one back, `Σ_u m_u OV_u`, by the source they read."""

    def __init__(self, weights: CircuitWeights, moments: Moments) -> None:
        self.maps = [torch.zeros_like(moments.covariances[0, 0]) for _ in moments.means]

    def add(self, weights: CircuitWeights, moments: Moments, mass: Float[Tensor, " head"], layer: int) -> None:
        """Add a layer's heads."""
        values = weights.W_V[layer] * mass.to(weights.W_V)[:, None, None]
        self.maps[moments.source(layer)] += torch.einsum("hmd,hdn->mn", values, weights.W_O[layer])

    def covariance(self, moments: Moments) -> Float[Tensor, "d_model d_model"]:
        """Return its covariance over the vocabulary."""
        pairs = [(a, b) for a in range(len(self.maps)) for b in range(len(self.maps))]
        return sum(self.maps[a].T @ moments.covariances[a, b] @ self.maps[b] for a, b in pairs)  # type: ignore[return-value]
