"""Which coordinates to train: the roles of a task's reference circuit, or any ids; and the way back into weights."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import CoordinateId
from imir_lens.models.planting import plant, plant_disentangled
from imir_lens.roles import ASSOCIATIONS, BASE_ROLES, base_role
from imir_lens.tasks.base import Task

TRAINED_ROLES = ("alpha", "beta", "gamma", "delta")


def reference_roles(task: Task) -> dict[str, tuple[str, ...]]:
    """Return the ids of each role in a task's reference circuit, and delta where the task has an association.

    The reference circuit is the least that solves a task, so it leaves out a memory that in-context learning makes
    superfluous; delta is then the `assoc` readout of the query's own token. `same` between tokens where they stand
    pushes a head off the query itself there: auxiliary.
    """
    units = [CoordinateId.parse(text) for text in task.reference_circuit]
    signed = [(unit, -1.0 if unit.is_score and _stands(unit) else 1.0) for unit in units]
    found: dict[str, list[str]] = {role: [] for role in BASE_ROLES}
    for unit, value in signed:
        role = base_role(unit, value, signed, lambda path: 0.0 if path.heads else 1.0)
        found[role].append(str(unit))
    if not found["delta"]:
        found["delta"] = [f"readout/via:res/{name}" for name in task.relations.matchings if name in ASSOCIATIONS[:1]]
    return {role: tuple(ids) for role, ids in found.items() if ids}


def mask_of_ids(space: CoordinateSpace, ids: Iterable[str]) -> Bool[Tensor, " coordinate"]:
    """Return the mask of some coordinates.

    Raises:
        CoordinateError: when an id does not parse or the space does not have it.
    """
    mask = torch.zeros(space.size, dtype=torch.bool)
    mask[[space.place(name) for name in ids]] = True
    return mask


def mask_of_roles(
    task: Task, space: CoordinateSpace, roles: Iterable[str] = TRAINED_ROLES
) -> Bool[Tensor, " coordinate"]:
    """Return the mask of the coordinates that hold some roles in a task's reference circuit.

    Args:
        task: gives the circuit.
        space: the coordinates.
        roles: of alpha, beta, gamma, delta, auxiliary; those that the circuit lacks add nothing.

    Raises:
        OptionError: for an unknown role.
        CoordinateError: when the space has too few layers, heads or paths for the circuit.
    """
    found = reference_roles(task)
    for role in roles:
        if role not in BASE_ROLES:
            raise OptionError(f"unknown role {role!r}; {did_you_mean(role, BASE_ROLES)}")
    return mask_of_ids(space, [name for role in roles for name in found.get(role, ())])


def lift(task: Task, coordinates: Coordinates, *, disentangled: bool = False) -> nn.Module:
    """Write coordinates into the weights of a new model that has nothing else; projecting it gives them back.

    Args:
        task: gives relations, vocabulary and context length.
        coordinates: what the model is to have; zeros take no room.
        disentangled: a `DisentangledTransformer`, else an attention-only `ImirTransformer` of the least widths.

    Raises:
        CoordinateError: when the coordinates do not fit the task.
    """
    paths, values = coordinates.space.paths, coordinates.values
    circuit = {str(coordinates.space.id(place)): float(values[place]) for place in values.nonzero().flatten().tolist()}
    make = plant_disentangled if disentangled else plant
    return make(task, circuit, n_layers=paths.n_layers, n_heads=paths.n_heads)


def _stands(unit: CoordinateId) -> bool:
    return unit.relation.startswith("same") and not any(path.heads for path in unit.paths)
