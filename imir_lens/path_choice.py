"""Choosing paths in models that have too many to project: grow them head by head, and keep those that reach furthest.

The reach of a path is the largest token coordinate that reads through it on one side, with the empty path on the other:
in the queries or keys of any later head, or at the readout. Every path of one head is looked at; those of two heads
continue the best, and so on. What was not looked at is counted, and is not bounded.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.ids import Head, Path
from imir_lens.linear_stream import LinearStream
from imir_lens.paths import PathTable
from imir_lens.position_kernels import mean_rotation
from imir_lens.relation_means import token_contrasts
from imir_lens.relations import TokenRelations
from imir_lens.stream_scales import StreamScales
from imir_lens.weights import CircuitWeights

MOST_COORDINATES = 20_000_000
_DEPTH = 2
_BEAM = 8


def n_coordinates(n_entering: tuple[int, ...], n_heads: int, n_relations: int) -> int:
    """Return how many score coordinates a table of paths has: `Σ_l H n_l² S`."""
    return sum(n_heads * n * n * n_relations for n in n_entering[:-1])


def is_too_large(weights: CircuitWeights, n_relations: int, max_depth: int | None) -> bool:
    """Whether the full table of paths has more coordinates than are projected at once."""
    if max_depth is not None:
        return False  # the caller has chosen
    entering = tuple((weights.n_heads + 1) ** min(layer, 40) for layer in range(weights.n_layers + 1))
    return n_coordinates(entering, weights.n_heads, n_relations) > MOST_COORDINATES


@dataclass(frozen=True)
class PathChoice:
    """The chosen paths.

    Attributes:
        table: of the chosen paths and their prefixes.
        seen: how many paths were looked at.
        reach: of the best path that was looked at and left out (0 when none was).
    """

    table: PathTable
    seen: int
    reach: float


@dataclass
class _Grower:
    weights: CircuitWeights
    stream: LinearStream | None
    relations: TokenRelations
    n_positions: int
    query_positions: tuple[int, ...] | None
    direct: list[Float[Tensor, "vocab d_model"]] = field(init=False)

    def __post_init__(self) -> None:
        self.scales = (
            self.stream.scales
            if self.stream is not None
            else StreamScales.ones(self.weights.n_layers, self.weights.n_heads)
        )
        image = self.weights.W_E
        self.direct = [image]
        for layer in range(self.weights.n_layers):
            if self.stream is not None and self.stream.mlps:
                image = image + self.stream.mlps[layer].tokens
            self.direct.append(image)

    def written(self, image: Float[Tensor, "vocab d_model"], layer: int) -> Float[Tensor, "head vocab d_model"]:
        """Return what a layer's heads make of a path's image, as the next layer reads it."""
        w = self.weights
        read = torch.einsum("vm,hmd->hvd", image * self.scales.key[layer], w.W_V[layer])
        out = torch.einsum("hvd,hdm->hvm", read, w.W_O[layer])
        return self._past_mlp(out, layer) if w.form.mlp == "after" else out

    def images(self, image: Float[Tensor, "*n vocab d_model"], entry: int) -> list[Float[Tensor, "*n vocab d_model"]]:
        """Return an image as every layer from `entry` on reads it, and the readout."""
        out = [image]
        for layer in range(entry, self.weights.n_layers):
            image = self._past_mlp(image, layer)
            out.append(image)
        return out

    def reach(self, images: list[Float[Tensor, "n vocab d_model"]], entry: int) -> Float[Tensor, " n"]:
        """Return the largest coordinate that reads through each of some paths that end below a layer."""
        w = self.weights
        best = images[0].new_zeros(len(images[0]))
        for image, layer in zip(images, range(entry, w.n_layers), strict=False):
            turn = mean_rotation(w, layer, self.n_positions, self.query_positions)
            for index in range(w.n_heads):
                slope = self.scales.score_slopes[layer][index] / w.scale
                W_Q = w.W_Q[layer, index] * (self.scales.query[layer] * slope)
                W_K = w.W_K[layer, index] * self.scales.key[layer]
                direct = self.direct[layer].unsqueeze(0)
                asked = token_contrasts(self.relations, turn(direct @ W_Q), image @ W_K).abs().amax((0, 2))
                asking = token_contrasts(self.relations, turn(image @ W_Q), direct @ W_K).abs().amax((1, 2))
                best = torch.maximum(best, torch.maximum(asked, asking))
        outputs = w.W_U.T.unsqueeze(0) * (self.scales.readout * self.scales.logit_slope)
        return torch.maximum(best, token_contrasts(self.relations, images[-1], outputs).abs().amax((1, 2)))

    def _past_mlp(self, image: Float[Tensor, "*n vocab d_model"], layer: int) -> Float[Tensor, "*n vocab d_model"]:
        if self.stream is None or not self.stream.mlps:
            return image
        return image + image @ self.stream.mlps[layer].carry


def choose_paths(
    weights: CircuitWeights,
    stream: LinearStream | None,
    relations: TokenRelations,
    n_positions: int,
    query_positions: tuple[int, ...] | None,
    *,
    n_relations: int,
    max_paths: int,
    min_coordinate: float,
) -> PathChoice:
    """Grow and choose the paths of a model that has too many.

    Args:
        weights: of the model.
        stream: its measured means.
        relations: of the task.
        n_positions: length of the contexts.
        query_positions: where predictions are scored.
        n_relations: score coordinates for each pair of paths.
        max_paths: most paths to keep; fewer where their coordinates would be too many.
        min_coordinate: least reach of a path that is kept.
    """
    grower = _Grower(weights, stream, relations, n_positions, query_positions)
    # Paths end in all layers alike: about a third of the square of their number enters, summed over the layers.
    room = int((3 * MOST_COORDINATES / (weights.n_layers * weights.n_heads * n_relations)) ** 0.5)
    found: dict[Path, float] = {}
    beam: list[tuple[Path, Tensor]] = [(Path(), weights.W_E)]
    for depth in range(1, _DEPTH + 1):
        grown: list[tuple[float, Path, Tensor]] = []
        for path, image in beam:
            entry = path.heads[-1].layer + 1 if path.heads else 0
            by_reader = grower.direct if not path.heads else [*[image] * entry, *grower.images(image, entry)]
            for layer in range(entry, weights.n_layers):
                new = grower.written(by_reader[layer], layer)
                reach = grower.reach(grower.images(new, layer + 1), layer + 1)
                for index, value in enumerate(reach.tolist()):
                    longer = path.then(Head(layer, index))
                    found[longer] = value
                    grown.append((value, longer, new[index]))
        grown.sort(key=lambda item: -item[0])
        beam = [(path, image) for _, path, image in grown[:_BEAM]] if depth < _DEPTH else []
    ranked = sorted(found, key=lambda path: -found[path])
    kept: set[Path] = set()
    for path in ranked:
        more = {Path(path.heads[:length]) for length in range(1, len(path.heads) + 1)}
        if found[path] <= min_coordinate or len(kept | more) >= min(max_paths, room):
            break
        kept |= more
    left_out = [value for path, value in found.items() if path not in kept]
    ordered = sorted({Path(), *kept}, key=lambda path: [(head.layer, head.index) for head in reversed(path.heads)])
    table = PathTable(weights.n_layers, weights.n_heads, tuple(ordered))
    return PathChoice(table, len(found) + 1, max(left_out, default=0.0))
