"""The tables of a report, as text: HTML and Markdown show the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from imir_lens.figures.style import Real, number, visible
from imir_lens.report.words import KINDS, ROLE_MEANINGS

Kind = Literal["text", "number", "code", "role"]
NATS: Final = "loss if removed (nats)"
RIGHT: Final = "accuracy if removed"


@dataclass(frozen=True)
class Column:
    """A column: `group` is a heading over several of them."""

    title: str
    kind: Kind = "text"
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose cells are text; a cell of kind `code` may list several ids, one a line."""

    caption: str
    columns: tuple[Column, ...]
    rows: list[list[str]] = field(default_factory=list)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over the columns with how many each spans; empty when there are none."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if column.group and spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans if any(name for name, _ in spans) else []


def _both(values: Mapping[str, Real | None] | None) -> list[str]:
    return [number((values or {}).get(side)) for side in ("surrogate", "model")]


_REMOVED: Final = (
    Column("surrogate", "number", NATS),
    Column("model", "number", NATS),
    Column("surrogate", "number", RIGHT),
    Column("model", "number", RIGHT),
)


def units_table(report: Mapping[str, Any]) -> Table:
    """The circuit's units, each removed alone."""
    columns = (Column("role", "role"), Column("unit", "code"), Column("value", "number"), Column("what it does"))
    table = Table("Units of the circuit, each removed alone", (*columns, *_REMOVED))
    for unit in report["circuit"]["units"]:
        row = [unit["role"], unit["id"], number(unit["value"], signed=True), unit["words"]]
        table.rows.append([*row, *_both(unit["loss_if_removed"]), *_both(unit["accuracy_if_removed"])])
    return table


def roles_table(report: Mapping[str, Any]) -> Table:
    """All units of a role, removed together."""
    columns = (Column("role", "role"), Column("meaning"), Column("units", "code"))
    table = Table("All units of a role, removed together", (*columns, *_REMOVED))
    for role in report["circuit"]["roles"]:
        row = [role["role"], ROLE_MEANINGS.get(role["role"].partition("_")[0], ""), "\n".join(role["units"])]
        table.rows.append([*row, *_both(role["loss_if_removed"]), *_both(role.get("accuracy_if_removed"))])
    return table


def kinds_table(report: Mapping[str, Any]) -> Table | None:
    """The model without all coordinates of a kind; None where a circuit was found."""
    found = report["circuit"].get("kinds", [])
    if not found:
        return None
    groups = ("loss (nats)", "accuracy")
    numbers = tuple(Column(side, "number", group) for group in groups for side in ("removed", "shuffled"))
    table = Table(
        "All coordinates of a kind, removed from the model",
        (Column("kind"), Column("what it is"), Column("coordinates", "number"), *numbers),
    )
    for one in found:
        row = [one["kind"], KINDS[one["kind"]], f"{one['coordinates']:,}"]
        scores = [number(one[side][what]) for what in ("loss", "accuracy") for side in ("removed", "shuffled")]
        table.rows.append([*row, *scores])
    return table


def separate_table(report: Mapping[str, Any]) -> Table | None:
    """Circuits without a common unit, each of them alone; None when there are not two."""
    found = report["circuit"].get("separate", [])
    if len(found) < 2:
        return None
    alone = ("loss alone (nats)", "accuracy alone")
    numbers = tuple(Column(side, "number", group) for group in alone for side in ("surrogate", "model"))
    table = Table(
        "Separate circuits, each with everything else removed",
        (Column("circuit"), Column("units", "code"), *numbers, Column("sufficient in the model")),
    )
    for k, one in enumerate(found, start=1):
        row = [str(k), "\n".join(one["units"]), *_both(one["loss"]), *_both(one["accuracy"])]
        table.rows.append([*row, "yes" if one["sufficient"] else "no"])
    return table


_EVALUATED: Final = {
    "model": ("model", "the model as it is"),
    "projection": ("surrogate", "a model made of all the coordinates, nothing else"),
    "surrogate": ("circuit's surrogate", "a model made of the circuit's coordinates alone"),
    "circuit": ("circuit only", "the model with everything outside the circuit's coordinates removed"),
    "without_circuit": ("without circuit", "the model with the circuit's units removed"),
    "chance_ablated": ("nothing kept", "the model with every coordinate removed; what faithfulness counts from"),
    "bayes": ("Bayes", "the best answer anyone can give from the context"),
    "chance": ("chance", "the best answer that ignores the context"),
}


def evaluation_table(report: Mapping[str, Any]) -> Table:
    """Loss and accuracy on the test contexts."""
    table = Table(
        f"On {report['evaluation']['contexts']:,} test contexts",
        (Column("what"), Column("loss (nats)", "number"), Column("accuracy", "number"), Column("what it is")),
    )
    for key, (title, meaning) in _EVALUATED.items():
        if key not in report["evaluation"]:
            continue
        found = report["evaluation"][key] or {}
        table.rows.append([title, number(found.get("loss")), number(found.get("accuracy")), meaning])
    return table


def heads_table(report: Mapping[str, Any]) -> Table:
    """What every head does, measured on patterns and weights."""
    numbers = ("score R²", "offset", "mass there", "match", "copying", "unexplained")
    table = Table(
        "Every head of the model",
        (Column("head", "code"), *(Column(title, "number") for title in numbers), Column("labels")),
    )
    for head in report["heads"]:
        name = f"L{head['layer']}H{head['head']}"
        offset = number(None) if head["offset"] is None else f"{head['offset']:+d}"
        row = [
            name,
            number(head["score_r2"]),
            offset,
            *(number(head[key]) for key in ("copy_mass", "match", "copying")),
        ]
        share = number(report["unexplained"]["per_head"].get(name))
        table.rows.append([*row, share, ", ".join(head["labels"])])
    return table


def coordinates_table(report: Mapping[str, Any], *, most: int = 200) -> Table:
    """The coordinates of largest attribution."""
    listed = report["coordinates"][:most]
    table = Table(
        f"The {len(listed)} coordinates of largest attribution, of {report['search']['coordinates_total']:,}",
        (
            Column("coordinate", "code"),
            Column("role", "role"),
            Column("value", "number"),
            Column("attribution", "number"),
            Column("in the circuit"),
        ),
    )
    for c in listed:
        row = [c["id"], c["role"], number(c["value"], signed=True), number(c["attribution"])]
        table.rows.append([*row, "yes" if c["in_circuit"] else "no"])
    return table


def _contexts(evaluation: Mapping[str, Any]) -> str:
    search = evaluation.get("search_contexts")
    return f"{evaluation['contexts']:,} for the tests" + ("" if search is None else f", {search:,} for the search")


def _vocabulary(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which of the model's tokens it was asked in, where these are not all."""
    if "vocabulary" not in model:
        return []
    own = model["vocabulary"]
    rest = ", …" if own["size"] - (own["filler"] is not None) > len(own["words"]) else ""
    filler = "no filler" if own["filler"] is None else f"filler is its token {own['filler']}"
    words = ", ".join(visible(word) for word in own["words"])
    return [
        ("tokens", f"asked in {own['size']:,} of its {model['d_vocab']:,} tokens; {filler}; words: {words}{rest}"),
        ("sha256 of their ids", own["ids_sha256"]),
    ]


def provenance_table(report: Mapping[str, Any]) -> Table:
    """Where the report comes from: model, task, sample sizes, seeds, versions."""
    model, task, evaluation = report["model"], report["task"], report["evaluation"]
    search, circuit, made = report["search"], report["circuit"], report["created_with"]
    shape = (
        f"{model['n_layers']} layers of {model['n_heads']} heads, d_model {model['d_model']}, "
        f"d_head {model['d_head']}, vocabulary {model['d_vocab']}, context {model['n_ctx']}"
    )
    kind = (
        f"positions {model['positions'] or 'none'}, normalisation {model['normalization'] or 'none'}, "
        f"{'attention only' if model['attn_only'] else 'with MLPs'}"
    )
    cut = f"{search['paths']:,} used, {search['paths_cut']:,} cut (these contribute at most {number(search['bound'])})"
    knobs = ", ".join(f"{name} {value}" for name, value in task["knobs"].items())
    rows = [
        ("checkpoint", model["source"]),
        ("sha256", model["sha256"] or "none: a live model"),
        ("model", f"{model['family']}: {shape}"),
        ("", kind),
        *_vocabulary(model),
        ("task", task["name"] + (f": {knobs}" if knobs else "")),
        ("contexts", _contexts(evaluation)),
        (
            "seeds",
            f"{report['seed']} (search contexts {evaluation['search_seed']}, test contexts {evaluation['test_seed']})",
        ),
        ("coordinates", f"{search['coordinates_total']:,}"),
        ("paths", cut),
        ("loss budget", f"{number(circuit['budget'])} of the way from the surrogate's loss to that of no coordinates"),
        (
            "search",
            f"{circuit['evaluations']} evaluations, {circuit['gradient_passes']} gradient passes, "
            f"{number(circuit['seconds'])} s",
        ),
        ("ablation", report["ablation"]),
        ("made with", ", ".join(f"{name} {version}" for name, version in made.items() if version)),
    ]
    return Table(
        "Model, task, samples, seeds, versions", (Column("what"), Column("value")), [list(row) for row in rows]
    )
