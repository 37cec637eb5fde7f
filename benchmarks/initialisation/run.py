"""Measuring, in pieces that are kept: an interrupted run goes on where it stopped."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.initialisation.planes import HIGH, LOW, PLANES, box_starts, rivals_of_benchmark
from benchmarks.partial import PartialRows, Row
from imir_lens.dynamics.boundaries import boundaries_along
from imir_lens.dynamics.initialisation import Outcomes, StartTraining, axis, train_starts
from imir_lens.dynamics.lifted_starts import train_lifted
from imir_lens.dynamics.rival_circuits import RivalCircuits

LETTERS = "ABCSN"  # the circuits, shared, none
# A third of the surrogates' usual rate: with all weights free, that one overshoots.
SLOW = StartTraining(learning_rate=2.0, steps=900, check_every=75)


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    cells: int
    rows_at_once: int
    rays: int
    seeds: int
    tolerance: float
    chunks: dict[str, int]
    chunk: int
    again: int
    real: int
    usual: StartTraining
    slow: StartTraining


FULL = Size(40, 10, 8, 5, 1 / 512, {"signed": 4, "positive": 2}, 500, 200, 30, StartTraining(), SLOW)
_QUICK = StartTraining(batch=16, steps=75)
SMALL = Size(4, 4, 2, 1, 1 / 8, {"signed": 1, "positive": 1}, 20, 20, 1, _QUICK, StartTraining(batch=16, steps=25))


def run(*, small: bool = False, seed: int = 0) -> list[Row]:
    """Measure everything, or a small version of it."""
    size = SMALL if small else FULL
    keep = PartialRows() if small else PartialRows.of("initialisation")
    rivals = rivals_of_benchmark()
    rows = []
    for key, work in (
        *_maps(rivals, size, seed),
        *_random(rivals, size, seed),
        *_training(rivals, size, seed),
        *_real(rivals, size, seed),
        *_boundaries(rivals, size, seed),
    ):
        found = keep.get(key)
        if found is None:
            started = time.process_time()
            result = work()
            found = keep.add(key, {**key, **result, "seconds": round(time.process_time() - started, 2)})
        rows.append(found)
    return rows


Piece = tuple[dict[str, Any], Callable[[], dict[str, Any]]]


def letters(outcomes: Outcomes) -> str:
    """Return the outcomes, a letter each."""
    return "".join(LETTERS[place] for place in outcomes.winner.tolist())


def dominant(outcomes: Outcomes) -> str:
    """Return the circuits whose removal costs most, a letter each."""
    return "".join(LETTERS[place] for place in outcomes.dominant.tolist())


def _maps(rivals: RivalCircuits, size: Size, seed: int) -> Iterator[Piece]:
    values = axis(LOW, HIGH, size.cells)
    for plane in PLANES:
        for first in range(0, size.cells, size.rows_at_once):
            y = values[first : first + size.rows_at_once]

            def work(plane: Any = plane, y: list[float] = y) -> dict[str, Any]:
                outcomes = train_starts(rivals, plane.starts(rivals, values, y), seed=seed, training=size.usual)
                cells, costs = letters(outcomes), outcomes.costs.amax(1).clamp(0, 1)
                n = len(values)
                return {
                    "x": plane.x,
                    "y": plane.y,
                    "cells": [cells[n * k : n * (k + 1)] for k in range(len(y))],
                    "largest cost": [[round(c, 2) for c in row] for row in costs.view(len(y), n).tolist()],
                }

            yield {"part": "map", "plane": plane.name, "row": first, "of": size.cells}, work


def _random(rivals: RivalCircuits, size: Size, seed: int) -> Iterator[Piece]:
    for box, chunks in size.chunks.items():
        for chunk in range(chunks):

            def work(box: str = box, chunk: int = chunk) -> dict[str, Any]:
                starts = box_starts(rivals, box, chunk, size.chunk, seed)
                outcomes = train_starts(rivals, starts, seed=seed, training=size.usual)
                return {"winners": letters(outcomes), "dominant": dominant(outcomes)}

            yield {"part": "random", "box": box, "chunk": chunk, "starts": size.chunk}, work


def _training(rivals: RivalCircuits, size: Size, seed: int) -> Iterator[Piece]:
    """The first signed starts again, trained otherwise."""
    starts = box_starts(rivals, "signed", 0, size.chunk, seed)[: size.again]
    for name, other_seed, training in (
        ("other contexts", seed + 1, size.usual),
        ("a third of the learning rate", seed, size.slow),
        ("four times the batch", seed, replace(size.usual, batch=4 * size.usual.batch)),
        ("to the last step", seed, replace(size.usual, done=0.0)),
    ):

        def work(other_seed: int = other_seed, training: StartTraining = training) -> dict[str, Any]:
            outcomes = train_starts(rivals, starts, seed=other_seed, training=training)
            return {"winners": letters(outcomes), "dominant": dominant(outcomes)}

        yield {"part": "training", "change": name, "starts": size.again}, work


def _real(rivals: RivalCircuits, size: Size, seed: int) -> Iterator[Piece]:
    starts = box_starts(rivals, "signed", 0, size.chunk, seed)[: size.real]

    def surrogates(*, everything: bool) -> dict[str, Any]:
        outcomes = train_starts(rivals, starts, seed=seed, training=replace(size.slow, everything=everything))
        return {"winners": letters(outcomes), "dominant": dominant(outcomes)}

    yield {"part": "real", "what": "surrogate, circuits", "starts": size.real}, lambda: surrogates(everything=False)
    yield {"part": "real", "what": "surrogate, all", "starts": size.real}, lambda: surrogates(everything=True)
    for place in range(size.real):

        def work(place: int = place) -> dict[str, Any]:
            outcomes = train_lifted(rivals, starts[place], seed=seed, training=size.slow)
            return {
                "winners": letters(outcomes),
                "dominant": dominant(outcomes),
                "loss": round(float(outcomes.losses[0]), 4),
                "costs": [round(cost, 3) for cost in outcomes.costs[0].tolist()],
            }

        yield {"part": "real", "what": "model", "start": place, "starts": size.real}, work


def _boundaries(rivals: RivalCircuits, size: Size, seed: int) -> Iterator[Piece]:
    """The rays of all planes, one seed after the other."""
    rays = [plane.rays(rivals, size.rays) for plane in PLANES]
    near, far = torch.cat([ray[1] for ray in rays]), torch.cat([ray[2] for ray in rays])
    for one in range(seed, seed + size.seeds):

        def work(one: int = one) -> dict[str, Any]:
            found = boundaries_along(rivals, near, far, seeds=[one], training=size.usual, tolerance=size.tolerance)
            return {
                "circuits": "".join(LETTERS[circuit] for circuit in found.circuits),
                "positions": _listed(LOW + (HIGH - LOW) * found.positions[0]),
                "widths": _listed(found.widths[0]),
            }

        yield {"part": "boundary", "rays": size.rays, "contexts": one}, work


def _listed(values: torch.Tensor) -> list[float | None]:
    return [None if value != value else round(value, 4) for value in values.tolist()]
