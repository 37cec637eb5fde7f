"""`imir-lens tasks`: what there is, and what one task looks like."""

import inspect
import re
import shutil
import textwrap
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, get_args

import click

from imir_lens.commands.shared import Output, command, knob_option, score_line, seed_option

if TYPE_CHECKING:
    from imir_lens.tasks.base import Task
    from imir_lens.tasks.episodes import CausalTask

_CONTEXTS = 1024
_NUMBERS = 2**25  # contexts times tokens: a large vocabulary is shown on fewer contexts, in seconds


@click.command()
@click.argument("name", required=False)
@knob_option
@seed_option
@command
def tasks(name: str | None, knobs: tuple[str, ...], seed: int | None, say: Output, device: str | None) -> None:
    """List the tasks, or show one: its knobs, an example context, and the losses of Bayes and chance."""
    from imir_lens.tasks.registry import OF_VECTORS, any_task_class, causal_task, make_task, parse_knobs, task_names

    if name is None:
        if knobs:
            raise click.UsageError("--set needs the NAME of a task")
        summaries = {task: any_task_class(task).summary for task in [*task_names(), *OF_VECTORS]}
        width = max(map(len, summaries))
        lines = [f"{task:<{width}}  {summary}" for task, summary in summaries.items()]
        data = [{"name": task, "summary": summary} for task, summary in summaries.items()]
        say.result(data, [*lines, "", "Details: imir-lens tasks NAME"], wanted=True)
        return
    settings = parse_knobs(name, knobs)
    if name in OF_VECTORS:
        shown = _vector_card(causal_task(name, **settings), seed=seed or 0, device=device)
    else:
        shown = _card(make_task(name, **settings), seed=seed or 0, device=device)
    say.result(shown, _lines(shown), wanted=True)


def _card(task: "Task", *, seed: int, device: str | None) -> dict[str, Any]:
    """Return what there is to know about a task, as JSON values."""
    import torch

    from imir_lens.evaluation import bayes_score, chance_score

    contexts = max(1, min(_CONTEXTS, _NUMBERS // task.d_vocab))
    batch = task.sample(contexts, torch.Generator().manual_seed(seed)).to(device or "cpu")
    return {
        "name": task.name,
        "summary": task.summary,
        "knobs": _knobs(task),
        "d_vocab": task.d_vocab,
        "n_positions": task.n_positions,
        "reference_circuit": list(task.reference_circuit),
        "example": task.describe(batch.to("cpu")),
        "contexts": contexts,
        "seed": seed,
        "bayes": bayes_score(task, batch).as_dict(),
        "chance": chance_score(task, batch).as_dict(),
    }


def _vector_card(task: "CausalTask", *, seed: int, device: str | None) -> dict[str, Any]:
    """Return what there is to know about a task whose values are vectors, as JSON values."""
    import torch

    from imir_lens.tasks.episodes import parent_loss, prediction_loss, uniform_weights

    one = task.sample_episodes(1, torch.Generator().manual_seed(seed))
    contexts = max(1, min(_CONTEXTS, _NUMBERS // one.values.numel(), _NUMBERS // one.n_nodes**2))
    episodes = task.sample_episodes(contexts, torch.Generator().manual_seed(seed)).to(device or "cpu")
    weights = {"bma": task.posterior(episodes), "uniform": uniform_weights(episodes)}
    losses = {
        name: {
            "parent_loss": float(parent_loss(weight, episodes)),
            "squared_error": float(prediction_loss(task.predict(weight, episodes), episodes)),
        }
        for name, weight in weights.items()
    }
    parents = " ".join(map(str, episodes.parents[0, episodes.asked].tolist()))
    return {
        "name": task.name,
        "summary": task.summary,
        "knobs": _knobs(task),
        "d_vocab": None,
        "n_positions": one.n_nodes,
        "dimension": one.values.shape[-1],
        "n_examples": one.n_examples,
        "example": f"parents of positions 1 to {one.n_nodes - 1}: {parents}",
        "contexts": contexts,
        "seed": seed,
        **losses,
    }


def _knobs(task: "Task | CausalTask") -> list[dict[str, Any]]:
    meanings = knob_meanings(inspect.getdoc(type(task)) or "")
    rows = []
    for field in fields(task):
        kinds = [kind.__name__ for kind in get_args(field.type) or (field.type,)]
        rows.append(
            {
                "name": field.name,
                "type": " or ".join("none" if kind == "NoneType" else kind for kind in kinds),
                "default": None if field.default is MISSING else field.default,
                "value": getattr(task, field.name),
                "meaning": meanings.get(field.name, ""),
            }
        )
    return rows


def knob_meanings(docstring: str) -> dict[str, str]:
    r"""Read what a docstring says about each attribute.

    >>> knob_meanings("A task.\n\nAttributes:\n    vocab: number of\n        tokens.\n    pairs: blocks.\n")
    {'vocab': 'number of tokens.', 'pairs': 'blocks.'}
    """
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*\n?)(?:        .*\n?)*)", section[1], re.MULTILINE) if section else []
    return {name: " ".join(text.split()) for name, text in entries}


def _lines(card: dict[str, Any]) -> list[str]:
    columns = max(60, shutil.get_terminal_size().columns)
    lines = [f"{card['name']}: {card['summary']}", "", "Knobs (set one with --set KNOB=VALUE):"]
    width = max(len(knob["name"]) for knob in card["knobs"])
    for knob in card["knobs"]:
        value = "none" if knob["value"] is None else knob["value"]
        start = f"  {knob['name']:<{width}}  {value!s:<11} {knob['type']:<12} "
        lines += textwrap.wrap(start + knob["meaning"], columns, subsequent_indent=" " * len(start)) or [start]
    if card["d_vocab"] is None:
        return lines + _vector_lines(card)
    circuit = card["reference_circuit"] or ["none: what it computes is no sum of the relations it declares"]
    return [
        *lines,
        "",
        f"{card['d_vocab']} tokens, contexts of {card['n_positions']}. An example:",
        f"  {card['example']}",
        "",
        f"On {card['contexts']} contexts (seed {card['seed']}; losses in nats):",
        f"  {score_line('Bayes', card['bayes'])}",
        f"  {score_line('chance', card['chance'])}",
        "",
        "Least circuit that solves it:",
        *(f"  {identifier}" for identifier in circuit),
    ]


def _vector_lines(card: dict[str, Any]) -> list[str]:
    losses = (
        f"  {name:<8} parent loss {card[key]['parent_loss']:<9.4g} squared error {card[key]['squared_error']:.4g}"
        for name, key in (("BMA", "bma"), ("uniform", "uniform"))
    )
    return [
        "",
        f"{card['n_examples']} examples and a query of {card['n_positions']} vectors of dimension {card['dimension']}. "
        "Hidden in the first context:",
        f"  {card['example']}",
        "",
        f"On {card['contexts']} contexts (seed {card['seed']}; parent losses in nats):",
        *losses,
        "",
        "It has vectors, not tokens: for models of its own kind, not for `train` and `analyze`.",
    ]
