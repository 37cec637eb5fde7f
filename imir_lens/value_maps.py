"""What each path carries: the images of the sources under `V_p = OV_h1 … OV_hr`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.paths import PathTable
from imir_lens.weights import CircuitWeights


@dataclass(frozen=True)
class SourceImages:
    """Sources as they arrive at a reader.

    Attributes:
        tokens: `W_E V_p` for every path.
        positions: `W_pos V_p` for every path.
        constants: what does not depend on the context at the entry of each layer (and at the readout): the biases so
            far and the mean position, each through everything above it. From the last layer on, where only queries are
            read, the directly read position is the mean over the query positions.
    """

    tokens: Float[Tensor, "path vocab d_model"]
    positions: Float[Tensor, "path position d_model"]
    constants: Float[Tensor, "entry d_model"]


def source_images(
    table: PathTable, weights: CircuitWeights, n_positions: int, query_positions: tuple[int, ...] | None
) -> SourceImages:
    """Push both sources through every path of the table.

    A constant passes a head unchanged by its pattern (rows sum to 1), so the constants obey
    `c_{l+1} = c_l + Σ_h c_l OV_h + b_V W_O + b_O` with `c_0` the mean of `W_pos`.
    """
    tokens, positions = [weights.W_E], [weights.W_pos[:n_positions]]
    for place in range(1, len(table)):
        head = table.paths[place].heads[-1]
        before = table.index[type(table.paths[place])(table.paths[place].heads[:-1])]
        W_V, W_O = weights.W_V[head.layer, head.index], weights.W_O[head.layer, head.index]
        tokens.append(tokens[before] @ W_V @ W_O)
        positions.append(positions[before] @ W_V @ W_O)

    constant = weights.W_pos[:n_positions].mean(0)
    constants = [constant]
    for layer in range(weights.n_layers):
        read = torch.einsum("d,hde->he", constant, weights.W_V[layer]) + weights.b_V[layer]
        constant = constant + torch.einsum("he,hed->d", read, weights.W_O[layer]) + weights.b_O[layer]
        constants.append(constant)
    if query_positions is not None:
        direct = weights.W_pos[list(query_positions)].mean(0) - constants[0]
        constants[-2:] = [entry + direct for entry in constants[-2:]]
    return SourceImages(torch.stack(tokens), torch.stack(positions), torch.stack(constants))
