"""Induction circuits on different pairs of layers of one model: the rivals of an initialisation experiment.

With one head a layer, a circuit is a pair l < m of layers: head l copies the previous token, head m matches the query's
token with it and is read out. In three layers there are three, named in this order::

    A = (L0H0, L1H0)      B = (L0H0, L2H0)      C = (L1H0, L2H0)

Each needs its own alpha, beta and gamma, but some are shared: A and B have alpha of layer 0 in common, B and C gamma of
layer 2. Only beta, through head l in head m, belongs to one circuit alone: this edge from l to m tells the circuits
apart. All parts together, seven in three layers, are the coordinates that vary at the start; what keeps a matching head
off the token itself (`not_itself`) starts at zero and is trained with them.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.ids import CoordinateId, Head
from imir_lens.models.constructions import induction_circuit
from imir_lens.paths import PathTable
from imir_lens.tasks.base import Task

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_LAYERS = 7  # of which there are 21 pairs


class RivalCircuits:
    """All induction circuits of a model with one head a layer, on one task.

    Args:
        task: gives relations, context length and query positions.
        n_layers: L, at least 2.

    Attributes:
        space: the coordinates of the model.
        heads: of each circuit, (alpha's, beta's).
        names: of the circuits, A, B, C, …
        parts: name → coordinate id of what varies at the start: `alpha_0`, …, `beta_01`, …, `gamma_1`, …
        auxiliaries: ids of what is trained besides.

    Raises:
        OptionError: for fewer than 2 layers, or more than 7.
    """

    def __init__(self, task: Task, n_layers: int = 3) -> None:
        if not 2 <= n_layers <= _MOST_LAYERS:
            raise OptionError(f"circuits on pairs of layers need 2 to {_MOST_LAYERS} layers: n_layers={n_layers}")
        self.task, self.n_layers = task, n_layers
        table = PathTable.full(n_layers, 1)
        self.space = CoordinateSpace(table, task.relations, task.n_positions, task.query_positions)
        self.heads = tuple((Head(low, 0), Head(high, 0)) for low, high in combinations(range(n_layers), 2))
        self.names = tuple(_LETTERS[: len(self.heads)])
        found: dict[str, CoordinateId] = {}
        auxiliaries: dict[CoordinateId, None] = {}
        for low, high in self.heads:
            alpha, beta, not_itself, gamma = induction_circuit(heads={"alpha": str(low), "beta": str(high)})
            found[f"alpha_{low.layer}"] = CoordinateId.parse(alpha)
            found[f"beta_{low.layer}{high.layer}"] = CoordinateId.parse(beta)
            found[f"gamma_{high.layer}"] = CoordinateId.parse(gamma)
            auxiliaries[CoordinateId.parse(not_itself)] = None
        self.parts: Mapping[str, CoordinateId] = {name: found[name] for name in sorted(found)}
        self.auxiliaries = tuple(auxiliaries)

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def places(self) -> Int[Tensor, " part"]:
        """Places of the parts in the flat vector, in the order of `parts`."""
        return torch.tensor([self.space.place(identifier) for identifier in self.parts.values()])

    @cached_property
    def chosen(self) -> Bool[Tensor, " coordinate"]:
        """Mask of what is trained: the parts and the auxiliaries."""
        mask = torch.zeros(self.space.size, dtype=torch.bool)
        mask[self.places] = True
        mask[[self.space.place(identifier) for identifier in self.auxiliaries]] = True
        return mask

    @cached_property
    def own(self) -> Int[Tensor, "circuit 3"]:
        """Where in `parts` each circuit has its alpha, beta and gamma."""
        order = list(self.parts)
        return torch.tensor(
            [
                [order.index(name) for name in (f"alpha_{l.layer}", f"beta_{l.layer}{h.layer}", f"gamma_{h.layer}")]
                for l, h in self.heads  # noqa: E741
            ]
        )

    @cached_property
    def edges(self) -> Bool[Tensor, "circuit coordinate"]:
        """Masks of what head m's scores read from head l directly, on either side: paths that end with l.

        Among the coordinates of `chosen` this is the circuit's beta alone.
        """
        masks = torch.zeros(len(self), self.space.size, dtype=torch.bool)
        for circuit, (low, high) in enumerate(self.heads):
            from_low = torch.tensor([path.heads[-1:] == (low,) for path in self.space.paths.paths])
            for kind in ("score", "score_bias"):
                block = self.space.block(kind, high)
                view = masks[circuit, block.start : block.stop].view(block.shape)
                reads = from_low[: block.shape[0]]
                view |= (reads.unsqueeze(1) | reads).unsqueeze(2) if kind == "score" else reads.unsqueeze(1)
        return masks & self.space.active

    def column(self, part: str) -> int:
        """Return where a part stands in `parts`.

        Raises:
            CoordinateError: when there is no such part.
        """
        if part not in self.parts:
            raise CoordinateError(f"unknown part {part!r}: expected one of {', '.join(self.parts)}")
        return list(self.parts).index(part)

    def start(self, **values: float) -> Float[Tensor, " part"]:
        """Return one start: the given parts, and zero in all others.

        Raises:
            CoordinateError: when there is no such part.
        """
        start = torch.zeros(len(self.parts))
        for part, value in values.items():
            start[self.column(part)] = value
        return start

    def random_starts(
        self, count: int, generator: torch.Generator, *, low: float, high: float
    ) -> Float[Tensor, "run part"]:
        """Draw starts uniformly from a box around or beside zero."""
        return low + (high - low) * torch.rand(count, len(self.parts), generator=generator)

    def initial(self, starts: Float[Tensor, "run part"]) -> Float[Tensor, "run coordinate"]:
        """Return starts as flat vectors of coordinates.

        Raises:
            CoordinateError: when there are not as many numbers as parts.
        """
        if starts.ndim != 2 or starts.shape[1] != len(self.parts):
            raise CoordinateError(f"expected starts [run, {len(self.parts)}], found shape {tuple(starts.shape)}")
        values = starts.new_zeros(len(starts), self.space.size)
        values[:, self.places] = starts
        return values

    def sizes(self, starts: Float[Tensor, "run part"]) -> Float[Tensor, "run circuit"]:
        """Return the size of each circuit: the norm of its own alpha, beta and gamma."""
        return starts[:, self.own].norm(dim=2)
