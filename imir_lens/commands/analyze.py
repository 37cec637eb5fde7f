"""`imir-lens analyze`: from a checkpoint to its report."""

from pathlib import Path
from typing import Any

import click

from imir_lens.commands.places import task_of
from imir_lens.commands.report import result_of
from imir_lens.commands.shared import (
    PLACE,
    Output,
    command,
    command_line,
    given,
    knob_option,
    model_option,
    parse_fields,
    seed_option,
)


@click.command()
@click.argument("checkpoint", type=PLACE)
@click.option("--task", metavar="TASK", help="The task; a run of `imir-lens train` knows its own.")
@knob_option
@model_option
@click.option("--config", type=PLACE, metavar="FILE", help="The model's config as a JSON file.")
@click.option(
    "--vocabulary",
    metavar="FILE|random",
    help="Ask in some of the model's tokens: words or ids from FILE, one a line, or a random choice.",
)
@click.option(
    "--filler", type=int, metavar="ID", help="The token for the task's filler.  [default: a text's beginning]"
)
@click.option("--tokenizer", type=PLACE, metavar="FILE", help="A tokenizer.json or .gguf.  [default: the checkpoint's]")
@click.option("--contexts", type=int, metavar="N", help="Test contexts.  [default: 512]")
@click.option("--budget", type=float, metavar="B", help="Share of the loss the circuit may give up.  [default: 0.01]")
@click.option("--bootstraps", type=int, metavar="N", help="Searches behind the stability figure.  [default: 10]")
@click.option("--along-training", is_flag=True, help="Of a run: follow its checkpoints as well, as in `trajectory`.")
@seed_option
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where the report goes.")
@click.option("--force", is_flag=True, help="Replace an older report in DIR.")
@command
def analyze(
    checkpoint: Path,
    task: str | None,
    knobs: tuple[str, ...],
    fields: tuple[str, ...],
    config: Path | None,
    out: Path,
    force: bool,
    say: Output,
    device: str | None,
    **options: Any,
) -> None:
    """Find out how CHECKPOINT does a task, and write the report to DIR.

    CHECKPOINT is a .pt or .pth file (a state dict, or one with its cfg), a .safetensors file with its config.json, a
    directory with them (HookedTransformer's or Hugging Face's), a .gguf file, or a run of `imir-lens train`. Nothing in
    it is executed.
    """
    overrides = parse_fields(fields)
    from imir_lens.report.storage import check_output
    from imir_lens.tasks.registry import make_task

    check_output(out, force=force)
    name, settings = task_of(checkpoint, task, knobs, say=say, example="NAME")
    chosen = make_task(name, **settings)

    from imir_lens.pipeline import analyze as run_analysis

    report = run_analysis(
        checkpoint,
        chosen,
        config=config,
        overrides=overrides,
        device=device,
        command=command_line(),
        progress=lambda step: say.note(f"{step} …"),
        **given(**options),
    )
    report.save(out, force=force)
    say.result(*result_of(report, out))
