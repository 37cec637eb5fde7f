"""(h) Emergence time against context length and number of pairs.

The time at which an induction head emerges on recall is the step at which the loss has fallen to half of its first
value, times the learning rate for gradient descent (so that it is the time of gradient flow, whatever the step). Two
layers of one head, 256 tokens (with few tokens more pairs show more of all words, and the head is slower for that
reason alone), ten seeds. Trained are coordinates of the surrogate (`train_many`), from small random values: alpha, beta
and gamma alone by gradient descent, with the metric that makes it gradient descent on the weights of a
`DisentangledTransformer` (`coordinate_metric`); and all coordinates by Adam, whose steps do not scale with the
gradient. The exponent is the slope of a straight line through logarithms, with its 95 % interval over resampled seeds;
`local` are the slopes between neighbouring sizes. The paper before IMIR (arXiv 2511.01033) gives a time quadratic in
the length of the context: exponent 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.partial import PartialRows
from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics import train_many
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.power_law import fit_power_law
from imir_lens.paths import PathTable
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task

VOCAB = 256
HELD_OUT = 256
BATCH = 64
START = 0.02
CHUNK = 200
ROLES = ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same")


@dataclass(frozen=True)
class Setup:
    """What is trained, and how.

    Attributes:
        only_roles: train alpha, beta and gamma alone.
        optimizer: "sgd" or "adam".
        learning_rate: constant.
        most_steps: give up after so many.
        longest: contexts longer than this are left out, for their cost.
    """

    only_roles: bool
    optimizer: str
    learning_rate: float
    most_steps: int
    longest: int


SETUPS = {
    "alpha, beta, gamma; gradient descent": Setup(True, "sgd", 40.0, 8000, 65),
    "all coordinates; Adam": Setup(False, "adam", 0.02, 400, 17),
}
# (pairs, length) by what is varied; a recall context of P pairs and its query needs 2P + 1 tokens.
SWEEPS = {
    "context length, 3 pairs": ((3, 7), (3, 9), (3, 13), (3, 17), (3, 25), (3, 33), (3, 65)),
    "pairs, contexts of one length": ((2, 33), (4, 33), (8, 33), (16, 33)),
    "contexts full of pairs": ((3, 7), (4, 9), (6, 13), (8, 17), (12, 25), (16, 33)),
}


def cells_of(setup: Setup, sweep: str) -> list[tuple[int, int]]:
    """Return the (pairs, length) of a sweep that a setup trains on."""
    if sweep.startswith("pairs") and setup.longest < 33:
        return []
    return [cell for cell in SWEEPS[sweep] if cell[1] <= setup.longest]


def run(*, small: bool = False, seed: int = 0, partial: PartialRows | None = None) -> list[dict[str, Any]]:
    """Measure every cell once; small: three sizes of one setup, three seeds."""
    partial = partial or (PartialRows() if small else PartialRows.of("emergence"))
    rows: list[dict[str, Any]] = []
    for name in list(SETUPS)[: 1 if small else None]:
        cells = dict.fromkeys(cell for sweep in SWEEPS for cell in cells_of(SETUPS[name], sweep))
        for pairs, length in [(3, 7), (4, 9), (6, 13)] if small else cells:
            key = {"setup": name, "pairs": pairs, "length": length, "seed": seed}
            found = partial.get(key)
            if found is None:
                times = emergence_times(SETUPS[name], pairs, length, seed=seed, runs=3 if small else 10)
                found = partial.add(key, {"setup": name, "pairs": pairs, "length": length, "times": times})
            rows.append(found)
    return rows


def emergence_times(setup: Setup, pairs: int, length: int, *, seed: int, runs: int) -> list[float | None]:
    """Train several seeds and return when the loss of each had fallen to half; None for one where it did not."""
    task = make_task("recall", vocab=VOCAB, pairs=pairs, length=length)
    space, chosen = space_of(task), None
    generator = torch.Generator().manual_seed(seed)
    values = torch.where(space.active, START * torch.randn(runs, space.size, generator=generator), 0.0)
    if setup.only_roles:
        chosen = torch.zeros(space.size, dtype=torch.bool)
        chosen[[space.place(name) for name in ROLES]] = True
        values = torch.where(chosen, values.abs(), 0.0)  # three negative coordinates can be another solution
    descent = setup.optimizer == "sgd"
    metric = coordinate_metric(space, chosen) if descent else None
    held_out = task.sample(HELD_OUT, torch.Generator().manual_seed(seed + 1))
    every = 5 if descent else 2
    chunk = CHUNK if descent else setup.most_steps  # Adam's moments do not outlive a call
    steps: list[int] = []
    losses: list[torch.Tensor] = []
    done = 0
    while done < setup.most_steps and not (losses and bool((losses[-1] < 0.4 * losses[0]).all())):
        found = train_many(
            task,
            space,
            values,
            chosen=chosen,
            steps=chunk,
            learning_rate=setup.learning_rate,
            optimizer=setup.optimizer,
            metric=metric,
            batch=BATCH,
            seeds=[seed + 1000 * (run + 1) + done for run in range(runs)],
            held_out=held_out,
            record_every=every,
        )
        first = 1 if losses else 0  # the last record of a chunk is the first of the next
        steps += [done + step for step in found.curves.steps[first:]]
        losses += list(found.curves.losses[first:])
        values, done = found.values, done + chunk
    scale = setup.learning_rate if descent else 1.0
    return [
        None if at is None else at * scale
        for at in (_half([float(row[run]) for row in losses], steps) for run in range(runs))
    ]


def space_of(task: Task) -> CoordinateSpace:
    """Return all coordinates of two layers of one head."""
    return CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions, task.query_positions)


def _half(losses: Sequence[float], steps: Sequence[int]) -> float | None:
    """Return the step, between two records, at which the loss first falls to half of what it was at first."""
    middle = losses[0] / 2
    at = next((k for k, loss in enumerate(losses) if loss < middle), None)
    if at is None:
        return None
    share = (losses[at - 1] - middle) / (losses[at - 1] - losses[at])
    return steps[at - 1] + share * (steps[at] - steps[at - 1])


def tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Fit a line to each sweep of each setup, and show the times."""
    times = {(row["setup"], row["pairs"], row["length"]): row["times"] for row in rows}
    fits = []
    for name in dict.fromkeys(row["setup"] for row in rows):
        for sweep in SWEEPS:
            cells = [cell for cell in cells_of(SETUPS[name], sweep) if (name, *cell) in times]
            if len(cells) > 2:
                found = [times[(name, *cell)] for cell in cells]
                fits.append({"setup": name, "varied": sweep, **_fit(cells, found, sweep)})
    shown = [
        {
            "setup": row["setup"],
            "pairs": row["pairs"],
            "length": row["length"],
            "emerged": sum(time is not None for time in row["times"]),
            "of": len(row["times"]),
            **_spread([time for time in row["times"] if time is not None]),
        }
        for row in rows
    ]
    return {"exponents": fits, "emergence times": shown}


def _fit(cells: Sequence[tuple[int, int]], times: Sequence[Sequence[float | None]], sweep: str) -> dict[str, Any]:
    sizes = [float(pairs) if sweep.startswith("pairs") else float(length) for pairs, length in cells]
    found = [[time for time in own if time is not None] for own in times]
    kept = [(size, own) for size, own in zip(sizes, found, strict=True) if own]
    law = asdict(fit_power_law([size for size, _ in kept], [own for _, own in kept]))
    names = ("exponent", "low", "high", "r2", "local_low", "local_high")
    return {"sizes": len(kept), "runs": sum(map(len, found)), **{name.replace("_", " "): law[name] for name in names}}


def _spread(times: Sequence[float]) -> dict[str, float | None]:
    found = sorted(times)
    ends = (found[len(found) // 2], found[0], found[-1]) if found else (None, None, None)
    return dict(zip(("median time", "least", "most"), ends, strict=True))
