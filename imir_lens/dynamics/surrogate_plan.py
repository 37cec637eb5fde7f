"""Which terms a chosen set of coordinates adds to scores and logits, sorted out once and used at every step.

The chosen coordinates, in the order of their places, fall into sections: what one pair of paths (or one path, at the
readout) holds of one kind. A vector of chosen values is split into sections in one operation.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.errors import CoordinateError
from imir_lens.ids import Head
from imir_lens.terms import Reads


@dataclass(frozen=True)
class Section:
    """A run of chosen coordinates of one kind between one pair of paths.

    Attributes:
        kind: `matching`, `contrast` or `offset` (in scores: of query path u and key path v; at the readout: of path v),
            or `bias` (key bias of path v; at the readout, of the output itself).
        u, v: places of the paths.
        which: for each coordinate, the place of its matching, (query class, key class), offset, or class.
    """

    kind: str
    u: int
    v: int
    which: tuple[tuple[int, ...], ...]


@dataclass
class SurrogatePlan:
    """The sections of a chosen set of coordinates.

    Attributes:
        space: which coordinates there are.
        places: of the chosen ones in the flat vector, increasing.
        reads: which paths they read.
        sections: where the values of each kind lie, in order.
        by_head: head → indices of its sections; None: those of the readout.
    """

    space: CoordinateSpace
    places: Tensor
    reads: Reads
    sections: list[Section] = field(default_factory=list)
    by_head: dict[Head | None, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, space: CoordinateSpace, chosen: Bool[Tensor, " coordinate"]) -> "SurrogatePlan":
        """Sort the chosen coordinates into sections.

        Raises:
            CoordinateError: when the mask has another size, or chooses a coordinate that cannot act.
        """
        if chosen.shape != (space.size,):
            raise CoordinateError(f"expected a mask of {space.size} coordinates, found shape {tuple(chosen.shape)}")
        chosen = chosen.cpu()
        if idle := (chosen & ~space.active).nonzero().flatten().tolist():
            raise CoordinateError(f"{space.id(idle[0])} cannot act here: choose among the space's active coordinates")
        plan = cls(space, chosen.nonzero().flatten(), Reads.of(space, chosen))
        for block in space.blocks:
            found: dict[tuple[str, int, int], list[tuple[int, ...]]] = {}
            for at in chosen[block.start : block.stop].view(block.shape).nonzero().tolist():
                key, which = plan._describe(block.kind, at)
                found.setdefault(key, []).append(which)
            for (kind, u, v), which_all in found.items():
                plan.by_head.setdefault(block.head, []).append(len(plan.sections))
                plan.sections.append(Section(kind, u, v, tuple(which_all)))
        return plan

    def split(self, values: Float[Tensor, "run chosen"]) -> tuple[Float[Tensor, "run some"], ...]:
        """Split the chosen values into sections."""
        return values.split([len(section.which) for section in self.sections], dim=1)

    def _describe(self, block: str, at: list[int]) -> tuple[tuple[str, int, int], tuple[int, ...]]:
        """Kind, u, v and which of one coordinate; places within a block increase in the order of these."""
        relations = self.space.relations
        n_matchings, n_free = len(relations.matchings), len(relations.free_classes)
        if block == "score_bias":
            return ("bias", 0, at[0]), (at[1],)
        if block == "readout_bias":
            return ("bias", 0, 0), (at[0],)
        u, v, relation = at if block == "score" else [0, *at]
        if relation < n_matchings:
            return ("matching", u, v), (relation,)
        if relation < len(relations.names):
            return ("contrast", u, v), divmod(relation - n_matchings, n_free)
        return ("offset", u, v), (relation - len(relations.names) - self.space.n_positions + 1,)


def offset_basis(offsets: tuple[int, ...], n_positions: int) -> Float[Tensor, "offset query key"]:
    """One 0/1 matrix for each offset: 1 where the key is that many positions before the query."""
    steps = torch.arange(n_positions)
    back = steps.unsqueeze(1) - steps
    return (back == torch.tensor(offsets).view(-1, 1, 1)).float()
