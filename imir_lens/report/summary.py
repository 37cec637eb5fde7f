"""What stands at the top of a report: its key numbers, and what to say when nothing was detected."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imir_lens.figures.style import Real, number
from imir_lens.report.words import ROLE_MEANINGS
from imir_lens.verdict import FEWEST_CONTEXTS


@dataclass(frozen=True)
class KeyNumber:
    """One number with what it is and what to compare it with."""

    label: str
    value: str
    note: str


def subject(report: Mapping[str, Any]) -> str:
    """Return the short name of the model: the last part of a path; the whole stands with the provenance."""
    source: str = report["model"]["source"]
    return re.split(r"[/\\]", source.rstrip("/\\"))[-1] or source


def subject_on_task(report: Mapping[str, Any]) -> str:
    """Return the short name of the model and the task it was asked."""
    return f"{subject(report)} on {report['task']['name']}"


def _performance(label: str, found: Mapping[str, Real] | None, note: str) -> KeyNumber:
    if found is None:
        return KeyNumber(label, number(None), "not measured")
    return KeyNumber(label, number(found["loss"]), f"nats; accuracy {number(found['accuracy'])}; {note}")


def attributed(report: Mapping[str, Any]) -> bool:
    """Whether any coordinate has an attribution; none has where all of them hardly lower the surrogate's loss."""
    return any(row["attribution"] for row in report["coordinates"])


def key_numbers(report: Mapping[str, Any]) -> list[KeyNumber]:
    """The numbers a reader wants first; without a circuit, those that say why."""
    evaluation, circuit = report["evaluation"], report["circuit"]
    total = f"of {report['search']['coordinates_total']:,} coordinates"
    out = [
        KeyNumber(
            "units in the circuit", str(len(circuit["units"])), total + (", minimal" if circuit["minimal"] else "")
        ),
        _performance("loss of the model", evaluation["model"], f"chance {number(evaluation['chance']['loss'])}"),
    ]
    if circuit["units"]:
        out.append(_performance("with the circuit only", evaluation["circuit"], "is it enough?"))
        out.append(_performance("without the circuit", evaluation["without_circuit"], "is it needed?"))
    if "vocabulary_mass" in evaluation:
        out.append(KeyNumber("mass on the words", number(evaluation["vocabulary_mass"]), _vocabulary(report["model"])))
    out.append(_performance("loss of the surrogate", evaluation["projection"], "the coordinates alone"))
    if circuit["units"]:
        out.append(KeyNumber("faithfulness", number(circuit["faithfulness"]), _stability(circuit)))
    return out


def _vocabulary(model: Mapping[str, Any]) -> str:
    """Say what share it is, since losses and accuracies are given that the answer is one of the words."""
    asked = f"{model['vocabulary']['size']:,} of its {model['d_vocab']:,} tokens"
    return f"share of the model's probability at the queries; it is asked in {asked} only"


def _stability(circuit: Mapping[str, Any]) -> str:
    jaccard, n = circuit["stability"]["bootstrap_jaccard"], circuit["stability"]["n"]
    parts = [f"completeness {number(circuit['completeness'])}"]
    parts.append("stability not measured" if jaccard is None else f"bootstrap Jaccard {number(jaccard)} over {n}")
    return "; ".join(parts)


def faithfulness_note(report: Mapping[str, Any]) -> str:
    """Say how faithfulness is defined and what the ablation was."""
    return (
        "Faithfulness = (loss(chance-ablated) − loss(circuit)) / (loss(chance-ablated) − loss(model)), "  # noqa: RUF001
        f"both in the real model; ablation: {report['ablation']}."
    )


KINDS_NOTE = (
    "The coordinates alone do not do the task, so no circuit could be searched for. What they name may be needed all "
    "the same: here all coordinates of a kind are removed from the model at once, and, as a control, the same values "
    "shuffled among them."
)


def separate_note(report: Mapping[str, Any]) -> str:
    """Say how many circuits are each sufficient; empty when there are not two separate ones."""
    found = report["circuit"].get("separate", [])
    if len(found) < 2:
        return ""
    proven = sum(one["sufficient"] for one in found)
    apart = f"{len(found)} circuits without a common unit each do the task alone in the surrogate"
    if proven < 2:
        return (
            f"{apart}, but in the real model, with everything else removed, {proven or 'none'} of them is sufficient."
        )
    which = "they" if proven == len(found) else f"{proven} of them"
    return f"{apart}, and {which} are each sufficient in the real model, with everything else removed."


def _solves(name: str, evaluation: Mapping[str, Any]) -> bool:
    """Whether it gains half of the accuracy there is to gain over chance: the verdict's rule, which speaks beside."""
    chance = evaluation["chance"]["accuracy"]
    gain, most = evaluation[name]["accuracy"] - chance, evaluation["bayes"]["accuracy"] - chance
    return gain > 0 and gain >= most / 2


def not_detected_notes(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what was looked for, what was found, and what the scores tell."""
    evaluation, search = report["evaluation"], report["search"]
    roles = "; ".join(f"{role} ({meaning})" for role, meaning in ROLE_MEANINGS.items() if role != "auxiliary")
    found = f"{search['coordinates_total']:,} coordinates over {search['paths']:,} paths"
    if not attributed(report):
        found += "; together they hardly lower the surrogate's loss, so none was searched"
    else:
        top = report["coordinates"][0]
        found += f"; the largest attribution is {number(top['attribution'])} ({top['id']})"
    units = report["circuit"]["units"]
    found += f"; {len(units)} units were kept but failed the checks below" if units else "; no unit was kept"
    losses = {name: evaluation[name]["loss"] for name in ("model", "projection", "chance", "bayes")}
    said = (
        f"model {number(losses['model'])}, surrogate {number(losses['projection'])}, chance "
        f"{number(losses['chance'])}, Bayes {number(losses['bayes'])} nats"
    )
    if not _solves("model", evaluation):
        reason = "The model does not solve this task, so there is no mechanism to find: is it the right task?"
    elif evaluation.get("search_contexts", FEWEST_CONTEXTS) < FEWEST_CONTEXTS:
        searched = evaluation["search_contexts"]
        reason = f"The model solves the task, but {searched} contexts to search on are too few to tell how."
    elif not _solves("projection", evaluation):
        reason = "The model solves the task but its coordinates alone do not: what it does lies outside them."
    else:
        reason = "The coordinates alone solve the task, but no set of them passed the checks in the model."
    return [("Looked for", roles), ("Found", found), ("Losses", said), ("What this says", reason)]
