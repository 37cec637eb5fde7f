"""What is measured at one checkpoint of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.detection import Circuit, detect, path_stay
from imir_lens.errors import CheckpointError
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.explained import capture, explain
from imir_lens.ids import CoordinateId, Head
from imir_lens.lens_model import LensModel
from imir_lens.linear_stream import measure_stream
from imir_lens.projector import ImirProjector
from imir_lens.roles import Unit, base_of
from imir_lens.tasks.base import Batch

EXPLAINED_CONTEXTS = 128
Patterns = dict[Head, Float[Tensor, "context position position"]]


@dataclass(frozen=True)
class Places:
    """What attention is compared with: fixed by the last checkpoint, the same for all.

    Attributes:
        offsets: for each layer, the offset at which its alpha units attend, where it has one.
        matched: for each layer with a beta unit, which keys each row's query matches there.
    """

    offsets: dict[int, int]
    matched: dict[int, Bool[Tensor, "context position position"]]


@dataclass(frozen=True)
class Point:
    """One checkpoint.

    Attributes:
        facts: loss, accuracy, unexplained {scores, readout}, heads [{head, copy_mass, match_mass, answer_mass}],
            circuit [{id, role, value}] or None; JSON values.
        values: all coordinates of the fitted space, flat.
    """

    facts: dict[str, Any]
    values: Float[Tensor, " coordinate"]


@dataclass(frozen=True)
class Contexts:
    """The contexts that every checkpoint of a run is measured on."""

    search: Batch
    test: Batch

    @property
    def shown(self) -> Batch:
        """Those that attention and variance explained are measured on."""
        return self.test[:EXPLAINED_CONTEXTS]


def project(projector: ImirProjector, model: LensModel, contexts: Contexts, *, fit: bool = False) -> Coordinates:
    """Return a checkpoint's coordinates in the fitted space; `fit` chooses the space first."""
    stream = measure_stream(model, contexts.search)
    return projector.fit(model.weights, stream).coordinates_ if fit else projector.transform(model.weights, stream)


def find_circuit(model: LensModel, coordinates: Coordinates, contexts: Contexts, *, budget: float) -> Circuit:
    """Detect a checkpoint's circuit as `analyze` does."""
    sample = contexts.search[:EXPLAINED_CONTEXTS]
    stay = path_stay(capture(model, coordinates.space.paths.heads, sample).patterns, sample)
    return detect(coordinates, contexts.search, budget=budget, stay=stay)


def measure(
    model: LensModel,
    coordinates: Coordinates,
    contexts: Contexts,
    places: Places,
    *,
    circuit: Circuit | None,
) -> Point:
    """Measure one checkpoint.

    Args:
        model: the checkpoint, opened.
        coordinates: its coordinates.
        contexts: the run's contexts.
        places: what attention is compared with.
        circuit: its own circuit, where one was looked for.

    Raises:
        CheckpointError: when its loss is not a number.
    """
    score = score_logits(at_queries(model.logits(contexts.test.tokens), contexts.test), contexts.test)
    if not torch.tensor(score.loss).isfinite():
        raise CheckpointError(f"{model.info['source']}: its loss is {score.loss}; leave it out with a pattern of names")
    shown = contexts.shown
    captured = capture(model, coordinates.space.paths.heads, shown)
    explained = explain(captured, coordinates, shown)
    facts = {
        "loss": score.loss,
        "accuracy": score.accuracy,
        "unexplained": {"scores": 1 - explained.scores, "readout": 1 - explained.readout},
        "heads": [_attention(head, pattern, shown, places) for head, pattern in captured.patterns.items()],
        "circuit": None if circuit is None else [_unit(unit) for unit in circuit.units],
    }
    return Point(facts, coordinates.values.detach().cpu())


def places_of(units: Sequence[Unit], patterns: Patterns, batch: Batch) -> Places:
    """Say where the units of a circuit attend, on some contexts.

    A beta unit's query matches a key when the tokens that its two paths bring there from most are the same: each path's
    content is taken to be its strongest source.

    Args:
        units: of the last checkpoint's circuit.
        patterns: of the last checkpoint.
        batch: the contexts.
    """
    offsets: dict[int, int] = {}
    matched: dict[int, Tensor] = {}
    for unit in sorted(units, key=lambda unit: -abs(unit.value)):
        name = unit.id
        if name.head is None:
            continue
        if base_of(unit.role) == "alpha" and name.offset is not None:
            offsets.setdefault(name.head.layer, name.offset)
        if base_of(unit.role) == "beta" and name.query is not None and name.key is not None:
            wanted, found = (_brought(path.heads, patterns, batch) for path in (name.query, name.key))
            same = wanted.unsqueeze(2) == found.unsqueeze(1)
            before = matched.get(name.head.layer)
            matched[name.head.layer] = same if before is None else before | same
    return Places(offsets, matched)


def _brought(heads: Sequence[Head], patterns: Patterns, batch: Batch) -> Tensor:
    """Return the token that a path brings to each position, from its strongest source."""
    tokens = batch.tokens
    if not heads:
        return tokens
    content = patterns[heads[0]]
    for head in heads[1:]:
        content = patterns[head] @ content
    return tokens.gather(1, content.argmax(2))


def _attention(
    head: Head, pattern: Float[Tensor, "context position position"], batch: Batch, places: Places
) -> dict[str, Any]:
    rows = pattern.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, pattern.shape[2]))
    answers = batch.tokens.unsqueeze(1) == batch.targets.unsqueeze(2)
    offset, matched = places.offsets.get(head.layer), places.matched.get(head.layer)
    out: dict[str, Any] = {"head": str(head), "offset": offset, "copy_mass": None, "match_mass": None}
    if offset is not None:
        out["copy_mass"] = float(pattern.diagonal(-offset, 1, 2).mean())
    if matched is not None:
        keys = matched.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, pattern.shape[2]))
        out["match_mass"] = float((rows * keys).sum(2)[batch.mask].mean())
    out["answer_mass"] = float((rows * answers).sum(2)[batch.mask].mean())
    return out


def _unit(unit: Unit) -> dict[str, Any]:
    return {"id": str(unit.id), "role": unit.role, "value": unit.value}


def ids_of(facts: Mapping[str, Any]) -> list[CoordinateId]:
    """Return the ids of a point's own circuit."""
    return [CoordinateId.parse(unit["id"]) for unit in facts["circuit"] or []]
