"""`trajectory`: the coordinates of a run's checkpoints, from the first to the last."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import imir_lens
from imir_lens.checkpoints import checkpoint_series, naming
from imir_lens.coordinates import CoordinateSpace
from imir_lens.detection import Circuit, path_stay
from imir_lens.dynamics.trajectory_cache import PointCache
from imir_lens.dynamics.trajectory_data import Followed, Measured, trajectory_data
from imir_lens.dynamics.trajectory_point import (
    Contexts,
    Patterns,
    Point,
    find_circuit,
    measure,
    places_of,
    project,
)
from imir_lens.errors import CheckpointError, CoordinateError, OptionError
from imir_lens.explained import capture
from imir_lens.lens_model import open_model
from imir_lens.projector import ImirProjector
from imir_lens.report.trajectory_document import Trajectory
from imir_lens.roles import Unit, units_of
from imir_lens.sources.weight_files import sha256_of
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task
from imir_lens.training.run_directory import read_metrics, read_record

SEARCH_CONTEXTS = 256
TOP = 12
_MOST_CONTEXTS = 1_000_000
_KEEP_ALL = -1.0  # no path is cut: one that nothing reads through in the end may have been read through before
Progress = Callable[[int, int, int, Mapping[str, Any]], None]


def trajectory(
    run: str | Path,
    task: Task | str | None = None,
    *,
    knobs: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    contexts: int = 512,
    budget: float = 0.01,
    top: int = TOP,
    detect_every: bool = False,
    seed: int = 0,
    cache: str | Path | None = None,
    device: str | None = None,
    command: str | None = None,
    progress: Progress = lambda done, total, step, facts: None,
) -> Trajectory:
    """Follow a model's coordinates, loss and attention over the checkpoints of its training.

    The space of coordinates is chosen on the last checkpoint and used for all. Followed are the units of the circuit
    detected there, those of the task's reference circuit, and the coordinates of largest attribution.

    Args:
        run: a run directory of `train`, a folder of numbered checkpoints, or a pattern such as `run/step_*.pt`.
        task: a task, or the name of one; by default, the one that a run of `train` has on record.
        knobs: knobs of a task given by name, over those on record.
        config: for checkpoints without a config: a JSON file.
        overrides: single config fields.
        contexts: number of held-out contexts that losses are measured on.
        budget: share of the loss gap that a circuit may give up.
        top: how many coordinates of largest attribution to follow.
        detect_every: look for a circuit at every checkpoint, not at the last one alone.
        seed: of the contexts.
        cache: directory for what was measured at each checkpoint; a second call goes on from there.
        device: where to run.
        command: what to print as its origin (default: this call).
        progress: called after each checkpoint with the number done, the number of all, the step, and what was found.

    Returns:
        The trajectory: `.emergence`, `.roles`, `.swaps`, `.save(directory)`.

    Raises:
        CheckpointError: when there are no numbered checkpoints, or one is damaged or does not fit the last.
        OptionError: when no task is on record and none given, or an option is out of range.
        CoordinateError: when the task's vocabulary or length does not fit the model.
    """
    if not 1 <= contexts <= _MOST_CONTEXTS:
        raise OptionError(f"contexts must lie between 1 and {_MOST_CONTEXTS}, got {contexts}")
    if not 0 < budget < 1 or top < 0:
        raise OptionError(f"expected a budget in (0, 1) and top >= 0, got budget={budget} and top={top}")
    resolved = _task(Path(run), task, knobs or {})
    series = _series(run)
    options: dict[str, Any] = {"config": config, "overrides": overrides, "device": device}

    last = open_model(series[-1][1], **options)
    generators = [torch.Generator().manual_seed(seed + k) for k in (0, 1)]
    search = resolved.sample(min(contexts, SEARCH_CONTEXTS), generators[0]).to(last.device)
    drawn = Contexts(search, resolved.sample(contexts, generators[1]).to(last.device))
    projector = ImirProjector.for_task(resolved, min_coordinate=_KEEP_ALL)
    coordinates = project(projector, last, drawn, fit=True)
    space = projector.space_
    circuit = find_circuit(last, coordinates, drawn, budget=budget)
    patterns: Patterns = capture(last, space.paths.heads, drawn.shown).patterns
    units = circuit.units
    reference = _reference_units(resolved, circuit, patterns, drawn)
    places = places_of(units or reference, patterns, drawn.shown)
    kept = PointCache(
        None if cache is None else Path(cache),
        {
            "last": last.info["sha256"],
            "task": [resolved.name, {name: repr(value) for name, value in resolved.knobs.items()}],
            "contexts": [contexts, seed],
            "config": [str(config), {name: repr(value) for name, value in (overrides or {}).items()}],
            "search": [budget, detect_every],
            "version": imir_lens.__version__,
        },
    )

    points: list[Point] = []
    digests: list[str] = []
    for done, (step, file) in enumerate(series, start=1):
        digests.append(sha256_of(file))
        point = kept.get(digests[-1])
        if point is None or len(point.values) != space.size:
            with naming(str(file)):
                model = open_model(file, **options)
                here = project(projector, model, drawn)
                own = find_circuit(model, here, drawn, budget=budget) if detect_every else None
                if done == len(series):
                    own = circuit
                point = kept.add(digests[-1], measure(model, here, drawn, places, circuit=own))
        points.append(point)
        progress(done, len(series), step, point.facts)

    followed = _followed(circuit, reference, points, space, top=top)
    settings = "".join(f", {name}={value!r}" for name, value in resolved.knobs.items())
    call = (
        f"imir_lens.trajectory({str(run)!r}, make_task({resolved.name!r}{settings}), contexts={contexts}, "
        f"budget={budget}, top={top}, detect_every={detect_every}, seed={seed})"
    )
    measured = Measured(
        steps=[step for step, _ in series],
        files=[_name(file, Path(run)) for _, file in series],
        sha256=digests,
        points=[point.facts for point in points],
        values=torch.stack([point.values.float() for point in points]),
        metrics=read_metrics(Path(run)) if Path(run).is_dir() else [],
    )
    data = trajectory_data(
        measured,
        followed,
        space,
        model=last.info,
        task=resolved,
        batch=drawn.test,
        source=str(run),
        options={"contexts": contexts, "budget": budget, "top": top, "detect_every": detect_every},
        cut=(projector.n_cut_, projector.cut_),
        seed=seed,
        command=command or call,
    )
    return Trajectory(data)


def _task(run: Path, task: Task | str | None, knobs: Mapping[str, Any]) -> Task:
    if isinstance(task, Task):
        return task
    recorded: dict[str, Any] = read_record(run).get("task", {}) if (run / "run.json").is_file() else {}
    name = task or recorded.get("name")
    if name is None:
        raise OptionError(f"{run} does not say what it was trained on: give the task")
    return make_task(name, **{**(recorded.get("knobs", {}) if recorded.get("name") == name else {}), **knobs})


def _series(run: str | Path) -> list[tuple[int, Path]]:
    series = checkpoint_series(run)
    step, count = Counter(step for step, _ in series).most_common(1)[0]
    if count > 1:
        raise CheckpointError(f"{run}: {count} checkpoints are of step {step}: give the checkpoints of one run")
    return series


def _name(file: Path, run: Path) -> str:
    return str(file.relative_to(run)) if file.is_relative_to(run) else str(file)


def _reference_units(task: Task, circuit: Circuit, patterns: Patterns, drawn: Contexts) -> tuple[Unit, ...]:
    """Return the task's reference circuit with the last checkpoint's values; none where the model lacks its heads."""
    space = circuit.coordinates.space
    try:
        places = [space.place(name) for name in task.reference_circuit]
    except CoordinateError:
        return ()
    return units_of(circuit.coordinates, places, path_stay(patterns, drawn.shown))


def _followed(
    circuit: Circuit, reference: tuple[Unit, ...], points: list[Point], space: CoordinateSpace, *, top: int
) -> Followed:
    """Say which coordinates to follow, and why."""
    order = circuit.attribution.abs().argsort(descending=True, stable=True)[:top].tolist()
    attributed = [str(space.id(place)) for place in order if float(circuit.attribution[place]) != 0]
    once = dict.fromkeys(unit["id"] for point in points for unit in point.facts["circuit"] or [])
    of_last = {str(unit.id) for unit in circuit.units}
    return Followed(
        circuit=circuit.units,
        reference=reference,
        attributed=tuple(attributed),
        earlier=tuple(name for name in once if name not in of_last),
    )
