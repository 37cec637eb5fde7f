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

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.block_energy import rebuild, unexplained_share
from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import CoordinateError, NotFittedError
from imir_lens.head_factors import head_factors
from imir_lens.ids import Head, Path
from imir_lens.linear_stream import LinearStream
from imir_lens.path_choice import choose_paths, is_too_large
from imir_lens.paths import PathTable
from imir_lens.position_kernels import position_kernel, rotations
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
        looked_at_all_: whether every path was projected before the cut; in a model that has too many, longer paths were
            grown from the best shorter ones only (see `imir_lens.path_choice`), and the cut bounds only those seen.
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

    def fit(self, weights: CircuitWeights, stream: LinearStream | None = None) -> "ImirProjector":
        """Choose the paths, and project `weights` on them.

        Args:
            weights: of the model.
            stream: of a model with norms, MLPs or caps: what `measure_stream` found on the task's contexts.

        Raises:
            CoordinateError: when the model's vocabulary or context is too small for the task, or it needs a stream.
        """
        self._check(weights, stream)
        n_relations = len(self.relations.names) + 2 * self.n_positions - 1
        if is_too_large(weights, n_relations, self.max_depth):
            return self._fit_chosen(weights, stream, n_relations)
        self.looked_at_all_ = True
        table = PathTable.full(weights.n_layers, weights.n_heads, max_depth=self.max_depth)
        space = self._space(table, weights, stream)
        coordinates = _project(space, weights, stream)
        self.cut_, self.n_cut_ = 0.0, 0
        weight = _path_weights(coordinates)
        # A prefix ranks no lower than what continues it (and before it): the first ones are closed under prefixes.
        largest = _with_prefixes(table, weight).argsort(descending=True, stable=True)[: self.max_paths].tolist()
        kept = table.restricted(table.paths[place] for place in largest if weight[place] > self.min_coordinate)
        if len(kept) < len(table):
            self.n_cut_ = len(table) - len(kept)
            self.cut_ = max(float(weight[place]) for place, path in enumerate(table.paths) if path not in kept.index)
            space = self._space(kept, weights, stream)
            coordinates = _project(space, weights, stream)
        self.space_, self.coordinates_, self._weights, self._stream = space, coordinates, weights, stream
        return self

    def _fit_chosen(self, weights: CircuitWeights, stream: LinearStream | None, n_relations: int) -> "ImirProjector":
        choice = choose_paths(
            weights,
            stream,
            self.relations,
            self.n_positions,
            self.query_positions,
            n_relations=n_relations,
            max_paths=self.max_paths,
            min_coordinate=self.min_coordinate,
        )
        self.looked_at_all_ = False
        self.cut_, self.n_cut_ = choice.reach, choice.seen - len(choice.table)
        self.space_ = self._space(choice.table, weights, stream)
        self.coordinates_ = _project(self.space_, weights, stream)
        self._weights, self._stream = weights, stream
        return self

    @property
    def unexplained_(self) -> Float[Tensor, "layer head"]:
        """Per head, the share of block energy (centred over keys, token and position blocks) off the relations.

        Computed on demand: it forms every block.

        Raises:
            NotFittedError: before `fit`.
        """
        return unexplained_share(self._fitted_space(), self._weights, self._stream, self.coordinates_)

    def transform(self, weights: CircuitWeights, stream: LinearStream | None = None) -> Coordinates:
        """Project another model of the same shape on the fitted space.

        Args:
            weights: of the other model.
            stream: its stream, as in `fit`; the coordinates are then given at its own scales.

        Raises:
            NotFittedError: before `fit`.
            CoordinateError: when the model has another number of layers or heads, or needs a stream.
        """
        space = self._fitted_space()
        self._check(weights, stream)
        shape, fitted = (weights.n_layers, weights.n_heads), (space.paths.n_layers, space.paths.n_heads)
        if shape != fitted:
            raise CoordinateError(f"expected a model of (layers, heads) {fitted} as fitted, got {shape}")
        return _project(self._space(space.paths, weights, stream), weights, stream)

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

    def match_by_offset(self, head: Head, query: Path, key: Path) -> Float[Tensor, " offset"]:
        """Return a head's `same` contrast for one pair of paths as a function of the offset 0 … P−1.

        With rotary positions the match depends on how far back the key is; the coordinate `same` is at the mean
        rotation. With other positions all offsets have the same value.

        Raises:
            NotFittedError: before `fit`.
            CoordinateError: for a path that is not kept, or relations without `same`.
        """
        space = self._fitted_space()
        if "same" not in space.relations.names:
            raise CoordinateError(f"no relation 'same' here: expected one of {', '.join(space.relations.names)}")
        images = source_images(space.paths, self._weights, space.n_positions, space.query_positions, self._stream)
        plain = head_factors(space, self._weights, images, self._stream, head, turn=False)
        q, k = plain.token_query[space.paths.place(query)], plain.token_key[space.paths.place(key)]
        turns = rotations(self._weights, head.layer, space.n_positions)
        place = space.relations.names.index("same")
        found = [token_contrasts(space.relations, turn(q).unsqueeze(0), k.unsqueeze(0))[0, 0, place] for turn in turns]
        return torch.stack(found)

    def _space(self, paths: PathTable, weights: CircuitWeights, stream: LinearStream | None) -> CoordinateSpace:
        scales = None if stream is None else stream.scales
        return CoordinateSpace(
            paths, self.relations, self.n_positions, self.query_positions, form=weights.form, scales=scales
        )

    def _check(self, weights: CircuitWeights, stream: LinearStream | None) -> None:
        if stream is None and weights.form.needs_stream:
            raise CoordinateError(
                "the coordinates of a model with norms, MLPs or soft caps depend on its contexts: pass "
                "stream=measure_stream(model, weights, batch)"
            )
        if weights.d_vocab != self.relations.d_vocab:
            raise CoordinateError(
                f"the task speaks {self.relations.d_vocab} tokens but the model's vocabulary has {weights.d_vocab}: "
                f"set the task's vocab knob to {weights.d_vocab}"
                + (", or choose tokens for it with --vocabulary" if weights.d_vocab > self.relations.d_vocab else "")
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


def _project(space: CoordinateSpace, weights: CircuitWeights, stream: LinearStream | None) -> Coordinates:
    images = source_images(space.paths, weights, space.n_positions, space.query_positions, stream)
    values = torch.zeros(space.size, dtype=weights.W_E.dtype, device=weights.W_E.device)
    for head in space.paths.heads:
        score, bias = _project_head(space, weights, images, stream, head)
        space.block("score", head).view(values).copy_(score)
        space.block("score_bias", head).view(values).copy_(bias)
    scale, slope = (1.0, 1.0) if stream is None else (stream.scales.readout, stream.scales.logit_slope)
    outputs = weights.W_U.T.unsqueeze(0) * (scale * slope)
    readout = token_contrasts(space.relations, images.query_tokens[-1], outputs).squeeze(1)
    space.block("readout").view(values).copy_(readout)
    bias = _class_contrasts(space.relations, (images.constants[-1] @ weights.W_U * scale + weights.b_U) * slope)
    space.block("readout_bias").view(values).copy_(bias)
    return Coordinates(space, values)


def _project_head(
    space: CoordinateSpace, weights: CircuitWeights, images: SourceImages, stream: LinearStream | None, head: Head
) -> tuple[Float[Tensor, "n n relation"], Float[Tensor, "n free_class"]]:
    """Score and key-bias coordinates of one head."""
    factors = head_factors(space, weights, images, stream, head)
    tokens = token_contrasts(space.relations, factors.token_query, factors.token_key)
    bias = _class_contrasts(space.relations, factors.token_key @ factors.constant_query)
    if space.form.moves_positions:
        offsets = offset_means(factors.place_query, factors.place_key)
        if head.layer == space.paths.n_layers - 1 and space.query_positions is not None:
            rows = torch.tensor(space.query_positions, device=offsets.device)
            offsets[0] = offset_means_of_rows(factors.place_query[0], factors.place_key, rows)
    else:
        offsets = tokens.new_zeros(len(tokens), len(tokens), 2 * space.n_positions - 1)
        offsets[0, 0] = position_kernel(weights, stream, head, space.n_positions, space.query_positions)
    if window := space.form.window(head.layer):
        offsets[0, 0, space.n_positions - 1 + window :] = torch.nan  # no pair of rows is that far apart
    offsets = fix_offset_gauge(offsets, ahead=space.form.bidirectional)
    return torch.cat([tokens, offsets], dim=2), bias


def _class_contrasts(relations: TokenRelations, values: Float[Tensor, "*n vocab"]) -> Float[Tensor, "*n free_class"]:
    """Class means of a function of one token, minus the reference class's mean."""
    reference = values[..., relations.classes[relations.reference]].mean(-1)
    means = [values[..., relations.classes[name]].mean(-1) - reference for name in relations.free_classes]
    return torch.stack(means, dim=-1) if means else values[..., :0]
