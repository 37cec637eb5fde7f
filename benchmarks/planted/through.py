"""From a weight on every coordinate to one on every edge and head: the largest weight of a coordinate through it."""

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.planted.graph import Edge, EdgeGraph, path_edges
from imir_lens.coordinates import CoordinateSpace
from imir_lens.ids import Head, Path


def largest_through(
    graph: EdgeGraph, space: CoordinateSpace, weight: Float[Tensor, " coordinate"]
) -> tuple[Float[Tensor, " edge"], Float[Tensor, " head"]]:
    """Return the scores of all edges and heads.

    Args:
        graph: of the model.
        space: of the coordinates.
        weight: not negative; for coordinates that the space does not hold it is zero.
    """
    edges = dict.fromkeys(graph.edges, 0.0)
    heads = dict.fromkeys(graph.heads, 0.0)
    n_tokens = len(space.relations.names)

    def credit(path: Path, reader: Head | None, slot: str, value: float, *, tokens: bool) -> None:
        if value == 0:
            return
        used: set[Edge] = path_edges(path, reader, slot, tokens=tokens)
        for edge in used:
            edges[edge] = max(edges[edge], value)
        for head in (*path.heads, *([reader] if reader else [])):
            heads[head] = max(heads[head], value)

    paths = space.paths.paths
    for head in space.paths.heads:
        score = space.block("score", head).view(weight)
        bias = space.block("score_bias", head).view(weight)
        for tokens, part in ((True, score[..., :n_tokens]), (False, score[..., n_tokens:])):
            asked, answered = part.amax(2).amax(1).tolist(), part.amax(2).amax(0).tolist()
            for path, query, key in zip(paths, asked, answered, strict=False):
                credit(path, head, "q", query, tokens=tokens)
                credit(path, head, "k", key, tokens=tokens)
        if bias.shape[1]:
            for path, value in zip(paths, bias.amax(1).tolist(), strict=False):
                credit(path, head, "k", value, tokens=True)
    for path, value in zip(paths, space.block("readout").view(weight).amax(1).tolist(), strict=True):
        credit(path, None, "", value, tokens=True)
    return torch.tensor([edges[edge] for edge in graph.edges]), torch.tensor(list(heads.values()))
