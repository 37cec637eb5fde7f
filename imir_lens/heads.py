"""What each head does: its offset kernel, its matching and copying coordinates, and its pattern on data."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.detection import Circuit
from imir_lens.explained import Explained
from imir_lens.ids import CoordinateId, Head
from imir_lens.tasks.base import Batch


@dataclass(frozen=True)
class HeadSummary:
    """One row of the head table.

    Attributes:
        head: which.
        score_r2: share of its score variance that the coordinates explain.
        offset: offset its directly read kernel prefers.
        copy_mass: mean attention from a position to the one `offset` back, where there is one.
        match: its largest `same` score coordinate through an upstream head (0 when there is none upstream).
        copying: its `same` readout coordinate, directly through it.
        labels: roles it carries in the circuit.
    """

    head: Head
    score_r2: float
    offset: int
    copy_mass: float
    match: float
    copying: float
    labels: tuple[str, ...]


def summarise_heads(
    coordinates: Coordinates,
    circuit: Circuit,
    explained: Explained,
    patterns: dict[Head, Float[Tensor, "context position position"]],
    batch: Batch,
) -> list[HeadSummary]:
    """Summarise every head of a model."""
    return [_summarise(head, coordinates, circuit, explained, patterns[head], batch) for head in explained.heads]


def _summarise(
    head: Head,
    coordinates: Coordinates,
    circuit: Circuit,
    explained: Explained,
    pattern: Float[Tensor, "context position position"],
    batch: Batch,
) -> HeadSummary:
    space = coordinates.space
    score = space.block("score", head).view(coordinates.values)
    n_tokens = len(space.relations.names)
    kernel = score[0, 0, n_tokens + space.n_positions - 1 :]  # offsets 0 … P−1
    offset = int(kernel.argmax())
    same = score[:, :, space.relations.names.index("same")] if "same" in space.relations.names else score[:, :, 0] * 0
    through = same.clone()
    through[0, 0] = -torch.inf
    copying = 0.0
    path = next((place for before, place in space.paths.extensions(head) if before == 0), None)
    if path is not None and "same" in space.relations.names:
        copying = float(space.block("readout").view(coordinates.values)[path, space.relations.names.index("same")])
    return HeadSummary(
        head=head,
        score_r2=explained.heads[head],
        offset=offset,
        copy_mass=_copy_mass(pattern, offset, batch, last=head.layer == space.paths.n_layers - 1),
        match=float(through.max()) if same.numel() > 1 else 0.0,
        copying=copying,
        labels=tuple(dict.fromkeys(unit.role for unit in circuit.units if _carrier(unit.id) == head)),
    )


def _copy_mass(pattern: Float[Tensor, "context position position"], offset: int, batch: Batch, *, last: bool) -> float:
    if not last:
        return float(pattern.diagonal(-offset, 1, 2).mean())
    # Only the queries' rows of the last layer are ever read.
    rows = pattern.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, pattern.shape[2]))
    keys = batch.queries - offset
    mass = rows.gather(2, keys.clamp(min=0).unsqueeze(2)).squeeze(2)
    return float(mass[batch.mask & (keys >= 0)].mean()) if bool((batch.mask & (keys >= 0)).any()) else 0.0


def _carrier(unit: CoordinateId) -> Head | None:
    """Scores belong to their head; readouts to the last head of their path."""
    if unit.head is not None:
        return unit.head
    return unit.key.heads[-1] if unit.key is not None and unit.key.heads else None
