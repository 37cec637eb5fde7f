"""Labels of heads, each with its evidence and the thresholds it had to pass.

A label from the weights needs both an effect (z at least `EFFECT` standard deviations) and significance: the contrast
in standard deviations of what chance gives must be one that no head of the whole model reaches by chance, with
probability 1 − `ERROR` (Bonferroni over all heads and kinds of label). A previous-token head's kernel must also peak at
1, and an induction head must match through a previous-token head, and better than with its own token. A label from
patterns needs a share of attention.
"""

from dataclasses import dataclass
from typing import Final

from imir_lens.atlas.patterns import PatternMasses
from imir_lens.atlas.scores import WeightScores
from imir_lens.atlas.statistics import corrected_threshold
from imir_lens.ids import Head

EFFECT: Final = 2.0
ERROR: Final = 0.01
MASS: Final = 0.1
MASS_ALONE: Final = 0.5
SHARE: Final = 0.3
_KINDS: Final = 4  # kinds of label that the weights give


@dataclass(frozen=True)
class Label:
    """One label of one head.

    Attributes:
        name: `previous_token`, `induction`, `duplicate_token`, `copying` or `sink`.
        source: `weights` or `patterns`.
        evidence: the numbers behind it.
    """

    name: str
    source: str
    evidence: str


@dataclass(frozen=True)
class Thresholds:
    """What a label needs.

    Attributes:
        effect: least z.
        chance: least contrast in standard deviations of chance.
        mass: least attention one back by the kernel, for `previous_token`.
        mass_alone: attention one back by the kernel that needs no z: half of it is an effect, however much tokens vary.
        share: least mean attention in the captured patterns.
        n_tests: how many tests `chance` is corrected for.
        error: probability that chance gives any label at all.
    """

    effect: float
    chance: float
    mass: float
    mass_alone: float
    share: float
    n_tests: int
    error: float


def thresholds(n_heads: int, *, effect: float = EFFECT, share: float = SHARE) -> Thresholds:
    """Return the thresholds for a model with a number of heads."""
    n_tests = n_heads * _KINDS
    return Thresholds(effect, corrected_threshold(n_tests, error=ERROR), MASS, MASS_ALONE, share, n_tests, ERROR)


def labels_of(
    scores: WeightScores, masses: PatternMasses | None, needed: Thresholds, layer: int, head: int
) -> list[Label]:
    """Return the labels of one head: those of the weights, then those of the patterns."""
    at = layer, head
    kernels, matching = scores.kernels, scores.matching
    previous, mass = (float(kernels.z[at]), float(kernels.chance[at])), float(kernels.mass[at])
    copied = float(matching.copied.z[at]), float(matching.copied.chance[at])
    direct = float(matching.direct.z[at]), float(matching.direct.chance[at])
    copying = float(scores.copying.z[at]), float(scores.copying.chance[at])

    def passes(score: tuple[float, float]) -> bool:
        return score[0] >= needed.effect and score[1] >= needed.chance

    found = []
    if is_copyer(scores, needed, layer, head):
        found.append(Label("previous_token", "weights", f"one back: z {_z(previous)}, attention {mass:.2f}"))
    through = _through_copyers(scores, needed, layer, head)
    if passes(copied) and copied[0] > direct[0] and through:
        words = f"matches copied tokens: z {_z(copied)}; own: z {direct[0]:.1f}; through {', '.join(through[:3])}"
        found.append(Label("induction", "weights", words))
    if passes(direct) and direct[0] >= copied[0]:
        found.append(
            Label("duplicate_token", "weights", f"matches own tokens: z {_z(direct)}; copied: {copied[0]:.1f}")
        )
    if passes(copying):
        found.append(Label("copying", "weights", f"raises the token attended to: z {_z(copying)}"))
    if masses is not None:
        for name, share in masses.of(layer, head).items():
            if share >= needed.share:
                found.append(Label(name, "patterns", f"{share:.2f} of its attention"))
    return found


def is_copyer(scores: WeightScores, needed: Thresholds, layer: int, head: int) -> bool:
    """Whether the weights make a head a previous-token head: its offset kernel peaks at 1, strongly enough."""
    kernels, at = scores.kernels, (layer, head)
    mass, significant = float(kernels.mass[at]), float(kernels.chance[at]) >= needed.chance
    strong = mass >= needed.mass_alone or (mass >= needed.mass and float(kernels.z[at]) >= needed.effect)
    return int(kernels.peak[at]) == 1 and significant and strong


def _through_copyers(scores: WeightScores, needed: Thresholds, layer: int, head: int) -> list[str]:
    """Return the previous-token heads through which a head matches, strongest first."""
    z = scores.matching.through[layer, head]
    places = [divmod(int(k), z.shape[1]) for k in z.flatten().argsort(descending=True)]
    matched = [place for place in places if float(z[place]) > 0]
    return [str(Head(*place)) for place in matched if is_copyer(scores, needed, *place)]


def _z(score: tuple[float, float]) -> str:
    return f"{score[0]:.1f} ({score[1]:.3g} over chance)"
