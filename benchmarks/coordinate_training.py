"""Training inside the manifold against full training of the disentangled transformer: emergence, and cost per step.

Both by SGD without momentum, same learning rate, same contexts at every step; weights start at Gaussian noise, the
surrogate at its projection. "Shift" compares emergence steps: surrogate / full − 1, over seeds and roles.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import seconds
from benchmarks.partial import PartialRows
from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.coordinate_sets import mask_of_ids, reference_roles
from imir_lens.dynamics.coordinate_training import Curves, train_many
from imir_lens.dynamics.emergence import emergence_step
from imir_lens.dynamics.run_batch import RunBatch
from imir_lens.dynamics.weight_training import step_weights, train_weights
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.planting import plant_disentangled
from imir_lens.paths import PathTable
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task

KEY_BIASES = ("L1H0/score/q:const/k:res/word", "L1H0/score/q:const/k:L0H0/word")
# What a start that is not fresh has: the head that will match looks at words, not at filler and not at itself.
HELD = {**dict.fromkeys(KEY_BIASES, 6.0), "L1H0/score/q:res/k:res/offset+0": -3.0}
NOISE = 0.01
BATCH = 64
WITHIN = 0.15
SMALL = {"vocab": 41, "length": 11, "pairs": 4}
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)  # what the control may choose from


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Compare over seeds, on recall from context alone and with something to memorise."""
    cases: list[tuple[float | None, str]] = [(None, "noise"), (0.7, "noise"), (None, "held")]
    cases = cases[1:2] if small else cases
    kept = PartialRows() if small else PartialRows.of("coordinate_training")
    rows: list[dict[str, Any]] = []
    for f_v, start in cases:
        key = {"f_v": f_v, "start": start, "seed": seed}
        found = kept.get(key) or kept.add(key, {"rows": _case(f_v, start, small=small, seed=seed)})
        rows.extend({"part": "emergence", **row} for row in found["rows"])
    return rows + _costs(small=small, seed=seed)


def tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what a page shows: emergence, and cost per step."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["part"], []).append({key: value for key, value in row.items() if key != "part"})
    return found


def _case(f_v: float | None, start: str, *, small: bool, seed: int) -> list[dict[str, Any]]:
    size = SMALL if small else {"vocab": 103, "length": 25}
    learning_rate, steps, seeds = (20.0, 160, [seed]) if small else (25.0, 500, [seed + k for k in range(10)])
    knobs = {} if f_v is None else {"f_r": 0.0, "f_v": f_v}
    task = make_task("recall", **size, **knobs)
    models = [_model(task, start, k) for k in seeds]
    projector = ImirProjector.for_task(task, min_coordinate=-1.0)
    initial = torch.stack([projector.fit(model.circuit_weights()).coordinates_.values for model in models])
    common: dict[str, Any] = {"steps": steps, "learning_rate": learning_rate, "batch": BATCH, "record_every": 4}
    common["held_out"] = task.sample(128, torch.Generator().manual_seed(seed))
    full = [train_weights(model, task, seed=k, **common) for model, k in zip(models, seeds, strict=True)]
    space = full[0][0]
    roles = [name for role, ids in reference_roles(task).items() if role != "auxiliary" for name in ids]
    truth = _emerged(space, [curves for _, curves in full], roles)
    with_biases = mask_of_ids(space, [*roles, *KEY_BIASES])
    sets: list[tuple[str, Tensor, Sequence[float]]] = [
        ("alpha, beta, gamma, delta", mask_of_ids(space, roles), ()),
        ("the same and the key biases", with_biases, ()),
        ("all coordinates", space.active, ()),
        ("control: as the second, one rate for all", with_biases, RATES),
    ]
    rows = []
    for name, mask, rates in sets:
        metric = coordinate_metric(space, mask)
        # The control replaces the metric by one number, the geometric mean of its diagonal times the best factor.
        even = torch.full((len(metric),), float(metric.diag().log().mean().exp()), dtype=metric.dtype)
        begin = torch.where(mask, initial, 0.0) if start == "noise" else initial
        options = {"chosen": mask, "seeds": seeds, **common}
        runs = [
            train_many(task, space, begin, metric=used, **options) for used in [even * r for r in rates] or [metric]
        ]
        done = min(
            runs, key=lambda one: float((_emerged(space, [one.curves], roles) / truth - 1).abs().nan_to_num(9).mean())
        )
        found = _emerged(space, [done.curves], roles)
        shift = found / truth - 1
        in_context = shift[:, [index for index, unit in enumerate(roles) if "assoc" not in unit]]
        rows.append(
            {
                "task": "recall" if f_v is None else f"recall, f_r 0, f_v {f_v}",
                "start": start,
                "trained": name,
                "coordinates": int(mask.sum()),
                "seeds": len(seeds),
                "roles": ", ".join(
                    role for role, ids in reference_roles(task).items() if role != "auxiliary" for _ in ids
                ),
                "full emerges": _mean(truth),
                "surrogate emerges": _mean(found),
                "mean shift": float(shift.mean()),
                "largest shift": float(shift.abs().max()),
                "largest, without delta": float(in_context.abs().max()),
                "seeds within 15 %": int((shift.abs().amax(1) <= WITHIN).sum()),
                "loss, full": float(torch.stack([curves.losses[-1] for _, curves in full]).mean()),
                "loss, surrogate": float(done.losses.mean()),
                "d_model": models[0].cfg.d_model,
            }
        )
    return rows


def _model(task: Task, start: str, seed: int) -> DisentangledTransformer:
    generator = torch.Generator().manual_seed(seed)
    if start == "noise":
        config = DisentangledConfig(d_vocab=task.d_vocab, n_ctx=task.n_positions, n_layers=2, init_std=NOISE)
        return DisentangledTransformer(config, generator=generator)
    model = plant_disentangled(task, HELD, n_layers=2, n_heads=1)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(NOISE * torch.randn(value.shape, generator=generator))
    return model


def _emerged(space: CoordinateSpace, curves: Sequence[Curves], roles: Sequence[str]) -> Tensor:
    """Emergence steps, [run, role]; not a number where a coordinate ends at zero."""
    per_role = [
        [
            math.nan if (step := emergence_step(column.tolist(), each.steps)) is None else float(step)
            for each in curves
            for column in each.of(space, name).T
        ]
        for name in roles
    ]
    return torch.tensor(per_role).T


def _mean(steps: Tensor) -> str:
    return ", ".join(f"{value:.0f}" for value in steps.mean(0))


def _five_steps(model: DisentangledTransformer, optimizer: torch.optim.Optimizer, drawn: RunBatch) -> None:
    for _ in range(5):
        step_weights(model, optimizer, drawn)


def _costs(*, small: bool, seed: int) -> list[dict[str, Any]]:
    """Time of a step of full training over that of the surrogate: one run, both on contexts already drawn."""
    size = SMALL if small else {"vocab": 103, "length": 25}
    task = make_task("recall", f_r=0.0, f_v=0.7, **size)
    space = CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions, task.query_positions)
    roles = [name for role, ids in reference_roles(task).items() if role != "auxiliary" for name in ids]
    model = _model(task, "noise", seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rows = []
    for batch_size in (BATCH,) if small else (BATCH, 2 * BATCH):
        batch = task.sample(batch_size, torch.Generator().manual_seed(seed))
        drawn = RunBatch.of(batch)
        full = seconds(partial(_five_steps, model, optimizer, drawn)) / 5
        for name, mask in (
            ("alpha, beta, gamma, delta", mask_of_ids(space, roles)),
            ("the same and the key biases", mask_of_ids(space, [*roles, *KEY_BIASES])),
            ("all coordinates", space.active),
        ):
            options = {"chosen": mask, "metric": coordinate_metric(space, mask), "held_out": batch[:1]}
            steps = 2 if small else 300 if mask.sum() < 10 else 30
            initial = torch.where(mask, 0.01, 0.0).unsqueeze(0)

            def work(batch: Batch = batch, initial: Tensor = initial, steps: int = steps, more: Any = options) -> None:
                train_many(batch, space, initial, steps=steps, learning_rate=0.0, record_every=steps, **more)

            inside = seconds(work) / steps
            rows.append(
                {
                    "part": "cost",
                    "trained": name,
                    "coordinates": int(mask.sum()),
                    "contexts a step": batch_size,
                    "d_model": model.cfg.d_model,
                    "full, ms a step": 1e3 * full,
                    "surrogate, ms a step": 1e3 * inside,
                    "full / surrogate": full / inside,
                }
            )
    return rows
