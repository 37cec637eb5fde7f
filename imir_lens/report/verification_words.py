"""What a verification says in words and tables: HTML and Markdown show the same ones."""

from collections.abc import Mapping
from typing import Any, Final

from imir_lens.figures.style import Real, number
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table

LEVEL_MEANINGS: Final[dict[str, str]] = {
    "behaviour": "the model predicts the query by what the examples tell",
    "attention": "a head's attention is close to the posterior over parents, and moves with it",
    "parameters": "the weights compare tokens by log pi, each example with itself",
    "predicted ablations": "what removals cost is what the posterior without the same thing says",
}


def percent(share: Real | None) -> str:
    """Write a share.

    >>> percent(0.9902), percent(None)
    ('99.0 %', '–')
    """
    return number(None) if share is None else f"{100 * share:.1f} %".replace("-", "\N{MINUS SIGN}")


def evidence_step(report: Mapping[str, Any]) -> int:
    """Return how far up the ladder the evidence level stands, from 1; 0 when it is not on it."""
    levels = report["verdict"]["levels"]
    level = report["verdict"]["evidence_level"]
    return levels.index(level) + 1 if level in levels else 0


def small(value: Real | None) -> str:
    """Write a value with three digits; what is rounding is 0."""
    return number(0 if value is not None and abs(value) < 1e-9 else value)


def key_numbers(report: Mapping[str, Any]) -> list[KeyNumber]:
    """The numbers a reader wants first."""
    behaviour, parameters = report["behaviour"], report["parameters"]
    attention, agreed = behaviour["attention"], report["mechanism"]["agreement"]
    out = [
        KeyNumber("information on the parent", _gained(attention["share"]), f"conveyed by {behaviour['reader']}"),
        KeyNumber("KL to the posterior", small(attention["kl"]), f"nats; uniform {small(attention['uniform_kl'])}"),
        KeyNumber(
            "parent loss L_pa",
            small(attention["parent_loss"]),
            f"nats; BMA {small(attention['bma_parent_loss'])}, uniform {small(attention['uniform_parent_loss'])}",
        ),
    ]
    if parameters is not None and parameters["column"] is not None:
        column = parameters["column"]
        out.append(KeyNumber("column error", small(column["mean"]), f"zero kernel {small(column['uniform'])}"))
    elif parameters is not None:
        out.append(KeyNumber("cosine with A", small(parameters["alignment"]), "of the kernel's own blocks"))
    removed = len(report["mechanism"]["ablations"])
    explained = None if agreed is None else agreed["explained"]
    out.append(
        KeyNumber("removals predicted", _gained(explained), f"of the changes of L_pa, at least; {removed} removals")
    )
    return out


def checks_table(report: Mapping[str, Any]) -> Table:
    """What was asked on each level, and what was found."""
    table = Table(
        "What each evidence level asks; a level is reached when its own checks and those before it hold",
        (
            Column("level"),
            Column("what is asked"),
            Column("found", "number"),
            Column("needed", "number"),
            Column("holds"),
        ),
    )
    previous = None
    for check in report["verdict"]["checks"]:
        bound = f"{'≥' if check['at_least'] else '≤'} {number(check['threshold'])}"
        level = check["level"] if check["level"] != previous else ""
        previous = check["level"]
        table.rows.append([level, check["asked"], small(check["found"]), bound, "yes" if check["holds"] else "no"])
    return table


def losses_table(report: Mapping[str, Any]) -> Table:
    """Prediction losses on the query."""
    behaviour = report["behaviour"]
    meanings = {
        "model": ("model", "the model as it is"),
        "known_graph": ("known graph", "one who is told the parents"),
        "bma": ("BMA", "one who infers the parents from the examples: the best possible"),
        "uniform": ("uniform", "one who takes all candidates alike"),
    }
    unit = behaviour["loss_unit"]
    table = Table(
        f"Prediction of the query on {report['evaluation']['contexts']:,} contexts",
        (Column("what"), Column(f"loss ({unit})", "number"), Column("what it is")),
    )
    for name, (title, meaning) in meanings.items():
        table.rows.append([title, number(behaviour["losses"][name]), meaning])
    return table


def heads_table(report: Mapping[str, Any]) -> Table:
    """Every head's attention beside the posterior."""
    table = Table(
        "Attention to candidates beside the posterior, nearest first",
        (
            Column("head", "code"),
            *(
                Column(title, "number")
                for title in ("KL (nats)", "total variation", "L_pa (nats)", "above BMA's (nats)", "mass on candidates")
            ),
        ),
    )
    for head in sorted(report["behaviour"]["heads"], key=lambda head: head["kl"]):
        excess = head["parent_loss"] - head["bma_parent_loss"]
        numbers = (head["kl"], head["total_variation"], head["parent_loss"], excess, head["candidate_mass"])
        table.rows.append([head["head"], *map(small, numbers)])
    return table


def curve_table(report: Mapping[str, Any]) -> Table:
    """L_pa over the number of examples."""
    built = report["behaviour"]["built_for"]
    table = Table(
        "Parent loss L_pa in nats over the number of examples before the query",
        tuple(
            Column(title, "number")
            for title in ("examples", "model", "BMA", f"BMA of the last {built}", "uniform", "KL to the posterior")
        ),
    )
    for point in report["behaviour"]["curve"]:
        fields = ("model", "bma", "bma_seen", "uniform", "kl")
        table.rows.append([str(point["examples"]), *(small(point[field]) for field in fields)])
    return table


def kernel_table(report: Mapping[str, Any]) -> Table | None:
    """Errors of each example's own block; None without a kernel."""
    parameters = report["parameters"]
    if parameters is None:
        return None
    numbers = ("column error", "row error", "scale", "cosine")
    table = Table(
        f"The {parameters['kind']}, block by block, beside {'log pi' if parameters['column'] else 'c1 A'}",
        (Column("block"), *(Column(title, "number") for title in numbers)),
    )
    column, row = parameters["column"], parameters["row"]
    for k, (scale, cosine) in enumerate(zip(parameters["scales"], parameters["alignments"], strict=True)):
        errors = [errors["per_example"][k] if errors else None for errors in (column, row)]
        table.rows.append([f"example {k + 1}", *map(small, (*errors, scale, cosine))])
    if column is not None:
        mean = (column["averaged"], row["averaged"], parameters["scale"], parameters["alignment"])
        table.rows.append(["mean of the blocks", *map(small, mean)])
        table.rows.append(["the same, shuffled", *map(small, (column["shuffled"], row["shuffled"], None, None))])
        table.rows.append(["zero kernel", *map(small, (column["uniform"], row["uniform"], 0, None))])
    return table


def kernel_note(report: Mapping[str, Any]) -> str:
    """Say how block-diagonal the kernel is, and how good the readout."""
    parameters = report["parameters"]
    if parameters is None:
        return "No kernel could be read off the weights."
    parts = []
    if parameters["block_diagonality"] is not None:
        chance = percent(parameters["block_diagonality_by_chance"])
        share = percent(parameters["block_diagonality"])
        parts.append(f"{share} of the kernel compares an example with itself (by chance {chance}).")
    if parameters["readout"] is not None:
        error, none = small(parameters["readout"]), small(parameters["readout_uniform"])
        parts.append(f"The readout W_OV has an error of {error}; one that says nothing, {none}.")
    if not parameters["exact"]:
        parts.append("MLPs and norms are left out: for this model the kernel is a hint.")
    return " ".join(parts)


def copyers_table(report: Mapping[str, Any]) -> Table:
    """Where the copyers look."""
    table = Table(
        "Heads that copy: the share of their attention on one position of the examples",
        (
            Column("head", "code"),
            Column("copies"),
            Column("mostly example", "number"),
            Column("on the same position", "number"),
            Column("on the next position", "number"),
            Column("entropy (nats)", "number"),
        ),
    )
    for copyer in report["mechanism"]["copyers"]:
        words = {"copyer": "the same position", "next-copyer": "the next position", None: "neither"}[copyer["label"]]
        mostly = number(None) if copyer["example"] is None else str(copyer["example"])
        masses = (percent(sum(copyer[mass])) for mass in ("copy_mass", "next_mass"))
        table.rows.append([copyer["head"], words, mostly, *masses, small(copyer["entropy"])])
    return table


def ablations_table(report: Mapping[str, Any]) -> Table:
    """Removals, predicted and measured."""
    table = Table(
        f"What removals do to L_pa, in nats, on {report['evaluation']['ablation_contexts']:,} contexts",
        (Column("without"), Column("predicted", "number"), Column("measured", "number"), Column("error", "number")),
    )
    for row in report["mechanism"]["ablations"]:
        predicted, measured = row["predicted"], row["measured"]
        table.rows.append([row["what"], *map(_change, (predicted, measured, measured - predicted))])
    return table


def provenance_table(report: Mapping[str, Any]) -> Table:
    """Where the report comes from: model, task, sample sizes, seeds, versions."""
    model, task, evaluation, made = (report[key] for key in ("model", "task", "evaluation", "created_with"))
    sizes = ", ".join(f"{name} {value}" for name, value in model["sizes"].items())
    knobs = ", ".join(f"{name} {value}" for name, value in task["knobs"].items())
    curve = f"test contexts {evaluation['test_seed']}, other numbers of examples {evaluation['curve_seed']}"
    rows = [
        ("checkpoint", model["source"]),
        ("sha256", model["sha256"]),
        ("model", f"{model['family']}: {sizes}"),
        ("task", task["name"] + (f": {knobs}" if knobs else "")),
        ("contexts", f"{evaluation['contexts']:,}; removals on {evaluation['ablation_contexts']:,} of them"),
        ("seeds", f"{report['seed']} ({curve})"),
        ("made with", ", ".join(f"{name} {version}" for name, version in made.items() if version)),
    ]
    return Table("Model, task, samples, seeds, versions", (Column("what"), Column("value")), [list(r) for r in rows])


def _change(value: Real) -> str:
    return number(0 if abs(value) < 1e-9 else value, signed=abs(value) >= 1e-9)


def _gained(share: Real | None) -> str:
    """Write a share that has no bound below: worse than nothing is none."""
    return "none" if share is not None and share <= 0 else percent(share)
