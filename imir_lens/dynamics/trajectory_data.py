"""From the measured checkpoints of a run to a trajectory's data, field by field as the schema has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jaxtyping import Float
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.created_with import created_with
from imir_lens.dynamics.carriers import Swap, Track, family_of, follow, swaps_of
from imir_lens.dynamics.emergence import LOSS_RULE, MINIMUM, RULE, Emergence, emergence, loss_drop
from imir_lens.evaluation import bayes_score, chance_score
from imir_lens.roles import Unit, base_of
from imir_lens.tasks.base import Batch, Task
from imir_lens.training.run_directory import Metrics

SCHEMA: Final = "imir-lens/trajectory/1"
SHARE: Final = 0.5


@dataclass(frozen=True)
class Measured:
    """What was measured along a run.

    Attributes:
        steps, files, sha256: of the checkpoints.
        points: their facts.
        values: their coordinates.
        metrics: what training wrote down itself, where it did.
    """

    steps: list[int]
    files: list[str]
    sha256: list[str]
    points: list[dict[str, Any]]
    values: Float[Tensor, "checkpoint coordinate"]
    metrics: list[Metrics]


@dataclass(frozen=True)
class Followed:
    """Which coordinates are followed, and why.

    Attributes:
        circuit: detected at the last checkpoint.
        reference: of the task, with the last checkpoint's values.
        attributed: ids of largest attribution at the last checkpoint.
        earlier: ids of circuits detected at other checkpoints alone.
    """

    circuit: tuple[Unit, ...]
    reference: tuple[Unit, ...]
    attributed: tuple[str, ...]
    earlier: tuple[str, ...]

    @property
    def roles_of(self) -> str:
        """Whose units the roles are those of: of the circuit, or where none was found of the reference."""
        return "circuit" if self.circuit else "reference"


def trajectory_data(
    measured: Measured,
    followed: Followed,
    space: CoordinateSpace,
    *,
    model: Mapping[str, Any],
    task: Task,
    batch: Batch,
    source: str,
    options: Mapping[str, Any],
    cut: tuple[int, float],
    seed: int,
    command: str,
) -> dict[str, Any]:
    """Return a trajectory as plain data.

    Args:
        measured: the checkpoints.
        followed: which coordinates.
        space: of the coordinates.
        model: what is known of the last checkpoint.
        task: the task.
        batch: the contexts that losses were measured on.
        source: the run.
        options: of the call.
        cut: number of paths that were cut, and the largest coordinate that reads through one.
        seed: of the contexts.
        command: what asked for it.
    """
    units = followed.circuit or followed.reference
    tracks = _tracks(units, measured.values, space)
    roles = _roles(tracks, measured.steps)
    return {
        "schema": SCHEMA,
        "created_with": created_with(),
        "command": command,
        "seed": seed,
        "model": dict(model),
        "task": {"name": task.name, "knobs": task.knobs},
        "settings": {**options, "share": SHARE, "minimum": MINIMUM},
        "run": {"source": source, "checkpoints": len(measured.steps)},
        "space": {"coordinates": space.n_active, "paths": len(space.paths), "cut": cut[0], "largest_cut": cut[1]},
        "evaluation": {
            "bayes": bayes_score(task, batch).as_dict(),
            "chance": chance_score(task, batch).as_dict(),
        },
        "checkpoints": [
            {"step": step, "file": file, "sha256": digest, **facts}
            for step, file, digest, facts in zip(
                measured.steps, measured.files, measured.sha256, measured.points, strict=True
            )
        ],
        "coordinates": _coordinates(followed, measured, space),
        "roles_of": followed.roles_of,
        "tracks": [_track(track, measured.steps) for track in tracks],
        "roles": roles,
        "swaps": [_swap(swap) for swap in swaps_of(tracks, measured.steps)],
        "emergence": _summary(roles, [facts["loss"] for facts in measured.points], measured.steps),
        "metrics": [{name: row[name] for name in ("step", "loss", "accuracy")} for row in measured.metrics],
    }


def _tracks(units: Sequence[Unit], values: Tensor, space: CoordinateSpace) -> list[Track]:
    names = [(str(unit.id), unit.role) for unit in units]
    families = {name: family_of(name, space) for name, _ in names}
    members = {member for family in families.values() for member in family}
    series = {member: _numbers(values[:, space.place(member)]) for member in members}
    return follow(names, series, families, share=SHARE)


def _roles(tracks: Sequence[Track], steps: list[int]) -> list[dict[str, Any]]:
    """Return each named role with the sum of the values of what stands for its units."""
    out = []
    for role in sorted({track.role for track in tracks if base_of(track.role) != "auxiliary"}):
        own = [track for track in tracks if track.role == role]
        values = [sum(track.values[at] for track in own) for at in range(len(steps))]
        found = emergence(values, steps, share=SHARE, minimum=MINIMUM)
        out.append(
            {
                "role": role,
                "units": [track.unit for track in own],
                "values": values,
                "final": values[-1],
                "emergence": _when(found),
            }
        )
    return out


def _summary(roles: Sequence[Mapping[str, Any]], losses: list[float], steps: list[int]) -> dict[str, Any]:
    """Say in which order the roles emerged, and how long after the last the loss had fallen by half."""
    emerged = [role for role in roles if role["emergence"] is not None]
    times = sorted({role["emergence"]["step"] for role in emerged})
    order = [[role["role"] for role in emerged if role["emergence"]["step"] == time] for time in times]
    fall = loss_drop(losses, steps)
    complete = bool(roles) and len(emerged) == len(roles)
    return {
        "rule": RULE,
        "loss_rule": LOSS_RULE,
        "order": order,
        "never": [role["role"] for role in roles if role["emergence"] is None],
        "last": times[-1] if complete else None,
        "loss": _when(fall),
        "lag": fall.step - times[-1] if complete and fall is not None else None,
    }


def _coordinates(followed: Followed, measured: Measured, space: CoordinateSpace) -> list[dict[str, Any]]:
    roles = {str(unit.id): unit.role for unit in (*followed.reference, *followed.circuit)}
    groups = {
        "circuit": [str(unit.id) for unit in followed.circuit],
        "reference": [str(unit.id) for unit in followed.reference],
        "attribution": list(followed.attributed),
        "earlier": list(followed.earlier),
    }
    out = []
    for name in dict.fromkeys(name for group in groups.values() for name in group):
        values = _numbers(measured.values[:, space.place(name)])
        out.append(
            {
                "id": name,
                "role": roles.get(name),
                "of": [group for group, names in groups.items() if name in names],
                "values": values,
                "emergence": _when(emergence(values, measured.steps, share=SHARE, minimum=MINIMUM)),
            }
        )
    return out


def _track(track: Track, steps: Sequence[int]) -> dict[str, Any]:
    changes = [
        {"from": steps[at], "id": name}
        for at, name in enumerate(track.carriers)
        if at == 0 or name != track.carriers[at - 1]
    ]
    held = list(track.held)
    return {"unit": track.unit, "role": track.role, "carriers": changes, "held": held, "values": list(track.values)}


def _swap(swap: Swap) -> dict[str, Any]:
    return {
        "step": swap.step,
        "after": swap.after,
        "role": swap.role,
        "former": swap.former,
        "later": swap.later,
        "heads": [list(pair) for pair in swap.heads],
    }


def _when(found: Emergence | None) -> dict[str, int | None] | None:
    return None if found is None else {"step": found.step, "after": found.after}


def _numbers(values: Float[Tensor, " checkpoint"]) -> list[float]:
    """Return float32 values with the digits they have."""
    return [float(f"{value:.7g}") for value in values.tolist()]
