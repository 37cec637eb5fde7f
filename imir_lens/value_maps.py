"""What each path carries: the images of the sources under `V_p = OV_h1 … OV_hr`, as each layer reads them.

Where the stream is normalised, a head reads it times the mean of 1/σ of its layer. Where there are MLPs, every path
passes those above its last head as `x → x + x J`, and the empty path takes what the MLP makes of its token or position
(see `imir_lens.linear_stream`). In models without either, a path has one image for all readers.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.linear_stream import LinearStream
from imir_lens.mlp_linear import MlpParts
from imir_lens.paths import PathTable
from imir_lens.weights import CircuitWeights


@dataclass(frozen=True)
class SourceImages:
    """Sources as they arrive at a reader: a layer, or (as entry `n_layers`) the readout.

    Attributes:
        tokens: by reader, `W_E V_p` for every path that enters it.
        positions: by reader, `W_pos V_p` likewise; zeros where the stream holds no positions.
        query_tokens, query_positions: the same as the rows have them whose queries are read: all, in the last layer and
            at the readout those of the task's queries. They differ where there are MLPs, which do other things there.
        constants: what does not depend on the context at the entry of each reader: the biases so far and the mean
            position, each through everything above it; with norms or MLPs, the mean stream less the mean tokens of all
            paths. From the last layer on, where only queries are read, the directly read position is the mean over the
            query positions.
    """

    tokens: tuple[Float[Tensor, "_path vocab d_model"], ...]
    positions: tuple[Float[Tensor, "_path position d_model"], ...]
    query_tokens: tuple[Float[Tensor, "_path vocab d_model"], ...]
    query_positions: tuple[Float[Tensor, "_path position d_model"], ...]
    constants: Float[Tensor, "entry d_model"]


def source_images(
    table: PathTable,
    weights: CircuitWeights,
    n_positions: int,
    query_positions: tuple[int, ...] | None,
    stream: LinearStream | None = None,
) -> SourceImages:
    """Push both sources through every path of the table.

    Args:
        table: the paths.
        weights: of the model.
        n_positions: length of the contexts.
        query_positions: where predictions are scored (None: everywhere).
        stream: measured constants of a model with norms or MLPs.
    """
    tokens, query_tokens = _images(table, weights, weights.W_E, stream, "tokens")
    source = weights.W_pos[:n_positions]
    if not weights.form.moves_positions:
        source = torch.zeros_like(source)
    positions, query_positions_ = _images(table, weights, source, stream, "positions")
    if stream is not None and weights.form.needs_stream:
        constants = _measured_constants(tokens, query_tokens, stream)
    else:
        constants = _constants(weights, n_positions, query_positions)
    # In the last layer only the queries' rows ask, and the readout reads nothing else.
    query_tokens = (*tokens[:-2], *query_tokens[-2:])
    query_positions_ = (*positions[:-2], *query_positions_[-2:])
    return SourceImages(tokens, positions, query_tokens, query_positions_, constants)


def _images(
    table: PathTable,
    weights: CircuitWeights,
    source: Float[Tensor, "index d_model"],
    stream: LinearStream | None,
    part: str,
) -> tuple[tuple[Float[Tensor, "_path index d_model"], ...], tuple[Float[Tensor, "_path index d_model"], ...]]:
    """Return one source's images of the paths entering each layer and the readout: at all rows, and at the queries."""
    images = at_queries = [source]
    by_reader, by_reader_at_queries = [images], [at_queries]
    for layer in range(table.n_layers):
        read_scale = 1.0 if stream is None else stream.scales.key[layer]
        new = []
        for head in (head for head in table.heads if head.layer == layer):
            W_V, W_O = weights.W_V[layer, head.index] * read_scale, weights.W_O[layer, head.index]
            new += [(place, images[before] @ W_V @ W_O) for before, place in table.extensions(head)]
        # A table lists the paths that enter a layer first, and those that end in it next.
        moved = [image for _, image in sorted(new, key=lambda item: item[0])]
        if stream is None or not stream.mlps:
            images = at_queries = images + moved
        else:
            beside = weights.form.mlp == "beside"
            images = _past_mlp(images, moved, stream.mlps[layer], part, beside=beside)
            at_queries = _past_mlp(at_queries, moved, stream.query_mlps[layer], part, beside=beside)
        by_reader.append(images)
        by_reader_at_queries.append(at_queries)
    if stream is None or not stream.mlps:
        whole = torch.stack(images)
        same = tuple(whole[: len(entering)] for entering in by_reader)
        return same, same
    return tuple(map(torch.stack, by_reader)), tuple(map(torch.stack, by_reader_at_queries))


def _past_mlp(
    entering: list[Float[Tensor, "index d_model"]],
    moved: list[Float[Tensor, "index d_model"]],
    parts: MlpParts,
    part: str,
    *,
    beside: bool,
) -> list[Float[Tensor, "index d_model"]]:
    """Return the images after a layer with an MLP: of the paths that entered it, then of those that end in it.

    The empty path comes first. An MLP beside attention does not read what the heads of its layer write.
    """
    added = parts.tokens if part == "tokens" else parts.positions
    direct = entering[0] if added is None else entering[0] + added
    carried = [image + image @ parts.carry for image in entering[1:]]
    return [direct, *carried, *(moved if beside else [image + image @ parts.carry for image in moved])]


def _constants(
    weights: CircuitWeights, n_positions: int, query_positions: tuple[int, ...] | None
) -> Float[Tensor, "entry d_model"]:
    """Return the constants of a model that is nothing but products of weights.

    A constant passes a head unchanged by its pattern (rows sum to 1), so the constants obey
    `c_{l+1} = c_l + Σ_h c_l OV_h + b_V W_O + b_O` with `c_0` the mean of `W_pos`.
    """
    constant = weights.W_pos[:n_positions].mean(0)
    constants = [constant]
    for layer in range(weights.n_layers):
        read = torch.einsum("d,hde->he", constant, weights.W_V[layer]) + weights.b_V[layer]
        constant = constant + torch.einsum("he,hed->d", read, weights.W_O[layer]) + weights.b_O[layer]
        constants.append(constant)
    if query_positions is not None:
        direct = weights.W_pos[list(query_positions)].mean(0) - constants[0]
        constants[-2:] = [entry + direct for entry in constants[-2:]]
    return torch.stack(constants)


def _measured_constants(
    tokens: tuple[Float[Tensor, "_path vocab d_model"], ...],
    query_tokens: tuple[Float[Tensor, "_path vocab d_model"], ...],
    stream: LinearStream,
) -> Float[Tensor, "entry d_model"]:
    """Return the mean stream of the rows read, less what the mean token brings along each path."""
    constants = []
    for entry in range(len(tokens)):
        at_queries = entry >= len(tokens) - 2
        images, direct = (query_tokens, stream.query_frequency) if at_queries else (tokens, stream.frequency)
        moved = torch.einsum("v,pvm->m", stream.frequency, images[entry][1:])
        constants.append(stream.means[entry] - direct @ images[entry][0] - moved)
    return torch.stack(constants)
