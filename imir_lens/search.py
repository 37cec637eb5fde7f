"""The search for a minimal circuit among coordinates: ranking, prefix, backward elimination.

Everything is measured on the surrogate, whose loss is cheap; `Meter` counts what was spent.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.attribution import attribute
from imir_lens.evaluation import Score, score_logits
from imir_lens.ids import Head
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch

_log = logging.getLogger(__name__)

_ATTRIBUTION_CONTEXTS = 128


@dataclass
class Meter:
    """Scores subsets of coordinates on the search contexts, counting evaluations and gradient passes."""

    surrogate: Surrogate
    values: Float[Tensor, " coordinate"]
    batch: Batch
    evaluations: int = 0
    gradient_passes: int = 0
    _seen: dict[bytes, Score] = field(default_factory=dict, repr=False)

    def score(self, kept: Bool[Tensor, " coordinate"]) -> Score:
        """Score the surrogate with only the kept coordinates (each subset is run once)."""
        kept = kept & (self.values != 0)
        key = kept.nonzero().cpu().numpy().tobytes()
        if key not in self._seen:
            self.evaluations += 1
            with torch.no_grad():
                logits = self.surrogate.logits(torch.where(kept, self.values, 0.0), self.batch)
            self._seen[key] = score_logits(logits, self.batch)
        return self._seen[key]

    def attribution(self, chosen: Bool[Tensor, " coordinate"], *, points: int = 5) -> Float[Tensor, " coordinate"]:
        """Attribute the loss to the chosen coordinates (on some of the contexts: it only ranks)."""
        self.gradient_passes += points
        batch = self.batch[:_ATTRIBUTION_CONTEXTS]
        return attribute(self.surrogate, self.values, batch, chosen=chosen, points=points)

    def ranking(self, attribution: Float[Tensor, " coordinate"], chosen: Bool[Tensor, " coordinate"]) -> list[int]:
        """Return the chosen places by |attribution|, most first.

        By size, not by sign: a gate can look harmful on the way from nothing to all, and still be needed.
        """
        order = attribution.abs().masked_fill(~chosen, -torch.inf).argsort(descending=True, stable=True)
        return order[: int(chosen.sum())].tolist()

    def heads_of(self, place: int) -> set[Head]:
        """Return the heads that a coordinate acts in or reads through."""
        unit = self.surrogate.space.id(place)
        return {head for path in unit.paths for head in path.heads} | ({unit.head} if unit.head else set())

    def answers(self, places: Sequence[int]) -> bool:
        """Whether any of these coordinates writes to the logits; without one the others do nothing."""
        return any(self.surrogate.space.id(place).head is None for place in places)

    def mask(self, places: Sequence[int]) -> Bool[Tensor, " coordinate"]:
        """Return the mask of some places."""
        mask = torch.zeros_like(self.values, dtype=torch.bool)
        mask[list(places)] = True
        return mask


def minimal_subset(
    meter: Meter, ranking: Sequence[int], everything: Bool[Tensor, " coordinate"], budget: float
) -> tuple[list[int], float]:
    """Return a 1-minimal subset of a ranking within the loss budget, best first, and the loss that was allowed.

    `allowed = best + budget · (nothing − best)`, with best the loss of everything or, where coordinates that hurt make
    it worse than that, of the best prefix seen. Prefixes of 1, 2, 4, … are tried until one passes and doubling it gains
    nothing more; then the smallest passing prefix is found by bisection, heads that can go as a whole are dropped, and
    backward elimination does the rest.

    Args:
        meter: scores subsets.
        ranking: places, most important first.
        everything: the coordinates that take part: exactly those of the ranking.
        budget: share of the loss gap that may be given up.
    """
    nothing, best = meter.score(torch.zeros_like(everything)).loss, meter.score(everything).loss
    losses = {0: nothing, len(ranking): best}
    size = 1
    while size < len(ranking):
        losses[size] = meter.score(meter.mask(ranking[:size])).loss
        half_passes = losses[size // 2] <= _allowed(best, nothing, budget)
        gained = losses[size] < best - budget * (nothing - best)
        best = min(best, losses[size])
        if half_passes and not gained:
            break
        size *= 2
    allowed = _allowed(best, nothing, budget)
    high = min(size for size, loss in losses.items() if loss <= allowed)
    low = max((size for size in losses if size < high), default=0)

    def passes(places: list[int]) -> bool:
        return meter.score(meter.mask(places)).loss <= allowed

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(list(ranking[:middle])) else (middle, high)
    return eliminate(_without_spare_heads(meter, list(ranking[:high]), passes), passes), allowed


def _without_spare_heads(meter: Meter, kept: list[int], passes: Callable[[list[int]], bool]) -> list[int]:
    """Drop, head by head, all members that act in a head or read through it, if all of them can go at once.

    Of two circuits that do the same, one can go as a whole but not in part: while it is read, half of it does harm.
    Heads whose best member is ranked worst come first. Among two heads there is hardly a spare one, and no try is made.
    """
    heads = {place: meter.heads_of(place) for place in kept}
    best: dict[Head, int] = {}
    for rank, place in enumerate(kept):
        for head in heads[place]:
            best.setdefault(head, rank)
    for head in sorted(best, key=best.__getitem__, reverse=True) if len(best) > 2 else ():
        fewer = [place for place in kept if head not in heads[place]]
        if len(fewer) < len(kept) and meter.answers(fewer) and passes(fewer):
            kept = fewer
    return kept


def _allowed(best: float, nothing: float, budget: float) -> float:
    return best + budget * max(0.0, nothing - best)


def eliminate(kept: list[int], passes: Callable[[list[int]], bool]) -> list[int]:
    """Drop members, worst-ranked first, in halving chunks, until no single one can go.

    Costs about `k · log(n/k)` evaluations for k survivors of n. Exact: on return, every single removal fails.
    """
    size = max(1, len(kept) // 2)
    while True:
        changed = False
        stop = len(kept)
        while stop > 0:
            start = max(0, stop - size)
            fewer = kept[:start] + kept[stop:]
            if fewer and passes(fewer):
                kept, changed = fewer, True
            stop = start
        if size > 1:
            size = max(1, size // 2)
        elif not changed:
            return kept
