"""(i) In-context against in-weights learning: gradients at chosen points, and which mechanism training ends with.

Gradients are of the four competing coordinates of `imir_lens.dynamics.competition` on `recall`, with standard errors
from batch means; intervals move every estimate by its error. Cells of the phase maps are trained from
(alpha, beta, gamma, delta) = (0.3, 0.3, 0.3, 0) with 32 contexts a step; a mechanism is there when the answer's mean
probability is at least one half on contexts that only it can answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any

import torch

from benchmarks.partial import PartialRows
from imir_lens.atlas.statistics import auc
from imir_lens.dynamics.competition import ROLES, context_share, error_share, mechanism_gradient, settled_memory
from imir_lens.dynamics.competition_training import OUTCOMES, PRESENT, train_competition
from imir_lens.dynamics.order import line_r2, spearman, transition, with_errors
from imir_lens.dynamics.power_law import fit_power_law
from imir_lens.tasks.recall import Recall

Row = dict[str, Any]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
VOCABULARIES = (41, 129, 513)
MEMORIES: dict[str, float | None] = {"0": 0.0, "2": 2.0, "6": 6.0, "settled": None}
FORMING = {"alpha": 1.0, "beta": 1.0, "gamma": 1.0}
COPIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
BLOCKS = {4: 16, 8: 24, 32: 80}  # pairs → positions
STARTS: dict[str, dict[str, float]] = {
    "start (0.1)": {"alpha": 0.1, "beta": 0.1, "gamma": 0.1},
    "forming (1)": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0},
    "formed (4)": {"alpha": 4.0, "beta": 4.0, "gamma": 4.0},
}
CELL = Recall(vocab=41, rare=20, pairs=4, length=16, f_r=0.5)
SIDE = 21
_AT_ONCE = 7  # lines of a map that are trained together
# map → (its horizontal knob and its end, its vertical knob and its end, steps)
MAPS: dict[str, tuple[tuple[str, float], tuple[str, float], int]] = {
    "f_r and b": (("f_r", 1.0), ("burstiness", 2.0), 400),
    "f_r and f_v": (("f_r", 1.0), ("f_v", 1.0), 150),
}
SCANS: dict[str, tuple[str, float, int]] = {
    "f_r at b = 1": ("f_r", 1.0, 400),
    "b at f_r = 0.5": ("burstiness", 2.0, 400),
}


def run(*, small: bool = False, seed: int = 0) -> list[Row]:
    """Measure gradients and train the cells; small: a few of each."""
    kept = PartialRows() if small else PartialRows.of("competition")
    contexts = 1024 if small else 16384
    jobs: list[tuple[Row, Callable[[], Row]]] = []
    for vocab in VOCABULARIES[1:2] if small else VOCABULARIES:
        for memory in ("0", "6") if small else MEMORIES:
            key = {"part": "shares", "vocab": vocab, "delta": memory, "contexts": contexts, "seed": seed}
            jobs.append((key, lambda v=vocab, m=memory: _shares(v, m, contexts, seed)))  # type: ignore[misc]
    for pairs in list(BLOCKS)[:2] if small else BLOCKS:
        for start in list(STARTS)[:1] if small else STARTS:
            key = {"part": "copies", "blocks": pairs, "point": start, "contexts": contexts, "seed": seed}
            jobs.append((key, lambda p=pairs, s=start: _copies(p, s, contexts, seed)))  # type: ignore[misc]
    for name in list(SCANS)[:1] if small else SCANS:
        for own in range(seed, seed + (1 if small else 3)):
            key = {"part": "scan", "scan": name, "steps": SCANS[name][2], "seed": own}
            jobs.append((key, lambda n=name, s=own: _scan(n, s, 5 if small else 41)))  # type: ignore[misc]
    for name in MAPS:
        side = 3 if small else SIDE
        for first in range(0, side, _AT_ONCE):
            key = {"part": "map", "map": name, "side": side, "steps": MAPS[name][2], "first line": first, "seed": seed}
            jobs.append((key, lambda n=name, i=first, c=side: _map_lines(n, i, c, seed)))  # type: ignore[misc]
    return [kept.get(key) or kept.add(key, {**key, **job()}) for key, job in jobs]


def tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Sum the rows up."""
    of = {part: [row for row in rows if row["part"] == part] for part in ("shares", "copies", "scan", "map")}
    factor = emergence_factor(of["scan"])
    return {
        "order over f_r and f_v": [line for row in of["shares"] for line in _order(row)],
        "linear in burstiness": [line for row in of["copies"] for line in _linearity(row)],
        "emergence time over the predicted scale": _emergence(of["scan"], of["map"]),
        "boundaries": _boundaries(of["scan"]),
        "phase maps": [_summary(name, of["map"], factor) for name in MAPS],
    }


def centres(end: float, count: int) -> list[float]:
    """Return the middles of `count` cells from 0 to an end."""
    return [round(end * (k + 0.5) / count, 12) for k in range(count)]


def scale(task_knobs: Row) -> float:
    """Return the predicted size of the in-context gradient: `b (f_r + (1 − f_r) f_v)`, Theorems 2 and 3 together."""
    return float(task_knobs["burstiness"]) * context_share(task_knobs["f_r"], task_knobs["f_v"])


def emergence_factor(scans: Sequence[Row]) -> float:
    """Return the median of emergence step · predicted scale over the scans: one number, and none of the maps in it."""
    return median(
        step * s
        for row in scans
        for step, s in zip(row["in context from"], row["scale"], strict=True)
        if step is not None
    )


def _shares(vocab: int, memory: str, contexts: int, seed: int) -> Row:
    cells = [(f_r, f_v) for f_r in SHARES for f_v in SHARES]
    means: dict[str, list[float]] = {role: [] for role in ROLES}
    errors: dict[str, list[float]] = {role: [] for role in ROLES}
    deltas = []
    for f_r, f_v in cells:
        task = Recall(vocab=vocab, rare=(vocab - 1) // 2, pairs=4, length=16, f_r=f_r, f_v=f_v)
        generator = torch.Generator().manual_seed(seed)
        delta = MEMORIES[memory]
        if delta is None:
            delta = settled_memory(task, FORMING, contexts=4096, generator=generator)
        found = mechanism_gradient(task, {**FORMING, "delta": delta}, contexts=contexts, generator=generator)
        deltas.append(delta)
        for role in ROLES:
            means[role].append(found.mean[role])
            errors[role].append(found.error[role])
    return {"cells": cells, "deltas": deltas, "mean": means, "error": errors}


def _order(row: Row) -> list[Row]:
    predicted = [round(context_share(*cell), 9) for cell in row["cells"]]
    settled = [round(error_share(*cell), 9) for cell in row["cells"]]
    order = torch.randperm(len(predicted), generator=torch.Generator().manual_seed(row["seed"])).tolist()
    out = []
    for role in ("alpha", "beta", "gamma"):
        values, errors = row["mean"][role], row["error"][role]
        # Where all cells agree to rounding there is no order to compare.
        flat = max(values) < min(values) * (1 + 1e-6)
        found = None if flat else with_errors(lambda v: spearman(v, predicted), values, errors)
        out.append(
            {
                "vocab": row["vocab"],
                "delta": row["delta"],
                "coordinate": role,
                "largest / smallest": max(values) / min(values),
                "Spearman": found and found.value,
                "low": found and found.low,
                "high": found and found.high,
                "with errors of a settled memory": None if flat else spearman(values, settled),
                "cells shuffled": None if flat else spearman([values[k] for k in order], predicted),
                "error / mean, largest": max(e / abs(v) for v, e in zip(values, errors, strict=True)),
                "contexts a cell": row["contexts"],
            }
        )
    return out


def _copies(pairs: int, start: str, contexts: int, seed: int) -> Row:
    task = Recall(vocab=4 * (pairs + 1) + 1, rare=2 * (pairs + 1), pairs=pairs, length=BLOCKS[pairs], f_r=1.0)
    means: dict[str, list[float]] = {role: [] for role in ROLES}
    errors: dict[str, list[float]] = {role: [] for role in ROLES}
    for b in COPIES:
        generator = torch.Generator().manual_seed(seed)
        found = mechanism_gradient(replace(task, burstiness=b), STARTS[start], contexts=contexts, generator=generator)
        for role in ROLES:
            means[role].append(found.mean[role])
            errors[role].append(found.error[role])
    return {"copies": list(COPIES), "mean": means, "error": errors}


def _linearity(row: Row) -> list[Row]:
    out = []
    for role in ("alpha", "beta", "gamma"):
        values, errors = row["mean"][role], row["error"][role]
        r2 = with_errors(lambda v: line_r2(row["copies"], v), values, errors)
        # From b = 1 on a power of b: the value without copies, which is not the copies' doing, is taken off.
        above = [(b, value - values[0]) for b, value in zip(row["copies"], values, strict=True) if b >= 1]
        positive = all(value > 0 for _, value in above)
        slope = (
            fit_power_law([b for b, _ in above], [[v] for _, v in above], resamples=1).exponent if positive else None
        )
        out.append(
            {
                "blocks": row["blocks"],
                "point": row["point"],
                "coordinate": role,
                "R²": r2.value,
                "low": r2.low,
                "high": r2.high,
                "log-log slope": slope,
                "gradient at b = 1": values[row["copies"].index(1.0)],
                "its error": errors[row["copies"].index(1.0)],
                "contexts a value": row["contexts"],
            }
        )
    return out


def _knobs(task: Recall) -> Row:
    return {"f_r": task.f_r, "f_v": task.f_v, "burstiness": task.burstiness}


def _trained(tasks: Sequence[Recall], steps: int, seed: int) -> Row:
    runs = train_competition(tasks, steps=steps, record_every=10, seed=seed)
    seen = runs.in_weights.max(0).values >= PRESENT
    return {
        "steps": steps,
        "scale": [round(scale(_knobs(task)), 9) for task in tasks],
        "outcome": runs.outcomes(),
        "in context": [round(value, 4) for value in runs.in_context[-1].tolist()],
        "in weights": [round(value, 4) for value in runs.in_weights[-1].tolist()],
        "in context from": runs.emerged("in_context"),
        "in weights from": runs.emerged("in_weights"),
        "memory was there": seen.tolist(),
    }


def _scan(name: str, seed: int, count: int) -> Row:
    knob, end, steps = SCANS[name]
    values = centres(end, count)
    tasks = [replace(CELL, **{knob: value}) for value in values]  # type: ignore[arg-type]
    return {"values": values, **_trained(tasks, steps, seed)}


def _map_lines(name: str, first: int, side: int, seed: int) -> Row:
    """Train some lines of a map side by side; every cell has contexts of its own."""
    (x_knob, x_end), (y_knob, y_end), steps = MAPS[name]
    lines = [(y, x) for y in centres(y_end, side)[first : first + _AT_ONCE] for x in centres(x_end, side)]
    tasks = [replace(CELL, **{x_knob: x, y_knob: y}) for y, x in lines]  # type: ignore[arg-type]
    return {"y": [y for y, _ in lines], "x": [x for _, x in lines], **_trained(tasks, steps, 1000 * (seed + 1) + first)}


def _emergence(scans: Sequence[Row], maps: Sequence[Row]) -> list[Row]:
    out = []
    groups = [(f"scan: {name}", [row for row in scans if row["scan"] == name]) for name in SCANS]
    groups += [(f"map: {name}", [row for row in maps if row["map"] == name]) for name in MAPS]
    for name, rows in groups:
        by_scale: dict[float, list[float]] = {}
        for row in rows:
            for s, step in zip(row["scale"], row["in context from"], strict=True):
                if step:
                    by_scale.setdefault(s, []).append(float(step))
        if len(by_scale) < 2:
            continue
        scales = sorted(by_scale)
        law = fit_power_law(scales, [by_scale[s] for s in scales], resamples=500)
        products = [s * step for s in scales for step in by_scale[s]]
        out.append(
            {
                "cells": name,
                "emerged": len(products),
                "log-log slope": law.exponent,
                "low": law.low,
                "high": law.high,
                "R²": law.r2,
                "step · scale, median": median(products),
                "least": min(products),
                "most": max(products),
            }
        )
    return out


def _boundaries(scans: Sequence[Row]) -> list[Row]:
    out = []
    for name in dict.fromkeys(row["scan"] for row in scans):
        mine = [row for row in scans if row["scan"] == name]
        found = [transition(row["values"], row["in context"]) for row in mine]
        out.append(
            {
                "along": name,
                "steps": SCANS[name][2],
                "10 %": mean(t.low for t in found),
                "50 %": mean(t.middle for t in found),
                "90 %": mean(t.high for t in found),
                "width": mean(t.width for t in found),
                "width / 50 %": mean(t.width / t.middle for t in found),
                "spread of 50 % over seeds": max(t.middle for t in found) - min(t.middle for t in found),
                "seeds": len(found),
                "cell": mine[0]["values"][1] - mine[0]["values"][0],
            }
        )
    return out


def _summary(name: str, maps: Sequence[Row], factor: float) -> Row:
    """Shares of the outcomes, and of the cells that `in context iff scale ≥ c / T` puts on the right side."""
    rows = [row for row in maps if row["map"] == name]
    outcomes = [cell for row in rows for cell in row["outcome"]]
    context = [cell in (0, 2) for cell in outcomes]
    scales = [s for row in rows for s in row["scale"]]
    right = [(s >= factor / rows[0]["steps"]) == there for s, there in zip(scales, context, strict=True)]
    gone = [
        was and cell not in (1, 2)
        for row in rows
        for was, cell in zip(row["memory was there"], row["outcome"], strict=True)
    ]
    return {
        "map": name,
        "cells": len(outcomes),
        "steps": rows[0]["steps"],
        **{label: outcomes.count(k) / len(outcomes) for k, label in enumerate(OUTCOMES)},
        "memory came and went": sum(gone) / len(gone),
        "predicted boundary: scale": factor / rows[0]["steps"],
        "cells on the right side": sum(right) / len(right),
        "by the larger class alone": max(mean(context), 1 - mean(context)),
        "AUC of the scale": auc(torch.tensor(scales), torch.tensor(context)),
    }
