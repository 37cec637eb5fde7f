"""The model's algebra done the long way: dense blocks, loops over paths, pairs and positions, in float64.

Nothing here uses the package's own paths, means or terms: heads are pairs (layer, index), paths are tuples of them, and
coordinate ids are read as text.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from statistics import fmean

import torch
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.relations import TokenRelations
from imir_lens.weights import WEIGHT_NAMES, CircuitWeights

Chain = tuple[tuple[int, int], ...]


def double(weights: CircuitWeights) -> CircuitWeights:
    tensors = {name: getattr(weights, name).double() for name in WEIGHT_NAMES}
    return replace(weights, **tensors)


def chains(n_layers: int, n_heads: int) -> list[Chain]:
    """Every chain of heads in increasing layers: at most one head of each layer."""
    choices = product(*([None, *range(n_heads)] for _ in range(n_layers)))
    return [tuple((layer, head) for layer, head in enumerate(choice) if head is not None) for choice in choices]


def label(chain: Chain) -> str:
    return ".".join(f"L{layer}H{head}" for layer, head in chain) or "res"


def unlabel(text: str) -> Chain:
    parts = [] if text == "res" else text.split(".")
    return tuple((int(part[1 : part.index("H")]), int(part[part.index("H") + 1 :])) for part in parts)


def carried(weights: CircuitWeights, chain: Chain, source: Tensor) -> Tensor:
    """`source · OV_h1 · OV_h2 · …`"""
    for layer, head in chain:
        source = source @ (weights.W_V[layer, head] @ weights.W_O[layer, head])
    return source


def score_block(weights: CircuitWeights, head: tuple[int, int], query: Chain, key: Chain, source: Tensor) -> Tensor:
    """`E V_u W_Q W_Kᵀ V_vᵀ Eᵀ / scale`, dense."""
    W_QK = weights.W_Q[head] @ weights.W_K[head].T / weights.scale
    return carried(weights, query, source) @ W_QK @ carried(weights, key, source).T


def content(patterns: Mapping[tuple[int, int], Tensor], chain: Chain, n_positions: int) -> Tensor:
    """`A_hr · … · A_h1`, [context or 1, position, source]."""
    out = torch.eye(n_positions, dtype=torch.float64).unsqueeze(0)
    for head in chain:
        out = patterns[head] @ out
    return out


def causal_softmax(score: Tensor) -> Tensor:
    n_positions = score.shape[-1]
    hidden = torch.ones(n_positions, n_positions, dtype=torch.bool).triu(1)
    return score.masked_fill(hidden, -torch.inf).softmax(-1)


def related(relations: TokenRelations, name: str, s: int, t: int) -> bool:
    """Whether the query token (or token read) s stands in a relation to the key token (or output) t."""
    if name in relations.matchings:
        return int(relations.matchings[name][s]) == t
    first, _, second = name.partition(">")
    return s in relations.classes[first].tolist() and t in relations.classes[second].tolist()


def relation_matrix(relations: TokenRelations, name: str) -> Tensor:
    n = relations.d_vocab
    return torch.tensor([[float(related(relations, name, s, t)) for t in range(n)] for s in range(n)]).double()


def member_vector(relations: TokenRelations, name: str) -> Tensor:
    return torch.tensor([float(t in relations.classes[name].tolist()) for t in range(relations.d_vocab)]).double()


def contrasts_by_loops(relations: TokenRelations, block: Tensor) -> dict[str, float]:
    """Contrasts of a dense block over pairs of tokens, pair by pair."""
    pairs = [(s, t) for s in range(relations.d_vocab) for t in range(relations.d_vocab)]
    matched = {pair for pair in pairs if any(related(relations, name, *pair) for name in relations.matchings)}
    base = {}
    for a in relations.classes:
        for b in relations.classes:
            inside = [pair for pair in pairs if related(relations, f"{a}>{b}", *pair)]
            plain = [pair for pair in inside if pair not in matched]
            base[a, b] = fmean(float(block[pair]) for pair in plain or inside)
    class_of = {s: name for name, ids in relations.classes.items() for s in ids.tolist()}
    out = {}
    for name in relations.matchings:
        own = [pair for pair in pairs if related(relations, name, *pair)]
        out[name] = fmean(float(block[s, t]) - base[class_of[s], class_of[t]] for s, t in own)
    for a in relations.classes:
        for b in relations.free_classes:
            out[f"{a}>{b}"] = base[a, b] - base[a, relations.reference]
    return out


def offset_matrix(n_positions: int, k: int) -> Tensor:
    return torch.tensor([[float(i - j == k) for j in range(n_positions)] for i in range(n_positions)]).double()


def surrogate_patterns(
    relations: TokenRelations, values: Mapping[str, float], tokens: Tensor, *, n_layers: int, n_heads: int
) -> dict[tuple[int, int], Tensor]:
    """Patterns of the model made of coordinates: one dense term after the other."""
    n_positions = tokens.shape[1]
    patterns: dict[tuple[int, int], Tensor] = {}
    for layer in range(n_layers):
        new = {}
        for index in range(n_heads):
            score = torch.zeros(len(tokens), n_positions, n_positions, dtype=torch.float64)
            for name, value in values.items():
                if name.startswith(f"L{layer}H{index}/"):
                    score += value * score_term(relations, name, patterns, tokens)
            new[layer, index] = causal_softmax(score)
        patterns |= new
    return patterns


def score_term(
    relations: TokenRelations, name: str, patterns: Mapping[tuple[int, int], Tensor], tokens: Tensor
) -> Tensor:
    """`A_u R A_vᵀ` of one score coordinate, [context, query, key]."""
    n_positions = tokens.shape[1]
    _, _, query, key, relation = name.split("/")
    a_v = content(patterns, unlabel(key.removeprefix("k:")), n_positions)
    if query == "q:const":
        asked = (a_v @ member_vector(relations, relation)[tokens].unsqueeze(2)).squeeze(2)
        return asked.unsqueeze(1).expand(-1, n_positions, -1)
    a_u = content(patterns, unlabel(query.removeprefix("q:")), n_positions)
    if relation.startswith("offset"):
        between = offset_matrix(n_positions, int(relation.removeprefix("offset")))
    else:
        matrix = relation_matrix(relations, relation)
        between = matrix[tokens.unsqueeze(2), tokens.unsqueeze(1)]
    return a_u @ between @ a_v.transpose(1, 2)


def readout_term(
    relations: TokenRelations, name: str, patterns: Mapping[tuple[int, int], Tensor], tokens: Tensor
) -> Tensor:
    """`A_p X R` of one readout coordinate, [context, position, vocab]."""
    _, via, relation = name.split("/")
    if via == "via:const":
        return member_vector(relations, relation).expand(*tokens.shape, -1)
    return (
        content(patterns, unlabel(via.removeprefix("via:")), tokens.shape[1])
        @ relation_matrix(relations, relation)[tokens]
    )


def surrogate_logits(
    relations: TokenRelations, values: Mapping[str, float], tokens: Tensor, *, n_layers: int, n_heads: int
) -> Tensor:
    """Logits of the model made of coordinates, at every position."""
    patterns = surrogate_patterns(relations, values, tokens, n_layers=n_layers, n_heads=n_heads)
    logits = torch.zeros(*tokens.shape, relations.d_vocab, dtype=torch.float64)
    for name, value in values.items():
        if name.startswith("readout/"):
            logits += value * readout_term(relations, name, patterns, tokens)
    return logits


def rows(logits: Tensor, queries: Tensor) -> Tensor:
    """The rows of the queries, [context, query, vocab]."""
    return torch.stack([context[places] for context, places in zip(logits, queries, strict=True)])


def named(coordinates: Coordinates) -> dict[str, float]:
    """The coordinates that are not zero, by id."""
    places = coordinates.values.nonzero().squeeze(1).tolist()
    return {str(coordinates.space.id(place)): float(coordinates.values[place]) for place in places}
