"""Partial evidence where no circuit is found: every coordinate of a kind, removed from the real model.

In a deep model with MLPs the coordinates alone may not do the task, and then no circuit can be searched for. What they
name may be needed all the same. So all coordinates of one kind are removed at once, and beside it, as a control, the
same values shuffled among the coordinates of that kind.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from imir_lens.ablation import ablate_mask
from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.evaluation import Score, score_logits
from imir_lens.lens_model import LensModel
from imir_lens.tasks.base import Batch

KINDS = ("offset", "match", "associate", "class", "copy", "recall")


@dataclass(frozen=True)
class KindRemoval:
    """All coordinates of a kind, removed from the model.

    Attributes:
        kind: one of `KINDS`.
        coordinates: how many, zeros not counted.
        model: the model without them.
        shuffled: the model with the same values, shuffled among these coordinates, removed instead.
    """

    kind: str
    coordinates: int
    model: Score
    shuffled: Score


def remove_by_kind(
    model: LensModel, coordinates: Coordinates, batch: Batch, *, seed: int = 0
) -> tuple[KindRemoval, ...]:
    """Remove all coordinates of each kind that the model has from it.

    Args:
        model: the model.
        coordinates: its coordinates.
        batch: test contexts.
        seed: of the shuffle.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for kind in KINDS:
        chosen = _of_kind(coordinates.space, kind).to(coordinates.values.device) & (coordinates.values != 0)
        if not bool(chosen.any()):
            continue
        values = coordinates.values.clone()
        order = torch.randperm(int(chosen.sum()), generator=generator).to(values.device)
        values[chosen] = values[chosen][order]
        shuffled = Coordinates(coordinates.space, values)
        scores = (score_logits(ablate_mask(model, c, chosen, batch), batch) for c in (coordinates, shuffled))
        found.append(KindRemoval(kind, int(chosen.sum()), *scores))
    return tuple(found)


def _of_kind(space: CoordinateSpace, kind: str) -> Bool[Tensor, " coordinate"]:
    mask = torch.zeros(space.size, dtype=torch.bool)
    names = list(space.relations.names)
    matchings = [place for place, name in enumerate(names) if name in space.relations.matchings]
    same = [place for place in matchings if names[place] == "same"]
    tied = [place for place in matchings if names[place] != "same"]
    classes = [place for place in range(len(names)) if place not in matchings]
    for block in space.blocks:
        view = block.view(mask)
        if block.kind == "score":
            if kind == "offset":
                view[..., len(names) :] = True
            elif kind == "match":
                view[..., same] = True
                view[0, 0] = False  # the same token where it stands: no head has moved it
            elif kind == "associate":
                view[..., tied] = True
            elif kind == "class":
                view[..., classes] = True
        elif block.kind == "score_bias" and kind == "class":
            view.fill_(True)
        elif block.kind == "readout" and kind == "copy":
            view[1:, same] = True
        elif block.kind == "readout" and kind == "recall":
            view[..., tied] = True
    return mask & space.active
