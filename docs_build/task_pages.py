"""A page for every task, made from the registry, the task itself and the stored results of the benchmarks."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from click.testing import CliRunner

from docs_build.markdown import MADE, law, table
from docs_build.task_findings import found_when_planted, trained_model
from imir_lens.cli import cli
from imir_lens.ids import CoordinateId
from imir_lens.models.block_constructions import (
    copy_circuit,
    inversion_circuit,
    ioi_circuit,
    ngram_circuit,
    retrieval_circuit,
)
from imir_lens.models.constructions import hop_circuit, induction_circuit
from imir_lens.report.words import describe
from imir_lens.roles import assign_roles
from imir_lens.tasks.registry import BUILT_IN, OF_VECTORS, any_task_class, make_task

# The reference circuits with values that come within 1e-3 of the optimal loss, at the tasks' default knobs.
CONSTRUCTIONS: dict[str, Callable[[], Mapping[str, float]]] = {
    "recall": induction_circuit,
    "hop": lambda: hop_circuit(2),
    "inversion": inversion_circuit,
    "retrieval": retrieval_circuit,
    "ngram": ngram_circuit,
    "ioi": ioi_circuit,
    "copy": copy_circuit,
    "repeated": lambda: copy_circuit(not_itself=0.0),
}


def pages() -> dict[str, str]:
    """Return the pages of all tasks, and their list, by file name."""
    names = [*BUILT_IN, *OF_VECTORS]
    return {"index.md": _list(names), **{f"{name}.md": _page(name) for name in names}}


def _list(names: Sequence[str]) -> str:
    rows = [[f"[{name}]({name}.md)", any_task_class(name).summary] for name in names]
    return "\n".join(
        [
            "# Tasks",
            "",
            MADE,
            "",
            "A task samples contexts, knows the optimal answer to each, its own symmetry, and the least circuit that",
            "solves it. [Concepts](../concepts.md#the-tasks-lists-of-blocks) says what the first eight have in common,",
            "[Causal structure in context](../causal.md) what the last four have, and",
            "[Bring your own task](../howto/own_task.md) how to add one. `imir-lens tasks` prints this list.",
            "",
            *table(["Task", "In one line"], rows),
            "",
        ]
    )


def _page(name: str) -> str:
    card = json.loads(CliRunner().invoke(cli, ["tasks", name, "--json"]).stdout)
    cls = any_task_class(name)
    parts = [
        [f"# {name}", "", MADE, "", f"{_sentence(card['summary'])}"],
        ["## The law", "", law(inspect.getdoc(cls) or "")],
        _context(card),
        _knobs(card),
        _optimal(card, cls),
        _circuit(card),
        _symmetry(name),
        ["## What a trained model does", "", trained_model(name)],
        found_when_planted(name),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _context(card: Mapping[str, Any]) -> list[str]:
    if card["d_vocab"] is None:
        size = (
            f"{card['n_examples']} examples and a query, each of {card['n_positions']} vectors of dimension "
            f"{card['dimension']}. What is hidden in the first one:"
        )
        reading = "Vectors are no tokens: `train` and `analyze` refuse this task; `verify` takes it."
    else:
        size = f"{card['d_vocab']} tokens, contexts of {card['n_positions']}. The first one of seed 0:"
        reading = (
            "`·` is filler. In brackets: a token at its place, and the answer that is asked for there."
            if "@" in card["example"]
            else "In brackets: what is hidden. Each position named there is asked for, from the token before it."
        )
    command = f"imir-lens tasks {card['name']}"
    example = _wrapped(card["example"])
    return [
        "## What a context looks like",
        "",
        size,
        "",
        "```text",
        *example,
        "```",
        "",
        reading,
        "",
        "```sh",
        command,
        "```",
    ]


def _wrapped(example: str) -> list[str]:
    """An episode on a line of its own."""
    return [part.strip() for part in example.replace("   [", " |[").split("|")] if "|" in example else [example]


def _knobs(card: Mapping[str, Any]) -> list[str]:
    rows = [
        [f"`{knob['name']}`", "none" if knob["value"] is None else knob["value"], knob["type"], knob["meaning"]]
        for knob in card["knobs"]
    ]
    return [
        "## Knobs",
        "",
        *table(["Knob", "Default", "Type", "Meaning"], rows),
        "",
        "`--set KNOB=VALUE` sets one on the command line, "
        + f'`imir_lens.make_task("{card["name"]}", KNOB=VALUE)` in Python'.replace("make_task", _maker(card))
        + ".",
    ]


def _maker(card: Mapping[str, Any]) -> str:
    return "tasks.causal_task" if card["d_vocab"] is None else "make_task"


def _optimal(card: Mapping[str, Any], cls: Any) -> list[str]:
    measured = f"On {card['contexts']} contexts (seed {card['seed']}):"
    if card["d_vocab"] is None:
        rows = [[who, card[key]["parent_loss"], card[key]["squared_error"]] for who, key in _AVERAGES]
        head = ["Weights on parents", "Parent loss, nats", "Squared error of the prediction"]
        about = "Parents weighted by their posterior (BMA); see [the law](#the-law)."
    else:
        rows = [[who, card[key]["loss"], card[key]["accuracy"]] for who, key in _PREDICTORS]
        head = ["Predictor", "Loss, nats", "Accuracy"]
        about = (inspect.getdoc(cls.bayes) or "").removeprefix("Return the ")
        about = about[0].upper() + about[1:]
    cells = [[row[0], *(f"{0.0 + value:.4g}" for value in row[1:])] for row in rows]
    return ["## The Bayes predictor", "", about, "", measured, "", *table(head, cells)]


_BUILT = {
    "causal_tree": "[The causal transformer](../causal_model.md#the-exact-construction) can be built so that its "
    "attention is the posterior over parents.",
    "lag_chain": "[Heads that copy from fixed offsets](../causal_model.md#the-exact-construction) can be built so that "
    "their attention is the posterior over lags.",
    "fixed_graph": "It is a control: its graph is to be memorised, and a model of it must not be taken for averaging.",
    "linear_dynamics": "[The causal transformer](../causal_model.md#the-exact-construction) can be built with the "
    "bilinear part of the log-likelihood, which is all of it for vectors of norm 1.",
}
_PREDICTORS = (("Bayes", "bayes"), ("chance: the best guess without the context", "chance"))
_AVERAGES = (("BMA", "bma"), ("uniform", "uniform"))


def _circuit(card: Mapping[str, Any]) -> list[str]:
    title = ["## The reference circuit", ""]
    if not card.get("reference_circuit"):
        return [*title, "None: what it computes is no sum of the relations that it declares. " + _BUILT[card["name"]]]
    values = CONSTRUCTIONS[card["name"]]()
    if set(values) != set(card["reference_circuit"]):
        raise AssertionError(f"the construction of {card['name']} is not its reference circuit")
    ids = {identity: CoordinateId.parse(identity) for identity in card["reference_circuit"]}
    roles = assign_roles([(ids[i], values[i]) for i in ids], lambda path: 0.0 if path.heads else 1.0)
    rows = [[f"`{i}`", f"{values[i]:+g}", roles[ids[i]], describe(i, roles[ids[i]], values[i])] for i in ids]
    return [
        *title,
        "The least circuit that solves it at the default knobs, with values that come within 1e-3 of the optimal loss:",
        "",
        *table(["Coordinate", "Value", "Role", "In words"], rows),
    ]


def _symmetry(name: str) -> list[str]:
    title = ["## Symmetry", ""]
    if name in OF_VECTORS:
        return [*title, "None that is declared: a fixed rotation tells the axes apart."]
    task = make_task(name)
    relations = task.relations
    classes = ", ".join(f"`{kind}` ({len(ids)})" for kind, ids in relations.classes.items())
    generators = len(task.symmetry_generators)
    if not generators:
        group = "No relabelling of tokens keeps the law: the kernel treats them differently."
    else:
        group = (
            f"{generators} relabelling{'s' if generators > 1 else ''} of tokens generate"
            f"{'' if generators > 1 else 's'} its symmetry group. Coordinates are means over the orbits of that group "
            "on pairs of tokens ([derivation](../concepts.md#relations-what-the-task-cannot-tell-apart))."
        )
    return [
        *title,
        group,
        "",
        f"Classes of tokens (and how many each holds): {classes}; the reference class is `{relations.reference}`.",
        "",
        f"Relations on tokens: {', '.join(f'`{relation}`' for relation in relations.names) or 'none'}.",
    ]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
