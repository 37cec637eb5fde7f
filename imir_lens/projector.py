r"""The IMIR projector: from weights to coordinates, and back to the blocks they describe.

A block of head h for query path u and key path v is `B = E V_u W_QK V_vᵀ Eᵀ / scale` over pairs of tokens, and the same
with `W_pos` over pairs of positions; a readout block is `B = E V_p W_U`. The projection replaces each block by its
means over the orbits of the task's symmetry, an orthogonal projector. Means come from traces: with
`q_s = E_s V_u W_Q` and `k_t = E_t V_v W_K`, the mean over `same` pairs is `Σ_s q_s·k_s / n`, over a class pair
`q̄_a·k̄_b`, over an offset a diagonal sum; all pairs of paths at once are one matrix product, and no vocabulary-squared
block is formed.

Coordinates are the orbit means in the basis of contrasts, with the gauge fixed:

- `same`, `assoc`: mean over its pairs minus the mean of the unmatched pairs of the same classes;
- `a>b`: mean of the unmatched pairs minus that of `a>reference`;
- `offset+k`: mean at offset k minus the *median* over offsets. A head that looks at one offset and treats all others
  alike then has one nonzero coordinate, equal to the score difference; a mean would smear it over all of them;
- `q:const/k:v/b`: what the position-mean and bias part of the query adds to keys of class b, against the reference.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import CoordinateError, NotFittedError
from imir_lens.ids import Head, Path
from imir_lens.paths import PathTable
from imir_lens.relation_means import (
    fix_offset_gauge,
    offset_means,
    offset_means_of_rows,
    token_contrasts,
)
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Task
from imir_lens.value_maps import SourceImages, source_images
from imir_lens.weights import CircuitWeights


class ImirProjector:
    """Projects a model's weights on a task's relations.

    Args:
        relations: the task's token relations.
        n_positions: context length P; positions 0…P−1 of `W_pos` are used.
        query_positions: where predictions are scored (None: everywhere). Nothing reads the last layer anywhere else,
            so its directly read queries are averaged over these rows only.
        max_depth: longest chain of heads to follow (None: all).
        max_paths: most paths to keep; those with the smallest coordinates are cut first.
        min_coordinate: paths that no coordinate larger than this reads through are cut (in nats: a score coordinate of
            c changes an attention odds by a factor of at most e^c, a readout coordinate likewise an answer's odds).

    Attributes:
        space_: the coordinates that exist for the fitted model's shape.
        coordinates_: the fitted model's coordinates.
        cut_: largest coordinate that reads through a path that was cut (0 when none was).
        n_cut_: number of paths cut.
    """

    def __init__(
        self,
        relations: TokenRelations,
        n_positions: int,
        *,
        query_positions: tuple[int, ...] | None = None,
        max_depth: int | None = None,
        max_paths: int = 128,
        min_coordinate: float = 0.05,
    ) -> None:
        self.relations = relations
        self.n_positions = n_positions
        self.query_positions = query_positions
        self.max_depth = max_depth
        self.max_paths = max_paths
        self.min_coordinate = min_coordinate

    @classmethod
    def for_task(cls, task: Task, **options: Any) -> "ImirProjector":
        """Return a projector on a task's relations, context length and query positions.

        Args:
            task: the task.
            options: `max_depth`, `max_paths`, `min_coordinate`.
        """
        return cls(task.relations, task.n_positions, query_positions=task.query_positions, **options)

    def fit(self, weights: CircuitWeights) -> "ImirProjector":
        """Choose the paths, and project `weights` on them.

        Raises:
            CoordinateError: when the model's vocabulary or context is too small for the task.
        """
        self._check(weights)
        table = PathTable.full(weights.n_layers, weights.n_heads, max_depth=self.max_depth)
        space = CoordinateSpace(table, self.relations, self.n_positions, self.query_positions)
        coordinates = _project(space, weights)
        self.cut_, self.n_cut_ = 0.0, 0
        weight = _path_weights(coordinates)
        # A prefix ranks no lower than what continues it (and before it): the first ones are closed under prefixes.
        largest = _with_prefixes(table, weight).argsort(descending=True, stable=True)[: self.max_paths].tolist()
        kept = table.restricted(table.paths[place] for place in largest if weight[place] > self.min_coordinate)
        if len(kept) < len(table):
            self.n_cut_ = len(table) - len(kept)
            self.cut_ = max(float(weight[place]) for place, path in enumerate(table.paths) if path not in kept.index)
            space = CoordinateSpace(kept, self.relations, self.n_positions, self.query_positions)
            coordinates = _project(space, weights)
        self.space_, self.coordinates_, self._weights = space, coordinates, weights
        return self

    @property
    def unexplained_(self) -> Float[Tensor, "layer head"]:
        """Per head, the share of block energy (centred over keys, token and position blocks) off the relations.

        Computed on demand: it forms every block.

        Raises:
            NotFittedError: before `fit`.
        """
        return _unexplained(self._fitted_space(), self._weights, self.coordinates_)

    def transform(self, weights: CircuitWeights) -> Coordinates:
        """Project another model of the same shape on the fitted space.

        Raises:
            NotFittedError: before `fit`.
            CoordinateError: when the model has another number of layers or heads.
        """
        space = self._fitted_space()
        self._check(weights)
        shape, fitted = (weights.n_layers, weights.n_heads), (space.paths.n_layers, space.paths.n_heads)
        if shape != fitted:
            raise CoordinateError(f"expected a model of (layers, heads) {fitted} as fitted, got {shape}")
        return _project(space, weights)

    def inverse_transform(
        self, coordinates: Coordinates, head: Head, query: Path, key: Path
    ) -> tuple[Float[Tensor, "vocab vocab"], Float[Tensor, "position position"]]:
        """Rebuild a head's token and position block for one pair of paths, up to constants over the keys.

        Raises:
            NotFittedError: before `fit`.
        """
        paths = self._fitted_space().paths
        return rebuild(coordinates, head, paths.place(query), paths.place(key))

    def _fitted_space(self) -> CoordinateSpace:
        if not hasattr(self, "space_"):
            raise NotFittedError("this ImirProjector has no results yet: call fit(weights) first")
        return self.space_

    def _check(self, weights: CircuitWeights) -> None:
        if weights.d_vocab != self.relations.d_vocab:
            raise CoordinateError(
                f"the task speaks {self.relations.d_vocab} tokens but the model's vocabulary has {weights.d_vocab}: "
                f"set the task's vocab knob to {weights.d_vocab}"
            )
        if weights.n_ctx < self.n_positions:
            raise CoordinateError(
                f"the task's contexts have {self.n_positions} positions but the model's n_ctx is {weights.n_ctx}: "
                f"set the task's length knob to at most {weights.n_ctx}"
            )


def _path_weights(coordinates: Coordinates) -> Float[Tensor, " path"]:
    """Largest |coordinate| that reads through each path."""
    space = coordinates.space
    weight = space.block("readout").view(coordinates.values).abs().amax(1)
    for head in space.paths.heads:
        score = space.block("score", head).view(coordinates.values).abs().amax(2)
        reach = torch.maximum(score.amax(0), score.amax(1))
        weight[: len(reach)] = torch.maximum(weight[: len(reach)], reach)
    return weight


def _with_prefixes(table: PathTable, weight: Float[Tensor, " path"]) -> Float[Tensor, " path"]:
    """Largest weight among each path and its continuations."""
    out = weight.clone()
    for head in reversed(table.heads):
        for before, place in table.extensions(head):
            out[before] = torch.maximum(out[before], out[place])
    return out


def _project(space: CoordinateSpace, weights: CircuitWeights) -> Coordinates:
    images = source_images(space.paths, weights, space.n_positions, space.query_positions)
    values = torch.zeros(space.size, dtype=weights.W_E.dtype, device=weights.W_E.device)
    for head in space.paths.heads:
        score, bias = _project_head(space, weights, images, head)
        space.block("score", head).view(values).copy_(score)
        space.block("score_bias", head).view(values).copy_(bias)
    outputs = weights.W_U.T.unsqueeze(0)
    readout = token_contrasts(space.relations, images.tokens, outputs).squeeze(1)
    space.block("readout").view(values).copy_(readout)
    bias = _class_contrasts(space.relations, images.constants[-1] @ weights.W_U + weights.b_U)
    space.block("readout_bias").view(values).copy_(bias)
    return Coordinates(space, values)


def _project_head(
    space: CoordinateSpace, weights: CircuitWeights, images: SourceImages, head: Head
) -> tuple[Float[Tensor, "n n relation"], Float[Tensor, "n free_class"]]:
    """Score and key-bias coordinates of one head."""
    factors = _head_factors(space, weights, images, head)
    tokens = token_contrasts(space.relations, factors.token_query, factors.token_key)
    offsets = offset_means(factors.place_query, factors.place_key)
    if head.layer == space.paths.n_layers - 1 and space.query_positions is not None:
        rows = torch.tensor(space.query_positions, device=offsets.device)
        offsets[0] = offset_means_of_rows(factors.place_query[0], factors.place_key, rows)
    offsets = fix_offset_gauge(offsets)
    bias = _class_contrasts(space.relations, factors.token_key @ factors.constant_query)
    return torch.cat([tokens, offsets], dim=2), bias


@dataclass(frozen=True)
class _HeadFactors:
    """Queries (already divided by the scale) and keys of one head, for all paths entering its layer."""

    token_query: Float[Tensor, "n vocab d_head"]
    token_key: Float[Tensor, "n vocab d_head"]
    place_query: Float[Tensor, "n position d_head"]
    place_key: Float[Tensor, "n position d_head"]
    constant_query: Float[Tensor, " d_head"]


def _head_factors(space: CoordinateSpace, weights: CircuitWeights, images: SourceImages, head: Head) -> _HeadFactors:
    n = space.paths.n_entering[head.layer]
    W_Q, W_K = weights.W_Q[head.layer, head.index] / weights.scale, weights.W_K[head.layer, head.index]
    return _HeadFactors(
        token_query=images.tokens[:n] @ W_Q,
        token_key=images.tokens[:n] @ W_K,
        place_query=images.positions[:n] @ W_Q,
        place_key=images.positions[:n] @ W_K,
        constant_query=images.constants[head.layer] @ W_Q + weights.b_Q[head.layer, head.index] / weights.scale,
    )


def _class_contrasts(relations: TokenRelations, values: Float[Tensor, "*n vocab"]) -> Float[Tensor, "*n free_class"]:
    """Class means of a function of one token, minus the reference class's mean."""
    reference = values[..., relations.classes[relations.reference]].mean(-1)
    means = [values[..., relations.classes[name]].mean(-1) - reference for name in relations.free_classes]
    return torch.stack(means, dim=-1) if means else values[..., :0]


def _unexplained(
    space: CoordinateSpace, weights: CircuitWeights, coordinates: Coordinates
) -> Float[Tensor, "layer head"]:
    """Share of each head's block energy, centred over the keys a query can see, that the coordinates leave out."""
    images = source_images(space.paths, weights, space.n_positions, space.query_positions)
    causal = torch.ones(space.n_positions, space.n_positions, dtype=torch.bool, device=weights.W_E.device).tril()
    read = slice(None) if space.query_positions is None else list(space.query_positions)
    out = torch.zeros(weights.n_layers, weights.n_heads)
    for head in space.paths.heads:
        factors = _head_factors(space, weights, images, head)
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
                pairs = ((tokens[key], kept[0], None), (places[key][rows], kept[1][rows], seen[rows]))
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
    """Rebuild a head's token and position block for one pair of paths (by place), up to constants over the keys."""
    space = coordinates.space
    values = space.block("score", head).view(coordinates.values)[query, key]
    tokens = values.new_zeros(space.relations.d_vocab, space.relations.d_vocab)
    for name, value in zip(space.relations.names, values, strict=False):
        tokens += value * space.relations.matrix(name).to(values.device)
    steps = torch.arange(space.n_positions, device=values.device)
    offsets = values[len(space.relations.names) :]
    return tokens, offsets[steps.unsqueeze(1) - steps.unsqueeze(0) + space.n_positions - 1]
