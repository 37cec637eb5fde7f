"""`imir-lens demo`: train a small recall model, analyse it, write the report."""

from pathlib import Path

import click

from imir_lens.commands.report import result_of
from imir_lens.commands.shared import PLACE, Output, command, command_line, score_line
from imir_lens.commands.train import hint, shown, training_result
from imir_lens.errors import OptionError


@click.command()
@click.option(
    "--out",
    type=PLACE,
    metavar="DIR",
    default=Path("demo-report"),
    help="Where the report goes, with the trained model in DIR/run.  [default: demo-report]",
)
@command
def demo(out: Path, say: Output, device: str | None) -> None:
    """Train a small recall model, analyse it, and write the report: about a minute.

    Run again, it goes on where it was and makes the report anew.
    """
    from imir_lens.report.storage import check_output

    check_output(out, force=True)
    run = out / "run"
    again = (run / "run.json").is_file()
    if not again and out.is_dir() and any(out.iterdir()):
        raise OptionError(f"{str(out)!r} exists and does not come from a demo; choose another --out")

    from imir_lens.pipeline import analyze
    from imir_lens.training.loop import train
    from imir_lens.training.recipes import DEMO

    say.note(f"training a {DEMO.config.n_layers}-layer model on {DEMO.task.name}")
    with shown(say, DEMO.options["steps"]) as progress, hint(say, run, ""):
        try:
            trained = train(
                DEMO.task, DEMO.config, run=run, device=device, resume=again, progress=progress, **DEMO.options
            )
        except OptionError as error:
            raise OptionError(f"{error}; or choose another --out") from error
    result = training_result(trained)
    say.note(score_line("model", result["model"]))
    report = analyze(run, DEMO.task, device=device, command=command_line(), progress=lambda step: say.note(f"{step} …"))
    report.save(out, force=True)
    data, lines = result_of(report, out)
    say.result({**data, "training": result}, lines)
