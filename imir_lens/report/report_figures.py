"""A report's figures, each with its title, units and sample sizes, and its card for a notebook."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from imir_lens.figures.attention import attention_figure
from imir_lens.figures.attribution import attribution_chart
from imir_lens.figures.circuit_graph import circuit_graph
from imir_lens.figures.figure import Figure
from imir_lens.figures.style import number, visible
from imir_lens.figures.trajectory_chart import trajectory_chart
from imir_lens.report import tables
from imir_lens.report.cards import Card, verdict_card
from imir_lens.report.summary import attributed, key_numbers, subject_on_task


def figure_makers(report: Mapping[str, Any]) -> dict[str, Callable[[], Figure]]:
    """Return what draws each figure of a report, by name: `attention`, `attention_2` and so on for its contexts.

    Args:
        report: the data of a report, see `schema.json`.
    """
    makers: dict[str, Callable[[], Figure]] = {"circuit": partial(_circuit, report)}
    if attributed(report):
        makers["attribution"] = partial(_attribution, report)
    for k in range(len(report["examples"])):
        makers[f"attention_{k + 1}" if k else "attention"] = partial(_attention, report, k)
    if "trajectory" in report:
        makers["trajectory"] = partial(_trajectory, report)
    return makers


def report_card(report: Mapping[str, Any]) -> Card:
    """Return what a notebook shows of a report.

    Args:
        report: the data of a report, see `schema.json`.
    """
    return verdict_card(
        report, key_numbers(report), lambda name: [circuit_graph(report, name=name)], tables.units_table(report)
    )


def _circuit(report: Mapping[str, Any]) -> Figure:
    evaluation = report["evaluation"]
    scores = [
        f"{label} {number(evaluation[name]['loss'])}"
        for name, label in (("model", "the model"), ("circuit", "the circuit alone"), ("without_circuit", "without it"))
        if evaluation.get(name) is not None
    ]
    caption = f"Mean losses in nats on {evaluation['contexts']:,} test contexts: {', '.join(scores)}."
    return Figure(
        circuit_graph(report), f"The circuit of {subject_on_task(report)}", f"{caption} Ablation: {report['ablation']}."
    )


def _attribution(report: Mapping[str, Any]) -> Figure:
    searched = report["evaluation"].get("search_contexts")
    contexts = f" on {searched:,} search contexts" if searched else ""
    return Figure(
        attribution_chart(report),
        f"Attribution of the coordinates of {subject_on_task(report)}",
        f"Each coordinate's share, in nats, of the fall of the surrogate's loss{contexts} from no coordinates to all "
        f"of them ({report['search']['coordinates_total']:,}). Coloured: in the circuit.",
    )


def _attention(report: Mapping[str, Any], k: int) -> Figure:
    example = report["examples"][k]
    said = f"predicted {visible(example['prediction'])} with probability {number(example['probability'])}"
    return Figure(
        attention_figure(example),
        f"Attention of the circuit's heads: {subject_on_task(report)}",
        f"Test context {k + 1} of {report['evaluation']['contexts']:,}; the answer is {visible(example['target'])}, "
        f"{said}.",
    )


def _trajectory(report: Mapping[str, Any]) -> Figure:
    data = report["trajectory"]
    return Figure(trajectory_chart(data), f"Training of {subject_on_task(report)}", training_caption(data))


def training_caption(trajectory: Mapping[str, Any]) -> str:
    """Say how many checkpoints and contexts stand behind a trajectory's figure.

    Args:
        trajectory: the data of a trajectory, see `trajectory_schema.json`.
    """
    steps = [point["step"] for point in trajectory["checkpoints"]]
    contexts = trajectory["settings"]["contexts"]
    sample = f"{len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}, on {contexts:,} held-out contexts"
    return f"{sample}; coordinates and losses in nats."
