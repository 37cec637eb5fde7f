"""`imir-lens verify`: whether a model infers a hidden causal graph by Bayesian averaging."""

from pathlib import Path
from typing import Any

import click

from imir_lens.commands.places import task_of
from imir_lens.commands.report import verification_result
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
from imir_lens.errors import OptionError


@click.command()
@click.argument("checkpoint", type=PLACE)
@click.option("--task", metavar="TASK", help="The task; a run of training knows its own.")
@knob_option
@model_option
@click.option("--config", type=PLACE, metavar="FILE", help="The model's config as a JSON file.")
@click.option("--contexts", type=int, metavar="N", help="Test contexts.  [default: 512]")
@click.option(
    "--test-examples",
    metavar="N,N",
    help="Numbers of examples for the parent loss over L'.  [default: 1,2,3,5,10,20 and the task's]",
)
@seed_option
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where the report goes.")
@click.option("--force", is_flag=True, help="Replace an older report in DIR.")
@command
def verify(
    checkpoint: Path,
    task: str | None,
    knobs: tuple[str, ...],
    fields: tuple[str, ...],
    config: Path | None,
    test_examples: str | None,
    out: Path,
    force: bool,
    say: Output,
    device: str | None,
    **options: Any,
) -> None:
    """Verify in three tiers whether CHECKPOINT infers hidden causal graphs by Bayesian averaging.

    CHECKPOINT is a causal transformer, or an ordinary transformer trained on the flattened episodes: a .pt or .pth
    file, a .safetensors file with its config.json, a directory with them, or a run of training. The task is the one it
    was trained on, with the same kernel (--set kernel_seed=N).
    """
    overrides, counts = parse_fields(fields), _counts(test_examples)
    from imir_lens.report.storage import check_output
    from imir_lens.tasks.registry import causal_task

    check_output(out, force=force)
    name, settings = task_of(checkpoint, task, knobs, say=say, example="causal_tree, say")
    chosen = causal_task(name, **settings)

    from imir_lens.verification import verify as run_verify

    report = run_verify(
        checkpoint,
        chosen,
        config=config,
        overrides=overrides,
        test_examples=counts,
        device=device,
        command=command_line(),
        progress=lambda step: say.note(f"{step} …"),
        **given(**options),
    )
    report.save(out, force=force)
    say.result(*verification_result(report, out))


def _counts(text: str | None) -> list[int] | None:
    """Read `1,2,10`."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 6 for word in words):
        raise OptionError(f"--test-examples takes numbers like 1,2,10: found {text!r}")
    return [int(word) for word in words]
