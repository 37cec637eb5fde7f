"""Blocks rebuilt from coordinates, and how much of the real blocks' energy they leave out."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.head_factors import head_factors
from imir_lens.ids import Head
from imir_lens.linear_stream import LinearStream
from imir_lens.value_maps import source_images
from imir_lens.weights import CircuitWeights


def unexplained_share(
    space: CoordinateSpace, weights: CircuitWeights, stream: LinearStream | None, coordinates: Coordinates
) -> Float[Tensor, "layer head"]:
    """Share of each head's block energy, centred over the keys a query can see, that the coordinates leave out.

    With rotary positions token blocks are taken at the mean rotation; positions outside the stream have no block.

    Args:
        space: of the coordinates.
        weights: of the model; its dense blocks are formed.
        stream: measured means of a model that needs them.
        coordinates: of the model.
    """
    images = source_images(space.paths, weights, space.n_positions, space.query_positions, stream)
    read = slice(None) if space.query_positions is None else list(space.query_positions)
    out = torch.zeros(weights.n_layers, weights.n_heads)
    for head in space.paths.heads:
        factors = head_factors(space, weights, images, stream, head)
        causal = ~space.form.hidden(head.layer, space.n_positions, device=weights.W_E.device)
        off = total = 0.0
        for query in range(len(factors.token_query)):
            tokens = factors.token_query[query] @ factors.token_key.mT  # [n, vocab, vocab]
            places = factors.place_query[query] @ factors.place_key.mT  # [n, position, position]
            for key in range(len(tokens)):
                kept = rebuild(coordinates, head, query, key)
                direct = query == 0
                seen = causal if direct else torch.ones_like(causal)
                # What the last layer reads directly was averaged over the query positions only.
                rows = read if direct and head.layer == space.paths.n_layers - 1 else slice(None)
                pairs: list[tuple[Tensor, Tensor, Tensor | None]] = [(tokens[key], kept[0], None)]
                if space.form.moves_positions:
                    pairs.append((places[key][rows], kept[1][rows], seen[rows]))
                for block, model, mask in pairs:
                    total += _centred_energy(block, mask)
                    off += _centred_energy(block - model, mask)
        out[head.layer, head.index] = off / total if total > 0 else 0.0
    return out


def _centred_energy(block: Float[Tensor, "query key"], mask: Bool[Tensor, "query key"] | None) -> float:
    seen = torch.ones_like(block) if mask is None else mask.to(block.dtype)
    centred = (block - (block * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)) * seen
    return float(centred.square().sum())


def rebuild(
    coordinates: Coordinates, head: Head, query: int, key: int
) -> tuple[Float[Tensor, "vocab vocab"], Float[Tensor, "position position"]]:
    """Rebuild a head's token and position block for one pair of paths, up to constants over the keys.

    Args:
        coordinates: of the model.
        head: the head.
        query: place of the query path.
        key: place of the key path.
    """
    space = coordinates.space
    values = space.block("score", head).view(coordinates.values)[query, key]
    tokens = values.new_zeros(space.relations.d_vocab, space.relations.d_vocab)
    for name, value in zip(space.relations.names, values, strict=False):
        tokens += value * space.relations.matrix(name).to(values.device)
    steps = torch.arange(space.n_positions, device=values.device)
    offsets = values[len(space.relations.names) :]
    return tokens, offsets[steps.unsqueeze(1) - steps.unsqueeze(0) + space.n_positions - 1]
