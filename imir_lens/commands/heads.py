"""`imir-lens heads`: what every head of a model does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.shared import (
    PLACE,
    Output,
    command,
    command_line,
    given,
    model_option,
    parse_fields,
    seed_option,
)
from imir_lens.errors import OptionError

if TYPE_CHECKING:
    from imir_lens.report.atlas_document import Atlas


@click.command()
@click.argument("checkpoint", type=PLACE)
@click.option("--data", is_flag=True, help="Measure patterns on repeated random tokens as well.")
@click.option(
    "--check", type=int, metavar="N", help="Remove coordinates of the N top heads, and of as many random ones."
)
@click.option("--relation", type=PLACE, metavar="FILE", help="Pairs of token ids, a pair a line, for the assoc scores.")
@model_option
@click.option("--config", type=PLACE, metavar="FILE", help="The model's config as a JSON file.")
@click.option("--contexts", type=int, metavar="N", help="Contexts of repeated tokens.  [default: 8]")
@click.option("--length", type=int, metavar="N", help="Tokens before the repetition.  [default: 64]")
@click.option(
    "--bound", type=float, metavar="B", help="Least mass of heads looked through one by one.  [default: 0.05]"
)
@click.option("--effect", type=float, metavar="Z", help="Least z of a label from the weights.  [default: 2]")
@seed_option
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where the atlas goes.")
@click.option("--force", is_flag=True, help="Replace an older atlas in DIR.")
@command
def heads(
    checkpoint: Path,
    data: bool,
    check: int | None,
    relation: Path | None,
    fields: tuple[str, ...],
    config: Path | None,
    out: Path,
    force: bool,
    say: Output,
    device: str | None,
    **options: Any,
) -> None:
    """Say what every head of CHECKPOINT does, and write the table to DIR.

    By default from the weights alone, without any prompt. CHECKPOINT is as in `analyze`; a language model takes seconds
    for the weights, and a minute or two with --data and --check.
    """
    overrides = parse_fields(fields)
    pairs = None if relation is None else read_relation(relation)
    from imir_lens.report.storage import check_output

    check_output(out, force=force)
    say.note("open the model …")

    from imir_lens.atlas.pipeline import heads_atlas

    with _shown(say) as progress:
        atlas = heads_atlas(
            checkpoint,
            data=data,
            check=check or 0,
            relation=pairs,
            config=config,
            overrides=overrides,
            device=device,
            command=command_line(),
            progress=progress,
            **given(**options),
        )
    atlas.save(out, force=force)
    say.result(*result_of(atlas, out))


def read_relation(path: Path) -> list[tuple[int, int]]:
    """Read pairs of token ids, two numbers a line; empty lines and those that begin with # are skipped.

    Raises:
        OptionError: when the file cannot be read, holds no pair, or a line is not a pair.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(f"cannot read the relation {str(path)!r}: {reason}") from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        parts = line.replace(",", " ").split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise OptionError(f"{path}, line {number}: expected two token ids such as '17 42', found {line[:40]!r}")
        pairs.append((int(parts[0]), int(parts[1])))
    if not pairs:
        raise OptionError(f"{path}: expected pairs of token ids, a pair a line, found none")
    return pairs


def result_of(atlas: "Atlas", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return an atlas' gist, as JSON values and as lines."""
    from imir_lens.report import atlas_tables as tables

    data, page = atlas.data, directory / "heads.html"
    found = {row[0]: row[2:] for row in tables.labels_table(data).rows}
    lines = [f"{name:<16} {weights}" for name, (weights, _) in found.items() if weights != tables.MISSING]
    if data["data"] is not None:
        lines += [
            "",
            "by patterns:",
            *(f"{name:<16} {seen}" for name, (_, seen) in found.items() if seen != tables.MISSING),
        ]
        lines += ["", *_agreement(data)]
    if data["check"] is not None:
        lines += ["", *(f"{row[0]:<40} gain {row[3]:>7}  {row[4]}" for row in tables.check_table(data).rows)]
    lines += ["", tables.paths_note(data), "", f"atlas     {page}"]
    keys = ("command", "seed", "model", "thresholds", "paths", "data", "check")
    labels = {head["head"]: head["labels"] for head in data["heads"] if head["labels"]}
    return {"out": str(directory), "page": str(page), **{key: data[key] for key in keys}, "labels": labels}, lines


def _agreement(data: dict[str, Any]) -> list[str]:
    rows = [row for row in data["data"]["agreement"] if row["auc"] is not None]
    return [
        f"{row['kind']:<16} by {row['score']}: AUC {row['auc']:.3f}, precision at 5 {row['precision_at_5']:.1f} "
        f"({row['positive']} heads with attention of {row['share']:g} or more)"
        for row in rows
    ]


@contextmanager
def _shown(say: Output) -> Iterator[Callable[[str, float], None]]:
    """Show a bar a step on a terminal, and a line a step elsewhere."""
    if not say.terminal:
        seen: set[str] = set()

        def note(step: str, done: float) -> None:
            if step not in seen:
                seen.add(step)
                say.note(f"{step} …")

        yield note
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        lines: dict[str, Any] = {}

        def show(step: str, done: float) -> None:
            if step not in lines:
                lines[step] = bar.add_task(step, total=1.0)
            bar.update(lines[step], completed=done)

        yield show
