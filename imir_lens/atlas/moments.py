"""First and second moments of what tokens and positions bring, streamed over blocks of the vocabulary.

Heads read the stream divided by its root mean square σ. A token's share of what layer l reads is taken as
`x_t = e_t / σ_t` with `σ_t² = mean_p rms²(e_t + p)` over the learned positions p; in layers above the first, e_t is the
effective embedding (`imir_lens.atlas.effective`). Everything the atlas needs of the vocabulary is in d_model × d_model
moments of x: memory does not grow with the vocabulary beyond one block of it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.atlas.effective import written_by_first_mlp
from imir_lens.lens_model import LensModel
from imir_lens.weights import CircuitWeights

BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments over the vocabulary; source 0 is what layer 0 reads, source 1 (with MLPs) what later layers read.

    Attributes:
        means: of each source.
        covariances: between each pair of sources, `[a, b] = mean_t x_tᵃᵀ x_tᵇ`, centred.
        readout: between each source and the token's own unembedding column, both centred.
        unembedding: covariance of the unembedding's columns.
        assoc: the same as `readout` over a relation's pairs (read token, predicted token); None without one.
        matched: between the sources of a relation's pairs; None without one.
        positions: learned positions as each source has them, divided by the mean σ; None where there are none in the
            stream.
        n_tokens: size of the vocabulary.
    """

    means: Float[Tensor, "source d_model"]
    covariances: Float[Tensor, "source source d_model d_model"]
    readout: Float[Tensor, "source d_model d_model"]
    unembedding: Float[Tensor, "d_model d_model"]
    assoc: Float[Tensor, "source d_model d_model"] | None
    matched: Float[Tensor, "source d_model d_model"] | None
    positions: Float[Tensor, "source n_ctx d_model"] | None
    n_tokens: int

    def source(self, layer: int) -> int:
        """Return which source a layer reads."""
        return min(layer, len(self.means) - 1)


def token_moments(
    lens: LensModel,
    *,
    relation: Int[Tensor, "pair 2"] | None = None,
    block: int = BLOCK,
    progress: Callable[[float], None] = lambda done: None,
) -> Moments:
    """Stream over the vocabulary once (and over a relation's tokens once).

    Args:
        lens: the model.
        relation: pairs of token ids (read, predicted).
        block: tokens at once.
        progress: told the share of the vocabulary that is done.
    """
    weights = lens.weights
    n_sources = 1 if weights.form.mlp == "none" or weights.n_layers == 1 else 2
    if n_sources == 2:
        lens = lens.on_twin()  # bridges differ in what they call the parts of a block
    zero = weights.W_E.new_zeros((), dtype=torch.float64)
    width, n_tokens = weights.d_model, weights.d_vocab
    first = zero.repeat(n_sources + 1, width)  # the unembedding's columns come last
    second = zero.repeat(n_sources + 1, n_sources + 1, width, width)
    sigma = zero.repeat(n_sources)
    for start in range(0, n_tokens, block):
        stop = min(start + block, n_tokens)
        read, scales = _read(lens, torch.arange(start, stop, device=lens.device), n_sources)
        columns = [*read, weights.W_U[:, start:stop].T]
        for a, column in enumerate(columns):
            first[a] += column.sum(0, dtype=torch.float64)
            for b in range(a + 1):
                second[a, b] += column.T @ columns[b]
        sigma += scales.sum(1, dtype=torch.float64)
        progress(stop / n_tokens)
    means, sigma = first / n_tokens, sigma / n_tokens
    for a in range(n_sources + 1):
        for b in range(a + 1):
            second[a, b] = second[a, b] / n_tokens - torch.outer(means[a], means[b])
            second[b, a] = second[a, b].T.clone()
    assoc, matched = None, None
    if relation is not None:
        left, _ = _read(lens, relation[:, 0], n_sources)
        right, _ = _read(lens, relation[:, 1], n_sources)
        answers = weights.W_U[:, relation[:, 1]].T
        centres = list(means[:-1])
        assoc = _cross(left, [answers] * n_sources, centres, [means[-1]] * n_sources)
        matched = _cross(left, right, centres, centres)
    positions = None
    if weights.form.positions == "standard":
        positions = weights.W_pos / sigma.to(weights.W_pos)[:, None, None]
    dtype = weights.W_E.dtype
    return Moments(
        means[:-1].to(dtype),
        second[:-1, :-1].to(dtype),
        second[:-1, -1].to(dtype),
        second[-1, -1].to(dtype),
        assoc,
        matched,
        positions,
        n_tokens,
    )


def _read(lens: LensModel, tokens: Int[Tensor, " token"], n_sources: int) -> tuple[list[Tensor], Tensor]:
    """Return what each source reads of some tokens, and the σ it was divided by."""
    weights = lens.weights
    streams = [weights.W_E[tokens]]
    if n_sources == 2:
        streams.append(streams[0] + written_by_first_mlp(lens, tokens))
    scales = torch.stack([root_mean_square(weights, stream) for stream in streams])
    return [stream / scale.unsqueeze(1) for stream, scale in zip(streams, scales, strict=True)], scales


def root_mean_square(weights: CircuitWeights, stream: Float[Tensor, "token d_model"]) -> Float[Tensor, " token"]:
    """Return σ of each token's stream, over the learned positions beside it; ones in a model without norms."""
    if weights.form.norm is None:
        return stream.new_ones(len(stream))
    positions = weights.W_pos if weights.form.positions == "standard" else weights.W_pos[:1] * 0
    if weights.form.norm == "LN":
        stream = stream - stream.mean(-1, keepdim=True)
        positions = positions - positions.mean(-1, keepdim=True)
    square = stream.square().sum(-1) + 2 * stream @ positions.mean(0) + positions.square().sum(-1).mean()
    return (square / weights.d_model).clamp(min=1e-12).sqrt()


def _cross(
    left: list[Tensor], right: list[Tensor], left_means: list[Tensor], right_means: list[Tensor]
) -> Float[Tensor, "source d_model d_model"]:
    """Return the mean product of pairs, centred by the vocabulary's means."""
    pairs = zip(left, right, left_means, right_means, strict=True)
    return torch.stack([(x - mx.to(x)).T @ (y - my.to(y)) / len(x) for x, y, mx, my in pairs])
