"""The causal check: take the match coordinates of heads out of a running model and see what becomes of repetition.

What is removed is not the head. Its pattern is tilted, `p ∝ p · exp(−Δ)` with Δ its match coordinate
(`imir_lens.atlas.coordinate`): the head no longer looks for its own token among the copied ones, and goes on doing all
else. The measure is the repetition gain, the loss at the first showing of random tokens minus that at the second.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.atlas.coordinate import MatchTerms, Place, places_of
from imir_lens.atlas.explained import ScoreFit
from imir_lens.atlas.patterns import repetition_losses
from imir_lens.atlas.runs import visit_patterns
from imir_lens.atlas.scores import WeightScores
from imir_lens.atlas.statistics import auc
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel

_PROBE = 8  # positions of the contexts that prove that edits act
EFFECT = 0.01  # share of the gain that the removal of one head must cost to count as an effect


@dataclass(frozen=True)
class Gain:
    """Losses at the first and the second showing, in nats."""

    first: float
    second: float

    @property
    def value(self) -> float:
        """The repetition gain."""
        return self.first - self.second


@dataclass(frozen=True, eq=False)
class CausalCheck:
    """What removals cost.

    Attributes:
        top: heads with the highest induction scores.
        random: as many heads drawn from the others above the first layer, or all of them.
        model: gain of the whole model.
        joint: gain with the coordinates or the outputs of all top or all random heads gone, by name.
        coordinate: what removing one head's coordinate costs, in nats of the gain.
        head: what removing one head's output costs.
        auc: of the induction score against which single removals cost at least a share of the gain, by what is removed;
            None where all or none do.
    """

    top: list[Place]
    random: list[Place]
    model: Gain
    joint: dict[str, Gain]
    coordinate: dict[Place, float] = field(default_factory=dict)
    head: dict[Place, float] = field(default_factory=dict)
    auc: dict[str, float | None] = field(default_factory=dict)


class Removal:
    """Runs a model with coordinates or heads removed.

    Args:
        lens: the model.
        scores: what its weights say.
        tokens: repeated tokens.
        sizes: multiplies each head's coordinate; 1 where nothing is given, so that it is what the weights say.
        progress: called after each run.
    """

    def __init__(
        self,
        lens: LensModel,
        scores: WeightScores,
        tokens: Int[Tensor, "context position"],
        *,
        sizes: Float[Tensor, "layer head"] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._lens, self._scores, self._tokens, self._sizes = lens, scores, tokens, sizes
        self._progress = progress
        self._chosen = places_of(scores.paths.chosen)

    def gain(self, *, coordinates: Iterable[Place] = (), heads: Iterable[Place] = (), measured: bool = False) -> Gain:
        """Return the gain of the model without some coordinates, or without the output of some heads.

        Args:
            coordinates: heads whose match coordinate is removed.
            heads: heads whose output is set to zero.
            measured: remove the coordinates at their size in the model, not at that of the weights.
        """
        wanted = sorted(set(coordinates))
        terms = MatchTerms(self._lens.weights, self._scores.moments, self._chosen, self._tokens, wanted)
        by_layer: dict[int, list[int]] = {}
        for layer, head in wanted:
            by_layer.setdefault(layer, []).append(head)
        last = max(by_layer, default=-1)

        def visit(layer: int, pattern: Tensor, scales: Tensor | None) -> Tensor | None:
            if layer > last:
                return None
            new = None
            for head in by_layer.get(layer, []):
                new = pattern.clone() if new is None else new
                delta = terms.term((layer, head), scales)
                if measured and self._sizes is not None:
                    delta = delta * self._sizes[layer, head].to(delta)
                new[:, head] = tilted(pattern[:, head], delta)
            terms.extend(layer, pattern if new is None else new)
            return new

        silenced: dict[int, list[int]] = {}
        for layer, head in heads:
            silenced.setdefault(layer, []).append(head)
        logits = visit_patterns(self._lens, self._tokens, visit, silenced=silenced)
        self._progress()
        return Gain(*repetition_losses(logits, self._tokens))


def tilted(
    pattern: Float[Tensor, "context query key"], delta: Float[Tensor, "context query key"]
) -> Float[Tensor, "context query key"]:
    """Return the pattern whose scores are lower by `delta`; what underflowed to zero stays zero."""
    return (pattern.log() - delta.to(pattern)).softmax(-1)


def causal_check(
    lens: LensModel,
    scores: WeightScores,
    tokens: Int[Tensor, "context position"],
    fit: ScoreFit,
    *,
    count: int,
    every: bool = False,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda step, done: None,
) -> CausalCheck:
    """Remove the coordinates of the top heads, and compare with whole heads and with random heads.

    Args:
        lens: the model.
        scores: what its weights say.
        tokens: repeated tokens, not those that `fit` saw.
        fit: measured sizes of the coordinates.
        count: how many top heads, and how many random ones.
        every: remove every head of the model one by one, rather than these.
        seed: of the draw of random heads.
        progress: told the step and the share of it that is done.

    Raises:
        OptionError: when the model has too few heads above the first layer.
        UnsupportedModelError: when editing a pattern changes nothing.
    """
    ranked = ranked_heads(scores.induction)
    if not 1 <= count <= len(ranked):
        raise OptionError(f"check={count}: expected 1 to {len(ranked)}, the number of heads above the first layer")
    top = ranked[:count]
    generator = torch.Generator().manual_seed(seed)
    others = [ranked[count + k] for k in torch.randperm(len(ranked) - count, generator=generator).tolist()]
    chance = sorted(others[:count])
    single = sorted(ranked) if every else [*top, *chance]
    groups = {"top": top, "random": chance} if chance else {"top": top}
    total, done = 1 + 3 * len(groups) + 2 * len(single), 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("removals", done / total)

    if not lens.hooks_proved:
        lens.check_hook_effect(tokens[:1, :_PROBE])  # an edit that goes nowhere would make everything look harmless
    remove = Removal(lens, scores, tokens, sizes=fit.match_size, progress=step)
    model = remove.gain()
    joint: dict[str, Gain] = {}
    for name, places in groups.items():
        joint[f"{name} coordinates, sizes from weights"] = remove.gain(coordinates=places)
        joint[f"{name} coordinates, sizes measured"] = remove.gain(coordinates=places, measured=True)
        joint[f"{name} heads"] = remove.gain(heads=places)
    coordinate = {place: model.value - remove.gain(coordinates=[place]).value for place in single}
    head = {place: model.value - remove.gain(heads=[place]).value for place in single}
    areas = {name: _auc(scores, costs, model) for name, costs in (("coordinate", coordinate), ("head", head))}
    return CausalCheck(top, chance, model, joint, coordinate, head, areas)


def ranked_heads(score: Float[Tensor, "layer head"]) -> list[Place]:
    """Return the heads above the first layer, highest score first."""
    order = score[1:].flatten().argsort(descending=True, stable=True).tolist()
    return [(place // score.shape[1] + 1, place % score.shape[1]) for place in order]


def _auc(scores: WeightScores, costs: dict[Place, float], model: Gain) -> float | None:
    places = list(costs)
    score = torch.stack([scores.induction[place] for place in places]).cpu()
    matters: Bool[Tensor, " head"] = torch.tensor([costs[place] >= EFFECT * abs(model.value) for place in places])
    return auc(score, matters)
