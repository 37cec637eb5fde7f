"""The verdict: which mechanism, on what evidence, and with what reservations.

Evidence levels build on one another; the level is the last one reached without a gap:

1. `weights only`: the coordinates are there;
2. `single ablation`: each role, removed from the real model, costs behaviour;
3. `joint ablation`: without the whole circuit the behaviour is gone (necessity);
4. `sufficiency and necessity`: with everything else removed it is still there;
5. `stability`: resampled contexts give the same circuit.

A mechanism is only named from level 3 on: "not detected" is a result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from imir_lens.detection import Circuit
from imir_lens.evaluation import Score
from imir_lens.evidence import Evidence
from imir_lens.kinds import KindRemoval
from imir_lens.mechanisms import mechanism_of

LEVELS = ("weights only", "single ablation", "joint ablation", "sufficiency and necessity", "stability")
FEWEST_CONTEXTS = 32  # for the search; fewer resample to themselves, and one lucky context is not evidence
_SOLVES = 0.5  # share of the accuracy between chance and Bayes from which we say that a model does the task
_KEEPS = 0.5  # share of the model's accuracy over chance that must be lost (necessity) or kept (sufficiency)
_COSTS = 0.05  # share of the model's loss gap to chance that a role's removal must cost to count
_STABLE = 0.8  # mean Jaccard index over bootstrap samples
_NOTICED = 0.05  # nats that removing all coordinates of a kind must cost at least, twice over, to be mentioned
_WELL = 0.9  # share of the accuracy between chance and Bayes below which a model does the task "only in part"


@dataclass(frozen=True)
class Verdict:
    """Mechanism (in_context, in_weights, mixed or not_detected), evidence level, one sentence, reservations."""

    mechanism: str
    evidence_level: str
    text: str
    caveats: tuple[str, ...]


def judge(
    circuit: Circuit,
    evidence: Evidence,
    *,
    task: str,
    contexts: int,
    bayes: Score,
    chance: Score,
    stability: float | None,
    kinds: Sequence[KindRemoval] = (),
    notes: Sequence[str] = (),
) -> Verdict:
    """Judge a circuit by its evidence.

    Args:
        circuit: as detected.
        evidence: ablations in the real model.
        task: the task's name, for the text.
        contexts: how many contexts the search had; with fewer than 32 nothing is concluded.
        bayes: the optimal predictor's score on the same contexts.
        chance: the context-free predictor's score.
        stability: mean Jaccard index over bootstrap samples (None: not measured).
        kinds: what removing all coordinates of a kind costs, where no circuit was found.
        notes: further reservations from the analysis (paths that were cut, say).
    """
    gain, most = evidence.model.accuracy - chance.accuracy, bayes.accuracy - chance.accuracy
    mechanism = mechanism_of(circuit)
    level = _level(circuit, evidence, chance, gain, stability)
    model = f"accuracy {evidence.model.accuracy:.3f}; chance {chance.accuracy:.3f}, best possible {bayes.accuracy:.3f}"
    negative, held = None, LEVELS[0]
    if not does_task(evidence.model, bayes, chance):
        negative = f"the model does not do {task} ({model}), so there is no mechanism to find."
    elif contexts < FEWEST_CONTEXTS:
        negative = f"{contexts} contexts are too few to tell; use at least {FEWEST_CONTEXTS}."
    elif mechanism is None:
        found = ", ".join(role for role in circuit.by_role() if role != "auxiliary") or "none of its roles"
        negative = (
            f"the model does {task} (accuracy {evidence.model.accuracy:.3f}), but the coordinates do not "
            f"name how (found: {found}; their surrogate reaches accuracy {evidence.projection.accuracy:.3f})."
            f"{_partial(kinds, evidence)}"
        )
    elif level == "weights only":
        negative = (
            f"the weights look like {mechanism.words}, but a role removed from the model alone costs it less than "
            f"{_COSTS:.0%} of its loss gap to chance ({_cheapest(evidence)})."
        )
    elif level == "single ablation":
        held = level
        negative = (
            f"the weights look like {mechanism.words}, but ablating those coordinates does not take the behaviour away "
            f"(accuracy {evidence.model.accuracy:.3f}, without them {evidence.without_circuit.accuracy:.3f})."
        )
    caveats = [*_caveats(circuit, evidence, stability), *notes]
    if negative is not None or mechanism is None:
        return Verdict("not_detected", held, f"Not detected: {negative}", tuple(caveats))
    if gain < _WELL * most:
        caveats.insert(0, f"The model does {task} only in part ({model}).")
    count = len(circuit.units)
    text = (
        f"The model does {task} {mechanism.words}: {_list_roles(circuit)}. Without "
        f"{'this coordinate' if count == 1 else f'these {count} coordinates'} "
        f"accuracy falls from {evidence.model.accuracy:.3f} to {evidence.without_circuit.accuracy:.3f}; "
        f"with {'it' if count == 1 else 'them'} alone it is {evidence.circuit.accuracy:.3f}."
    )
    return Verdict(mechanism.name, level, text, tuple(caveats))


def does_task(model: Score, bayes: Score, chance: Score) -> bool:
    """Whether a model does a task: half of the way in accuracy from chance to the best possible."""
    gain = model.accuracy - chance.accuracy
    return gain > 0 and gain >= _SOLVES * (bayes.accuracy - chance.accuracy)


def _partial(kinds: Sequence[KindRemoval], evidence: Evidence) -> str:
    """Say which kinds of coordinates the model needs, and more than the same values elsewhere."""
    needed = [
        f"{one.kind} ({one.model.accuracy:.3f}; shuffled {one.shuffled.accuracy:.3f})"
        for one in kinds
        if one.model.loss - evidence.model.loss > 2 * max(one.shuffled.loss - evidence.model.loss, _NOTICED)
    ]
    if not needed:
        return ""
    return f" In part: accuracy falls when all coordinates of a kind are removed from the model: {', '.join(needed)}."


def suffices(alone: Score, model: Score, chance: Score) -> bool:
    """Whether a part of the model, alone, keeps at least half of the accuracy that the model has over chance."""
    gain = model.accuracy - chance.accuracy
    return gain > 0 and alone.accuracy - chance.accuracy >= _KEEPS * gain


def _cheapest(evidence: Evidence) -> str:
    """Say which role's removal costs the model least."""
    named = {role: removal.model.loss for role, removal in evidence.roles.items() if role != "auxiliary"}
    role = min(named, key=named.__getitem__)
    return f"{role}: loss {evidence.model.loss:.3g} → {named[role]:.3g} nats"


def _level(circuit: Circuit, evidence: Evidence, chance: Score, gain: float, stability: float | None) -> str:
    gap = max(chance.loss - evidence.model.loss, 0.0)
    named = [removal.model for role, removal in evidence.roles.items() if role != "auxiliary"]
    lost = evidence.model.accuracy - evidence.without_circuit.accuracy
    # Where one mechanism backs another up, no role need cost anything alone: that is what the joint ablation is for.
    costly = all(score.loss - evidence.model.loss > _COSTS * gap for score in named) or bool(circuit.backups)
    reached = (
        bool(circuit.units),
        bool(named) and costly,
        bool(circuit.units) and gain > 0 and lost >= _KEEPS * gain,
        suffices(evidence.circuit, evidence.model, chance),
        stability is not None and stability >= _STABLE,
    )
    level = LEVELS[0]
    for name, holds in zip(LEVELS, reached, strict=True):
        if not holds:
            break
        level = name
    return level


def _list_roles(circuit: Circuit) -> str:
    parts = []
    for role, units in circuit.by_role().items():
        if role == "auxiliary":
            parts.append(f"{len(units)} auxiliary direction{'s' if len(units) > 1 else ''}")
        else:
            places = sorted({str(unit.id.head) if unit.id.head else f"via {unit.id.key}" for unit in units})
            parts.append(f"{role} ({', '.join(places)})")
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _caveats(circuit: Circuit, evidence: Evidence, stability: float | None) -> list[str]:
    out = []
    if evidence.projection.loss > 2 * evidence.model.loss + 0.05:
        out.append(
            f"The coordinates alone do worse than the model (loss {evidence.projection.loss:.3g} against "
            f"{evidence.model.loss:.3g} nats): part of the mechanism lies outside them."
        )
    if circuit.units and evidence.circuit.accuracy < 0.9 * evidence.model.accuracy:
        out.append(
            f"With everything outside the circuit removed the model's accuracy is {evidence.circuit.accuracy:.3f}, not "
            f"{evidence.model.accuracy:.3f}: the rest is not idle."
        )
    if circuit.backups:
        out.append(
            f"{len(circuit.backups)} unit(s) are backups: the behaviour survives in the surrogate without what they "
            f"duplicate ({', '.join(circuit.backups[:4])}{', …' if len(circuit.backups) > 4 else ''})."
        )
    if circuit.units and stability is not None and stability < _STABLE:
        out.append(f"Resampled contexts give a different circuit (mean Jaccard index {stability:.2f}).")
    return out
