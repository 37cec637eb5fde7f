"""What queries and keys of one head hold of every path: the factors of all its blocks."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.ids import Head
from imir_lens.linear_stream import LinearStream
from imir_lens.position_kernels import mean_rotation
from imir_lens.stream_scales import StreamScales
from imir_lens.value_maps import SourceImages
from imir_lens.weights import CircuitWeights


@dataclass(frozen=True)
class HeadFactors:
    """Queries (already divided by the scale) and keys of one head, for all paths entering its layer."""

    token_query: Float[Tensor, "n vocab d_head"]
    token_key: Float[Tensor, "n vocab d_head"]
    place_query: Float[Tensor, "n position d_head"]
    place_key: Float[Tensor, "n position d_head"]
    constant_query: Float[Tensor, " d_head"]


def head_factors(
    space: CoordinateSpace,
    weights: CircuitWeights,
    images: SourceImages,
    stream: LinearStream | None,
    head: Head,
    *,
    turn: bool = True,
) -> HeadFactors:
    """Return a head's factors.

    Args:
        space: the paths and positions.
        weights: of the model.
        images: of the sources, from `source_images`.
        stream: measured means of a model that needs them.
        head: the head.
        turn: in a rotary model, turn what depends on tokens by the mean rotation over the pairs read.
    """
    layer, index = head.layer, head.index
    scales = stream.scales if stream is not None else StreamScales.ones(weights.n_layers, weights.n_heads)
    slope = scales.score_slopes[layer][index] / weights.scale
    W_Q, W_K = weights.W_Q[layer, index] * (scales.query[layer] * slope), weights.W_K[layer, index] * scales.key[layer]
    token_query, constant_query = images.query_tokens[layer] @ W_Q, images.constants[layer] @ W_Q
    constant_query = constant_query + weights.b_Q[layer, index] * slope
    if weights.pos_Q is not None:
        # Read beside the stream: a constant query holds their mean over the rows read.
        last = layer == weights.n_layers - 1 and space.query_positions is not None
        read = list(space.query_positions or ()) if last else slice(space.n_positions)
        constant_query = constant_query + weights.pos_Q[layer, index, read].mean(0) * slope
    if turn:
        rotated = mean_rotation(weights, layer, space.n_positions, space.query_positions)
        token_query, constant_query = rotated(token_query), rotated(constant_query)
    return HeadFactors(
        token_query=token_query,
        token_key=images.tokens[layer] @ W_K,
        place_query=images.query_positions[layer] @ W_Q,
        place_key=images.positions[layer] @ W_K,
        constant_query=constant_query,
    )
