"""`imir-lens train`: a model for a task, in a run directory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.places import read_run
from imir_lens.commands.shared import (
    PLACE,
    Output,
    command,
    given,
    knob_option,
    model_option,
    on_one_line,
    parse_fields,
    score_line,
    seed_option,
)
from imir_lens.errors import OptionError, UnsupportedModelError

if TYPE_CHECKING:
    from imir_lens.tasks.episodes import CausalTask
    from imir_lens.training.loop import Progress, TrainingResult

_COUNT = click.IntRange(min=1)


@click.command()
@click.argument("task")
@click.option("--out", "run", type=PLACE, metavar="RUN", required=True, help="Where the run goes.")
@knob_option
@model_option
@click.option("--steps", type=_COUNT, metavar="N", help="Optimizer steps in all.  [default: 2000]")
@click.option("--batch", type=_COUNT, metavar="N", help="Contexts a step.  [default: 128]")
@click.option("--lr", type=float, metavar="X", help="AdamW's learning rate.  [default: 0.003]")
@click.option("--checkpoint-every", type=_COUNT, metavar="N", help="Keep a checkpoint every N steps as well.")
@click.option("--causal", is_flag=True, help="Train a causal transformer, on a task with a hidden graph.")
@seed_option
@click.option("--resume", is_flag=True, help="Go on with the run in RUN; what is not given is as it was.")
@command
def train(
    task: str,
    run: Path,
    knobs: tuple[str, ...],
    fields: tuple[str, ...],
    lr: float | None,
    causal: bool,
    resume: bool,
    say: Output,
    device: str | None,
    **options: Any,
) -> None:
    """Train a model on TASK.

    By default an attention-only model without norm, d_model 128 and as many layers and heads as the task needs;
    --model sets any other field of a HookedTransformer's config. Two hops
    are learned after one, with d_model 64, in 4000 steps at a learning rate of 0.005.

    With --causal it has the architecture that averages over causal graphs, in 1024 steps of 256 contexts at a learning
    rate of 0.02; `imir-lens verify` asks whether it does.
    """
    chosen, changes = given(learning_rate=lr, **options), parse_fields(fields)
    from imir_lens.causal.config import is_causal
    from imir_lens.tasks.registry import causal_task, make_task, parse_knobs

    settings, record = parse_knobs(task, knobs), {}
    if resume:
        record = read_run(run)
        if record["task"]["name"] != task:
            raise OptionError(f"{run} was trained on {record['task']['name']!r}, not on {task!r}")
        settings, changes = {**record["task"]["knobs"], **settings}, {**record["model"], **changes}
    if causal or (resume and is_causal(record["model"])):
        _train_causal(causal_task(task, **settings), changes, record, chosen, run=run, say=say, device=device)
        return
    chosen = {**record.get("training", {}), **chosen}
    goal = make_task(task, **settings)

    from imir_lens.training.loop import train as run_training
    from imir_lens.training.recipes import default_recipe

    recipe = default_recipe(goal, **changes)
    chosen = {**recipe.options, **chosen}
    with shown(say, chosen["steps"]) as progress, hint(say, run, "with --resume "):
        result = run_training(goal, recipe.config, run=run, device=device, resume=resume, progress=progress, **chosen)
    say.result(training_result(result), [*_lines(result), f"analyse    {_next(result)}"])


def _train_causal(
    task: "CausalTask",
    changes: dict[str, Any],
    record: dict[str, Any],
    chosen: dict[str, Any],
    *,
    run: Path,
    say: Output,
    device: str | None,
) -> None:
    from imir_lens.commands.train_causal import causal_result, options_of, train_run

    options = options_of(record, chosen)
    with shown(say, options["steps"]) as progress, hint(say, run, "with --resume "):
        result = train_run(task, changes, options, run=run, resume=bool(record), device=device, progress=progress)
    say.result(*causal_result(result))


@contextmanager
def shown(say: Output, steps: int) -> "Iterator[Progress | None]":
    """Show how training goes: a bar on a terminal, else a line now and then, nothing with --quiet."""
    from imir_lens.training.progress import progress_bar, state_of

    if say.terminal:
        with progress_bar(steps) as callback:
            yield callback
        return

    last = -steps

    def line(step: int, row: Mapping[str, int | float]) -> None:
        nonlocal last
        if row.get("step") == step and (20 * (step - last) >= steps or step == steps):
            say.note(f"step {step}/{steps}  {state_of(row)}")
            last = step

    yield line


@contextmanager
def hint(say: Output, run: Path, how: str) -> Iterator[None]:
    """On Ctrl-C, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if (run / "state.pt").exists():
            say.note(f"the state is saved in {run}; the same command {how}goes on")
        raise


def training_result(result: "TrainingResult") -> dict[str, Any]:
    """Return what came out of a run, as JSON values."""
    last = result.metrics[-1]
    return {
        "run": str(result.run),
        "checkpoint": str(result.checkpoint),
        "step": last["step"],
        "model": {key: last[key] for key in ("loss", "accuracy")},
        "bayes": {key: last[f"bayes_{key}"] for key in ("loss", "accuracy")},
        "chance": {key: last[f"chance_{key}"] for key in ("loss", "accuracy")},
    }


def _next(result: "TrainingResult") -> str:
    """Return the command that analyses a run, or why none does."""
    from imir_lens.weights import require_supported

    config: Any = result.model.cfg
    try:
        require_supported(config)
    except UnsupportedModelError as error:
        return f"not possible: {error}"
    return f"imir-lens analyze {on_one_line(str(result.run))} --out REPORT"


def _lines(result: "TrainingResult") -> list[str]:
    data = training_result(result)
    scores = [score_line(name, data[name]) for name in ("model", "bayes", "chance")]
    return [*scores, f"checkpoint {data['checkpoint']}"]
