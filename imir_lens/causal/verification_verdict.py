"""The verdict of a verification: is it Bayesian averaging over parents, on what evidence, with what reservations.

Levels build on one another; the level is the last one reached without a gap:

1. `behaviour`: the model predicts the query by what the examples tell;
2. `attention`: one head's attention is close to the posterior over parents, and moves with it when examples change;
3. `parameters`: the weights compare tokens by log pi, each example with itself;
4. `predicted ablations`: what removals cost is what the posterior without the same thing says.

`causal_bma` is named from level 2 on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from imir_lens.causal.agreement import Agreement
from imir_lens.causal.attention_match import AttentionMatch
from imir_lens.causal.behaviour import Losses
from imir_lens.causal.kernel_evidence import KernelEvidence

LEVELS = ("behaviour", "attention", "parameters", "predicted ablations")
NO_LEVEL = "none"
FEWEST_CONTEXTS = 32  # means over fewer say little

# Half of what inference gains on the query. Not more: even exact attention, read out through a softmax, mixes parents
# geometrically where BMA mixes arithmetically, which costs up to a tenth of the gain with few examples.
PREDICTS = 0.5
# Of the information on the parent in the examples. Attention of the most likely parent alone fails: its KL is large.
POSTERIOR = 0.9
# Of the posterior's movement when half of the examples are exchanged. Attention that stays where it was has 0.
FOLLOWS = 0.8
# Of a head's attention must lie on candidates: what lies elsewhere picks no parent.
ON_CANDIDATES = 0.5
# Column error as a share of the zero kernel's: three quarters of pi are in the weights, column by column.
COLUMN = 0.25
# Of the way from chance, 1/L, to a kernel that compares each example with itself and nothing else.
DIAGONAL = 0.5
# For vectors: cosine with A. Random d × d forms have about 1/d.
ALIGNED = 0.9
# Share of the predicted changes that is found in the model.
PREDICTED = 0.8
_ROUNDING = 1e-6  # what float32 leaves of a zero
_SHARP = 1.25  # scales beyond this, or below its inverse, earn a caveat


@dataclass(frozen=True)
class Check:
    """One thing that was asked.

    Attributes:
        level: the evidence level that needs it.
        asked: what should hold.
        found: the measured value; None where it could not be measured.
        threshold: what it is compared with.
        at_least: whether it must reach the threshold; else it must not exceed it.
    """

    level: str
    asked: str
    found: float | None
    threshold: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """Whether it was measured and is as it should be."""
        if self.found is None:
            return False
        return self.found >= self.threshold if self.at_least else self.found <= self.threshold


@dataclass(frozen=True)
class BmaVerdict:
    """The mechanism (causal_bma or not_detected), evidence level, one sentence, reservations, and what was asked."""

    mechanism: str
    evidence_level: str
    text: str
    caveats: tuple[str, ...]
    checks: tuple[Check, ...]


def make_checks(
    losses: Losses,
    *,
    posterior_share: float | None,
    candidate_mass: float,
    follows: float | None,
    kernel: KernelEvidence | None,
    n_examples: int,
    agreement: Agreement | None,
) -> tuple[Check, ...]:
    """Return all that is asked, in the order of the levels."""
    behaviour, attention, parameters, ablations = LEVELS
    checks = [
        Check(behaviour, "share of BMA's gain in prediction over taking all candidates alike", losses.share, PREDICTS),
        Check(attention, "share of the information on the parent that attention conveys", posterior_share, POSTERIOR),
        Check(attention, "share of the attention that lies on candidates", candidate_mass, ON_CANDIDATES),
        Check(attention, "share of the posterior's movement followed when examples are exchanged", follows, FOLLOWS),
    ]
    if kernel is None:
        checks.append(Check(parameters, "a kernel that can be read off the weights", None, 1.0))
    elif kernel.column is not None:
        relative = kernel.column.mean / kernel.column.uniform
        checks.append(
            Check(parameters, "column error, relative to the zero kernel's", relative, COLUMN, at_least=False)
        )
    else:
        checks.append(Check(parameters, "cosine of the kernel with A", kernel.alignment, ALIGNED))
    if kernel is not None and n_examples > 1:
        share = kernel.block_diagonality
        needed = 1 / n_examples + DIAGONAL * (1 - 1 / n_examples)
        checks.append(Check(parameters, "share of the kernel that compares an example with itself", share, needed))
    explained = None if agreement is None else agreement.explained
    asked = "share of the predicted changes of L_pa that is found, in the worst of examples, heads and relations"
    checks.append(Check(ablations, asked, explained, PREDICTED))
    return tuple(checks)


def level_reached(checks: Sequence[Check]) -> str:
    """Return the last level all of whose checks hold, as do those of the levels before it; `none` without any."""
    reached = NO_LEVEL
    for level in LEVELS:
        if not all(check.holds for check in checks if check.level == level):
            break
        reached = level
    return reached


def judge_bma(
    checks: tuple[Check, ...],
    *,
    reader: str,
    match: AttentionMatch,
    posterior_share: float | None,
    losses: Losses,
    kernel: KernelEvidence | None,
    agreement: Agreement | None,
    contexts: int,
    caveats: Sequence[str] = (),
) -> BmaVerdict:
    """Judge a model by its checks.

    Args:
        checks: from `make_checks`.
        reader: the head whose attention it is.
        match: its attention beside the posterior.
        posterior_share: the share of the information on the parent that it conveys; None where the examples hold none.
        losses: on the query.
        kernel: tier 2, where it could be read.
        agreement: of the ablations, where there were any.
        contexts: how many there were.
        caveats: reservations from the measurements.
    """
    level, notes = level_reached(checks), [*caveats, *_caveats(checks, kernel)]
    if contexts < FEWEST_CONTEXTS:
        text = f"{contexts} contexts are too few to tell; use at least {FEWEST_CONTEXTS}."
        return BmaVerdict("not_detected", NO_LEVEL, f"Not detected: {text}", tuple(notes), checks)
    if posterior_share is None:
        text = "in this task the examples tell nothing about the parents, so there is nothing to infer."
        return BmaVerdict("not_detected", NO_LEVEL, f"Not detected: {text}", tuple(notes), checks)
    kl = f"KL {_value(match.kl)} nats, total variation {_value(match.total_variation)}"
    if level == NO_LEVEL:
        text = (
            f"the model does not predict by what the examples tell (loss {losses.model:.4g}; Bayesian averaging "
            f"{losses.bma:.4g}, all candidates alike {losses.uniform:.4g})."
        )
        return BmaVerdict("not_detected", level, f"Not detected: {text}", tuple(notes), checks)
    if level == LEVELS[0]:
        text = (
            "the model predicts better than one who takes all candidates alike, but no head's attention is the "
            f"posterior over parents; nearest is {reader} ({kl})."
        )
        return BmaVerdict("not_detected", level, f"Not detected: {text}", tuple(notes), checks)
    parts = [f"The attention of {reader} is the posterior over parents ({posterior_share:.1%} of its information)"]
    if level in LEVELS[2:] and kernel is not None:
        if kernel.column is not None:
            errors = f"column error {_value(kernel.column.mean)} against {_value(kernel.column.uniform)}"
            parts.append(f"its weights compare tokens by log pi ({errors})")
        else:
            parts.append(f"its weights compare vectors by A (cosine {kernel.alignment:.3f})")
    if level == LEVELS[3] and agreement is not None:
        parts.append(f"removals cost what the posterior predicts ({agreement.explained:.1%} of the changes at least)")
    text = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] + "."
    return BmaVerdict("causal_bma", level, text, tuple(notes), checks)


def _value(found: float | None) -> str:
    if found is None:
        return "not measured"
    return "0" if abs(found) < _ROUNDING else f"{found:.3g}"


def _caveats(checks: Sequence[Check], kernel: KernelEvidence | None) -> list[str]:
    notes = []
    level = level_reached(checks)
    later = [other for other in LEVELS[LEVELS.index(level) + 2 :]] if level in LEVELS[:-1] else []
    if level != NO_LEVEL and level != LEVELS[-1]:
        missed = LEVELS[LEVELS.index(level) + 1]
        failed = [check for check in checks if check.level == missed and not check.holds]
        notes.append(f"The level {missed!r} was not reached: " + "; ".join(_miss(check) for check in failed) + ".")
        held = [other for other in later if all(check.holds for check in checks if check.level == other)]
        notes += [f"The level {other!r} would have been, but levels build on one another." for other in held]
    if kernel is not None and not kernel.exact:
        notes.append(
            "The model has MLPs or norms, which the transfer kernel leaves out: tier 2 is a hint and not an identity."
        )
    if kernel is not None and level in LEVELS[1:] and not 1 / _SHARP <= kernel.scale <= _SHARP:
        how = "softer" if kernel.scale < 1 else "sharper"
        notes.append(
            f"The kernel is {kernel.scale:.2f} times the true one: by its weights the attention is {how} than the "
            "posterior; copyers that spend attention elsewhere, or several heads an example, can make up for it."
        )
    return notes


def _miss(check: Check) -> str:
    bound = "at least" if check.at_least else "at most"
    return f"{check.asked} is {_value(check.found)}, needed {bound} {check.threshold:g}"
