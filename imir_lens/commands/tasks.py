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

_CONTEXTS = 1024
_NUMBERS = 2**25  # contexts times tokens: a large vocabulary is shown on fewer contexts, in seconds


@click.command()
@click.argument("name", required=False)
@knob_option
@seed_option
@command
def tasks(name: str | None, knobs: tuple[str, ...], seed: int | None, say: Output, device: str | None) -> None:
    """List the tasks, or show one: its knobs, an example context, and the losses of Bayes and chance."""
    from imir_lens.tasks.registry import make_task, parse_knobs, task_class, task_names

    if name is None:
        if knobs:
            raise click.UsageError("--set needs the NAME of a task")
        summaries = {task: task_class(task).summary for task in task_names()}
        width = max(map(len, summaries))
        lines = [f"{task:<{width}}  {summary}" for task, summary in summaries.items()]
        data = [{"name": task, "summary": summary} for task, summary in summaries.items()]
        say.result(data, [*lines, "", "Details: imir-lens tasks NAME"], wanted=True)
        return
    shown = _card(make_task(name, **parse_knobs(name, knobs)), seed=seed or 0, device=device)
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


def _knobs(task: "Task") -> list[dict[str, Any]]:
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
        *(f"  {identifier}" for identifier in card["reference_circuit"]),
    ]
