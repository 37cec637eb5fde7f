r"""Positions that are not part of the stream: what they add to a head's scores at each offset.

- **rotary**: the score of a query for the key k back is `q R(k) · k'`, with R(k) the rotation by k steps. Its mean over
  pairs of tokens is the kernel `κ(k) = μ_q R(k) · μ_k`, with the mean query and key of the rows read. What depends on
  tokens is taken at the mean rotation over the pairs that are read.
- **ALiBi**: `κ(k) = −slope · k`.
- **shortformer**: positions are added to queries and keys after the norm: `κ(k)` is the mean over pairs k apart.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.ids import Head
from imir_lens.linear_stream import LinearStream
from imir_lens.models.alibi import alibi_slopes
from imir_lens.relation_means import offset_means, offset_means_of_rows
from imir_lens.weights import CircuitWeights

_Turn = Callable[[Tensor], Tensor]


def rotations(weights: CircuitWeights, layer: int, n_positions: int) -> list[_Turn]:
    """Return functions that turn queries by 0, 1, … steps; they do nothing in a model without rotary positions."""
    if weights.form.positions != "rotary":
        return [lambda x: x] * n_positions
    cos, sin = weights.form.rotation(layer, n_positions, weights.d_head, device=weights.W_E.device)
    return [_turn_by(weights, c, s) for c, s in zip(cos, sin, strict=True)]


def mean_rotation(
    weights: CircuitWeights, layer: int, n_positions: int, query_positions: tuple[int, ...] | None
) -> _Turn:
    """Return a function that turns queries by the mean rotation over the pairs that a layer reads.

    These are all pairs of a query with a key it can see; in the last layer, those of the query rows.
    """
    if weights.form.positions != "rotary":
        return lambda x: x
    back = _offsets_read(weights, layer, n_positions, query_positions)
    cos, sin = weights.form.rotation(layer, n_positions, weights.d_head, device=weights.W_E.device)
    sign = back.sign().to(sin).unsqueeze(1)
    return _turn_by(weights, cos[back.abs()].mean(0), (sin[back.abs()] * sign).mean(0))


def position_kernel(
    weights: CircuitWeights,
    stream: LinearStream | None,
    head: Head,
    n_positions: int,
    query_positions: tuple[int, ...] | None,
) -> Float[Tensor, " offset"]:
    """Return what a head adds to its scores at the offsets −(P−1) … P−1; NaN where no pair that is read has one.

    Args:
        weights: of the model.
        stream: its mean stream and scales; None for a model without norms, MLPs and caps, whose rotary kernel is then
            taken at the mean token embedding.
        head: the head.
        n_positions: P.
        query_positions: where predictions are scored (None: everywhere).
    """
    layer, index = head.layer, head.index
    device, dtype = weights.W_E.device, weights.W_E.dtype
    steps = torch.arange(-(n_positions - 1), n_positions, device=device)
    slope = 1.0 if stream is None else stream.scales.score_slopes[layer][index]
    last = layer == weights.n_layers - 1 and query_positions is not None
    if weights.form.positions == "alibi":
        return -alibi_slopes(weights.n_heads)[index].to(device, dtype) * steps.clamp(min=0)
    if weights.pos_Q is not None and weights.pos_K is not None:
        q, k = (x[layer, index, :n_positions].unsqueeze(0) for x in (weights.pos_Q, weights.pos_K))
        if last:
            rows = torch.tensor(query_positions, device=device)
            return offset_means_of_rows(q[0], k, rows)[0] * slope / weights.scale
        return offset_means(q, k)[0, 0] * slope / weights.scale
    if weights.form.positions != "rotary":
        return torch.zeros(len(steps), dtype=dtype, device=device)
    mean_query, mean_key = mean_vectors(weights, stream, head)
    cos, sin = weights.form.rotation(layer, n_positions, weights.d_head, device=device)
    signed = sin[steps.abs()] * steps.sign().unsqueeze(1)
    turned = mean_query * cos[steps.abs()].to(dtype) + weights.form.turned(mean_query) * signed.to(dtype)
    return turned @ mean_key * (slope / weights.scale)


def mean_vectors(
    weights: CircuitWeights, stream: LinearStream | None, head: Head
) -> tuple[Float[Tensor, " d_head"], Float[Tensor, " d_head"]]:
    """Return a head's mean query and key over the rows read."""
    layer, index = head.layer, head.index
    W_Q, W_K = weights.W_Q[layer, index], weights.W_K[layer, index]
    if stream is None:
        mean = key_mean = weights.W_E.mean(0)
    else:
        mean = stream.means[layer] * stream.scales.query[layer]
        key_mean = stream.key_means[layer] * stream.scales.key[layer]
    return mean @ W_Q + weights.b_Q[layer, index], key_mean @ W_K + weights.b_K[layer, index]


def _offsets_read(
    weights: CircuitWeights, layer: int, n_positions: int, query_positions: tuple[int, ...] | None
) -> Int[Tensor, " pair"]:
    device = weights.W_E.device
    steps = torch.arange(n_positions, device=device)
    seen = ~weights.form.hidden(layer, n_positions, device=device)
    rows = steps
    if layer == weights.n_layers - 1 and query_positions is not None:
        rows = torch.tensor(query_positions, device=device)
    return (rows.unsqueeze(1) - steps)[seen[rows]]


def _turn_by(weights: CircuitWeights, cos: Float[Tensor, " d_head"], sin: Float[Tensor, " d_head"]) -> _Turn:
    def turn(x: Tensor) -> Tensor:
        return x * cos.to(x) + weights.form.turned(x) * sin.to(x)

    return turn
