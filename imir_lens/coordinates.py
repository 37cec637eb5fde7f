"""Coordinates: the named numbers a model's weights project to.

A `CoordinateSpace` says which coordinates exist for a set of paths, a task's relations and a context length, and where
each lies in one flat vector. `Coordinates` is such a vector for one model. Ids are made on demand: a deep model has
millions.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from imir_lens.attention_form import AttentionForm
from imir_lens.errors import CoordinateError, did_you_mean
from imir_lens.figures.figure import Drawn, Figure
from imir_lens.ids import CoordinateId, Head, offset_name
from imir_lens.paths import PathTable
from imir_lens.relations import TokenRelations
from imir_lens.stream_scales import StreamScales


@dataclass(frozen=True)
class Block:
    """A run of coordinates of one kind: `kind` is score, score_bias, readout or readout_bias."""

    kind: str
    head: Head | None
    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return torch.Size(self.shape).numel()

    @property
    def stop(self) -> int:
        """One past the last coordinate."""
        return self.start + self.size

    def view(self, values: Shaped[Tensor, " coordinate"]) -> Shaped[Tensor, "..."]:
        """Return this block of a flat vector, in its shape (a view: gradients and writes go through)."""
        return values[self.start : self.stop].view(self.shape)


class CoordinateSpace:
    """Which coordinates there are, and where.

    With n paths entering a layer, T token relations, P positions and C free classes, a head has a score block
    `[n, n, T + 2P − 1]` (query path, key path, relation: token relations, then offsets −(P−1)…P−1) and a key-bias block
    `[n, C]`; the readout has `[n, T]` and `[C]`.

    Attributes:
        paths: which paths.
        relations: between tokens.
        n_positions: length of the contexts.
        query_positions: where predictions are scored (None: everywhere).
        form: what the model does besides products of weights; it says which coordinates can act.
        scales: at which mean scales coordinates are nats, in a model with norms or caps; None: no scales in it.
    """

    def __init__(
        self,
        paths: PathTable,
        relations: TokenRelations,
        n_positions: int,
        query_positions: tuple[int, ...] | None = None,
        *,
        form: AttentionForm | None = None,
        scales: StreamScales | None = None,
    ) -> None:
        self.form = form or AttentionForm()
        self.scales = scales
        self.paths = paths
        self.relations = relations
        self.n_positions = n_positions
        self.query_positions = query_positions
        self.offsets = range(-(n_positions - 1), n_positions)
        self.score_relations = (*relations.names, *(offset_name(k) for k in self.offsets))
        n_tokens, n_scores, n_free = len(relations.names), len(self.score_relations), len(relations.free_classes)
        shapes: list[tuple[str, Head | None, tuple[int, ...]]] = []
        for head in paths.heads:
            n = paths.n_entering[head.layer]
            shapes += [("score", head, (n, n, n_scores)), ("score_bias", head, (n, n_free))]
        shapes += [("readout", None, (len(paths), n_tokens)), ("readout_bias", None, (n_free,))]
        self.blocks: list[Block] = []
        start = 0
        for kind, block_head, shape in shapes:
            self.blocks.append(Block(kind, block_head, start, shape))
            start = self.blocks[-1].stop
        self.size = start

    @cached_property
    def _by_kind(self) -> dict[tuple[str, Head | None], Block]:
        return {(block.kind, block.head): block for block in self.blocks}

    def block(self, kind: str, head: Head | None = None) -> Block:
        """Return one block."""
        return self._by_kind[kind, head]

    @cached_property
    def active(self) -> Bool[Tensor, " coordinate"]:
        """Which coordinates can act at all.

        A query read directly never sees a key ahead of it (offset < 0), unless attention is bidirectional; in a layer
        with a window, both read directly are never as far apart as the window. Positions
        that are not part of the stream (rotary, ALiBi, shortformer) act between the rows themselves: directly only.
        """
        mask = torch.ones(self.size, dtype=torch.bool)
        n_tokens = len(self.relations.names)
        for block in self.blocks:
            if block.kind == "score":
                offsets = mask[block.start : block.stop].view(block.shape)[..., n_tokens:]
                if not self.form.moves_positions:
                    direct = offsets[0, 0].clone()
                    offsets.fill_(False)
                    offsets[0, 0] = direct
                if not self.form.bidirectional:
                    offsets[0, :, : self.n_positions - 1] = False
                if window := self.form.window(block.head.layer):  # type: ignore[union-attr]
                    offsets[0, 0, self.n_positions - 1 + window :] = False
        return mask

    @property
    def n_active(self) -> int:
        """Number of coordinates that can act: the count reports speak of."""
        return int(self.active.sum())

    def id(self, place: int) -> CoordinateId:
        """Return the id of the coordinate at a place of the flat vector."""
        block = next(block for block in self.blocks if block.start <= place < block.stop)
        at = [int(i) for i in torch.unravel_index(torch.tensor(place - block.start), block.shape)]
        paths, relations = self.paths.paths, self.relations
        if block.kind == "score":
            return CoordinateId(block.head, paths[at[0]], paths[at[1]], self.score_relations[at[2]])
        if block.kind == "score_bias":
            return CoordinateId(block.head, None, paths[at[0]], relations.free_classes[at[1]])
        if block.kind == "readout":
            return CoordinateId(None, None, paths[at[0]], relations.names[at[1]])
        return CoordinateId(None, None, None, relations.free_classes[at[0]])

    def place(self, identifier: CoordinateId | str) -> int:
        """Return the place of a coordinate in the flat vector.

        Raises:
            CoordinateError: when the id does not parse or this space does not have it; the message names the part.
        """
        name = CoordinateId.parse(identifier) if isinstance(identifier, str) else identifier
        constant = name.query is None if name.is_score else name.key is None
        if name.is_score and name.head not in self.paths.heads:
            raise CoordinateError(
                f"{name} is in head {name.head}, but the model has {self.paths.n_layers} layers "
                f"of {self.paths.n_heads} heads"
            )
        if constant:
            options = self.relations.free_classes
        else:
            options = self.score_relations if name.is_score else self.relations.names
        if name.relation not in options:
            plain = [option for option in options if not option.startswith("offset")] or list(options)
            raise CoordinateError(
                f"{name} has no relation {name.relation!r} here; {did_you_mean(name.relation, plain)}"
            )
        relation = options.index(name.relation)
        at = [self.paths.place(path) for path in name.paths] + [relation]
        block = self.block(("score" if name.is_score else "readout") + ("_bias" if constant else ""), name.head)
        flat = 0
        for index, width in zip(at, block.shape, strict=True):
            flat = flat * width + index
        return block.start + flat

    def reading_through(self, heads: Collection[Head]) -> Bool[Tensor, " coordinate"]:
        """Return the mask of the coordinates that read a path through any of some heads, on either side."""
        through = torch.tensor([any(head in heads for head in path.heads) for path in self.paths.paths])
        mask = torch.zeros(self.size, dtype=torch.bool)
        for block in self.blocks:
            view = mask[block.start : block.stop].view(block.shape)
            if block.kind == "score":
                entering = through[: block.shape[0]]
                view |= (entering.unsqueeze(1) | entering.unsqueeze(0)).unsqueeze(2)
            elif block.kind != "readout_bias":
                view |= through[: block.shape[0]].unsqueeze(1)
        return mask & self.active

    def describe(self) -> str:
        """Return one line: how many coordinates over how many paths."""
        return f"{self.n_active} coordinates over {len(self.paths)} paths and {self.n_positions} positions"


class Coordinates(Drawn):
    """The coordinates of one model: a flat vector with names. In a notebook it shows the largest.

    Attributes:
        space: which coordinates these are.
        values: the numbers, shape [space.size]; inactive ones are zero.
    """

    def __init__(self, space: CoordinateSpace, values: Float[Tensor, " coordinate"]) -> None:
        if values.shape != (space.size,):
            raise CoordinateError(f"expected {space.size} values for this space, got shape {tuple(values.shape)}")
        self.space = space
        self.values = torch.where(space.active.to(values.device), values, 0.0)

    def __getitem__(self, identifier: CoordinateId | str) -> float:
        return float(self.values[self.space.place(identifier)])

    def __len__(self) -> int:
        return self.space.n_active

    def __iter__(self) -> Iterator[CoordinateId]:
        return (self.space.id(int(place)) for place in self.space.active.nonzero())

    def __sub__(self, other: "Coordinates") -> "Coordinates":
        return Coordinates(self.space, self.values - other._values_in(self.space))

    def __add__(self, other: "Coordinates") -> "Coordinates":
        return Coordinates(self.space, self.values + other._values_in(self.space))

    def __mul__(self, factor: float) -> "Coordinates":
        return Coordinates(self.space, self.values * factor)

    def cosine(self, other: "Coordinates") -> float:
        """Cosine of the angle to another model's coordinates (0 when either is zero)."""
        mine, theirs = self.values.double(), other._values_in(self.space).double()
        norm = mine.norm() * theirs.norm()
        return float(mine @ theirs / norm) if norm > 0 else 0.0

    def only(self, identifiers: list[CoordinateId] | list[str]) -> "Coordinates":
        """Return a copy in which every coordinate but these is zero."""
        keep = torch.zeros_like(self.values, dtype=torch.bool)
        keep[self.places(identifiers)] = True
        return Coordinates(self.space, torch.where(keep, self.values, 0.0))

    def places(self, identifiers: list[CoordinateId] | list[str]) -> Int[Tensor, " chosen"]:
        """Return the places of some ids."""
        return torch.tensor([self.space.place(name) for name in identifiers], dtype=torch.long)

    def largest(self, count: int) -> list[tuple[CoordinateId, float]]:
        """Return the `count` coordinates of largest magnitude, with their values."""
        order = self.values.abs().topk(min(count, self.space.size)).indices.tolist()
        return [(self.space.id(place), float(self.values[place])) for place in order]

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws the coordinates of each head, by its name, and of the `readout`."""
        from imir_lens.report.circuit_card import coordinate_figures

        return coordinate_figures(self)

    def save(self, path: str | FilePath) -> None:
        """Write to a `.safetensors` file; `Coordinates.load` reads it back."""
        from imir_lens.coordinate_files import save_coordinates

        save_coordinates(path, self)

    @classmethod
    def load(cls, path: str | FilePath) -> "Coordinates":
        """Read a file written by `save`.

        Raises:
            CoordinateError: when the file is missing, damaged, or something else.
        """
        from imir_lens.coordinate_files import load_coordinates

        return load_coordinates(path)

    def _values_in(self, space: CoordinateSpace) -> Float[Tensor, " coordinate"]:
        ours = (self.space.paths.paths, self.space.score_relations, self.space.n_positions)
        theirs = (space.paths.paths, space.score_relations, space.n_positions)
        if ours != theirs:
            raise CoordinateError(
                f"coordinates of different spaces do not compare: {self.space.describe()} against {space.describe()}"
            )
        return self.values

    def __repr__(self) -> str:
        rows = "\n".join(f"  {value:+9.3f}  {name}" for name, value in self.largest(8))
        return f"Coordinates: {self.space.describe()}; the largest:\n{rows}"

    def _repr_html_(self) -> str:
        from imir_lens.report.circuit_card import coordinates_card

        return coordinates_card(self).html()
