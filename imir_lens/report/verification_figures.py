"""A verification's figures, each with its title, units and sample sizes, and its card for a notebook."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from imir_lens.figures.bma_charts import ablations_figure, curve_figure, errors_figure
from imir_lens.figures.copyers import copyers_figure
from imir_lens.figures.figure import Figure
from imir_lens.figures.kernel_blocks import kernel_figure
from imir_lens.figures.parent_attention import match_figure, parents_figure
from imir_lens.report import verification_words as words
from imir_lens.report.cards import Card, verdict_card
from imir_lens.report.summary import subject_on_task

CAPTIONS: Final = {
    "attention": "Attention and the posterior over parents",
    "posterior": "Attention against the posterior, against the true parents, and by distance",
    "examples": "Parent loss L_pa over the number of examples",
    "kernel": "The kernel before and after the effective map",
    "errors": "Column errors beside row errors",
    "copyers": "Where the copyers look",
    "ablations": "Removals: measured over predicted",
}
_DRAW: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "attention": parents_figure,
    "posterior": match_figure,
    "examples": curve_figure,
    "kernel": kernel_figure,
    "errors": errors_figure,
    "copyers": copyers_figure,
    "ablations": ablations_figure,
}
_UNITS: Final = {
    "examples": "Losses in nats.",
    "kernel": "Scores in nats.",
    "errors": "Total variation lies between 0 and 1.",
    "ablations": "Changes of L_pa in nats.",
}


def figure_makers(report: Mapping[str, Any]) -> dict[str, Callable[[], Figure]]:
    """Return what draws the figures that there is data for, by the name of their file.

    Args:
        report: the data of a verification, see `verification_schema.json`.
    """
    parameters, drawn = report["parameters"], report["drawn"]
    absent = {
        "kernel": drawn["kernel"] is None,
        "errors": parameters is None or parameters["column"] is None,
        "copyers": drawn["copyers"] is None,
        "ablations": not report["mechanism"]["ablations"],
    }
    return {name: partial(_figure, report, name) for name in _DRAW if not absent.get(name, False)}


def _figure(report: Mapping[str, Any], name: str) -> Figure:
    evaluation = report["evaluation"]
    contexts = evaluation["ablation_contexts"] if name == "ablations" else evaluation["contexts"]
    # An ordinary transformer has no position weights to read copyers off: theirs are means over contexts.
    weights = name in ("kernel", "errors") or (
        name == "copyers" and "nats" in report["drawn"]["copyers"]["offsets_unit"]
    )
    sample = "from the weights" if weights else f"{contexts:,} contexts"
    if name == "attention":
        sample = f"{len(report['examples'])} of {sample}"
    sizes = f"{evaluation['examples']} examples of {evaluation['positions']} positions"
    where = subject_on_task(report)
    return Figure(_DRAW[name](report), CAPTIONS[name], f"{where}: {sample}, {sizes}. {_UNITS.get(name, '')}".strip())


def verification_card(report: Mapping[str, Any]) -> Card:
    """Return what a notebook shows of a verification.

    Args:
        report: the data of a verification, see `verification_schema.json`.
    """
    return verdict_card(
        report,
        words.key_numbers(report),
        lambda name: [
            parents_figure(report, name=f"{name}-attention"),
            match_figure(report, name=f"{name}-posterior"),
        ],
        words.checks_table(report),
        note=" ".join(report["verdict"]["caveats"]),
    )
