"""(g) Trajectories: in which order the roles of an induction head emerge in training, and when the loss falls.

Recall with 24 tokens and 4 pairs in contexts of 14, two layers of one head, ten seeds each of an ordinary transformer
(`ImirTransformer`, d_model 64, AdamW) and of a `DisentangledTransformer` (centred embeddings, AdamW), a checkpoint
every 5 steps. Besides, all coordinates trained alone by gradient descent with the metric of the disentangled model's
weights (`train_many`): what plain gradient descent does there, where AdamW's steps are of one size. A role has emerged
at the first checkpoint from which on it has at least half of its final value; the loss has fallen at the first from
which on it is below the middle of its range. `lag` is the second minus the last of the first: 0 or a little more if the
loss falls when the last role arrives. Roles are taken at the canonical circuit's coordinates, which with one head a
layer are the same in every run. Since half is a choice, the order is given for a quarter and three quarters too. `=`
says that no checkpoint tells two roles apart.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.partial import PartialRows
from imir_lens import Trajectory, trajectory
from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics import train_many
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.emergence import MINIMUM, emergence_step, loss_drop
from imir_lens.dynamics.trajectory_seeds import order_of
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.disentangled_config import DisentangledConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.paths import PathTable
from imir_lens.tasks import make_task
from imir_lens.training import default_config, train

TASK = make_task("recall", vocab=24, pairs=4, length=14)
# One head a layer: the canonical circuit has its units here in every run. A detected circuit can hold more.
ROLES = {
    "alpha": "L0H0/score/q:res/k:res/offset+1",
    "beta": "L1H0/score/q:res/k:L0H0/same",
    "gamma": "readout/via:L1H0/same",
}
SHARES = {"order at 25 %": 0.25, "order": 0.5, "order at 75 %": 0.75}


@dataclass(frozen=True)
class Kind:
    """A kind of model and how it is trained."""

    steps: int
    learning_rate: float
    weight_decay: float


DESCENT = "gradient descent on coordinates"
KINDS = {"ordinary": Kind(400, 3e-3, 0.1), "disentangled": Kind(400, 1e-2, 0.0)}


def run(*, small: bool = False, seed: int = 0, partial: PartialRows | None = None) -> list[dict[str, Any]]:
    """Train and follow; small: one seed of the two quicker kinds, few checkpoints."""
    partial = partial or (PartialRows() if small else PartialRows.of("trajectory"))
    every, seeds = (50, 1) if small else (5, 10)
    rows = []
    for model in list(KINDS)[1 if small else 0 :]:
        for one in range(seed, seed + seeds):
            key = {"model": model, "seed": one, "every": every}
            row = partial.get(key)
            rows.append(row if row is not None else partial.add(key, measured(model, one, every=every)))
    key = {"model": DESCENT, "seeds": [seed, seeds], "every": every}
    descent = partial.get(key) or partial.add(
        key, {"rows": descended(range(seed, seed + seeds), every=every, steps=300 if small else 600)}
    )
    return rows + descent["rows"]


def descended(seeds: Sequence[int], *, every: int, steps: int) -> list[dict[str, Any]]:
    """Train all coordinates from small random ones by gradient descent, several seeds at once."""
    space = CoordinateSpace(PathTable.full(2, 1), TASK.relations, TASK.n_positions, TASK.query_positions)
    generators = [torch.Generator().manual_seed(one) for one in seeds]
    start = torch.stack([0.02 * torch.randn(space.size, generator=generator) for generator in generators])
    found = train_many(
        TASK,
        space,
        torch.where(space.active, start, 0.0),
        steps=steps,
        learning_rate=3.0,
        metric=coordinate_metric(space),
        seeds=list(seeds),
        record_every=every,
    )
    curves, rows = found.curves, []
    for run, seed in enumerate(seeds):
        values = {role: curves.of(space, name)[:, run].tolist() for role, name in ROLES.items()}
        losses = curves.losses[:, run].tolist()
        rows.append(_row(DESCENT, seed, values, losses, curves.steps, accuracy=float(found.accuracies[run])))
    return rows


def measured(model: str, seed: int, *, every: int) -> dict[str, Any]:
    """Train one model and return when things happened."""
    with tempfile.TemporaryDirectory() as place:
        found = followed(model, seed, Path(place) / "run", every=every)
    last = found.data["checkpoints"][-1]
    values = {role: found.values(name) for role, name in ROLES.items()}
    row = _row(model, seed, values, found.losses, found.steps, accuracy=last["accuracy"])
    return row | {"units": len(last["circuit"]), "order of all named roles": order_of(found)}


def _row(
    model: str,
    seed: int,
    values: Mapping[str, Sequence[float]],
    losses: Sequence[float],
    steps: Sequence[int],
    *,
    accuracy: float,
) -> dict[str, Any]:
    found = {role: emergence_step(series, steps, minimum=MINIMUM) for role, series in values.items()}
    fall = loss_drop(losses, steps)
    arrived = [step for step in found.values() if step is not None]
    complete = len(arrived) == len(ROLES) and fall is not None
    return {
        "model": model,
        "seed": seed,
        **found,
        "loss fallen": None if fall is None else fall.step,
        "lag": fall.step - max(arrived) if complete and fall else None,
        "lag to the first": fall.step - min(arrived) if complete and fall else None,
        **{name: _order(values, steps, share) for name, share in SHARES.items()},
        **{f"final {role}": series[-1] for role, series in values.items()},
        "final loss": losses[-1],
        "final accuracy": accuracy,
    }


def followed(model: str, seed: int, run: Path, *, every: int) -> Trajectory:
    """Train one model, keeping checkpoints, and return its trajectory."""
    kind = KINDS[model]
    train(
        TASK,
        new_model(model, seed),
        run=run,
        steps=kind.steps,
        learning_rate=kind.learning_rate,
        weight_decay=kind.weight_decay,
        evaluate_every=kind.steps,
        checkpoint_every=every,
        seed=seed,
    )
    return trajectory(run)


def new_model(model: str, seed: int) -> nn.Module:
    """Return an untrained model."""
    generator = torch.Generator().manual_seed(seed)
    if model == "ordinary":
        return ImirTransformer(default_config(TASK, d_model=64, d_head=32), generator=generator)
    config = DisentangledConfig(d_vocab=TASK.d_vocab, n_ctx=TASK.n_positions, n_layers=2, embedding="centred")
    return DisentangledTransformer(config, generator=generator)


def _order(values: Mapping[str, Sequence[float]], steps: Sequence[int], share: float) -> str:
    """Return the order in which roles reach a share of their final values."""
    groups: dict[int, list[str]] = {}
    for role, series in values.items():
        step = emergence_step(series, steps, share=share, minimum=MINIMUM)
        if step is not None:
            groups.setdefault(step, []).append(role)
    return " < ".join(" = ".join(sorted(groups[step])) for step in sorted(groups)) or "none"


def tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Sum up over seeds."""
    return {"steps over seeds": _steps(rows), "order of emergence": _orders(rows)}


def _steps(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        for what in (*ROLES, "loss fallen", "lag", "lag to the first"):
            found = [row[what] for row in own if row[what] is not None]
            line = {"model": model, "what": what, "runs": len(found), "of": len(own)}
            ends = (median(found), min(found), max(found)) if found else (None, None, None)
            out.append(line | dict(zip(("median", "least", "most"), ends, strict=True)))
    return out


def _orders(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for name, share in SHARES.items():
            counts = Counter(row[name] for row in rows if row["model"] == model)
            out += [
                {"model": model, "share of the final value": share, "order": order, "runs": count}
                for order, count in counts.most_common()
            ]
    return out
