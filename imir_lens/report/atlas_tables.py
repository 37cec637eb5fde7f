"""The tables of an atlas, as text: HTML and Markdown show the same ones, and the CSV all numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.style import number
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table

MISSING: Final = number(None)
MOST: Final = 40  # heads named in one cell
NAMES: Final = {
    "previous_token": "previous token",
    "induction": "induction",
    "duplicate_token": "duplicate token",
    "copying": "copying",
    "sink": "sink",
}
MEANINGS: Final = {
    "previous_token": "attends one back, whatever the tokens",
    "induction": "attends to what followed an earlier showing of its token",
    "duplicate_token": "attends to an earlier showing of its token",
    "copying": "raises the logit of the token it attends to",
    "sink": "attends to the first position",
}


def key_numbers(data: Mapping[str, Any]) -> list[KeyNumber]:
    """The numbers a reader wants first."""
    out = [KeyNumber("heads", str(len(data["heads"])), f"in {data['model']['n_layers']} layers")]
    for name in ("previous_token", "induction", "duplicate_token", "copying"):
        found = [head for head in data["heads"] if _has(head, name, "weights")]
        out.append(KeyNumber(f"{NAMES[name]} heads", str(len(found)), "by the weights alone"))
    if data["data"] is not None:
        out.append(KeyNumber("repetition gain", number(gain_of(data["data"])), "nats a token, second showing"))
    if data["check"] is not None:
        gains = {row["removed"]: row["gain"] for row in data["check"]["gains"]}
        left = gains["top coordinates, sizes from weights"]
        note = f"with the match coordinates of {len(data['check']['top'])} heads gone"
        out.append(KeyNumber("gain left", number(left), note))
    return out


def gain_of(measured: Mapping[str, Any]) -> float:
    """Return the repetition gain of the data."""
    return float(measured["loss_first"] - measured["loss_second"])


def labels_table(data: Mapping[str, Any]) -> Table:
    """Which heads have which label."""
    table = Table(
        "Which heads have which label",
        (Column("label"), Column("meaning"), Column("by weights"), Column("by patterns")),
    )
    for name, title in NAMES.items():
        row = [title, MEANINGS[name]]
        for source in ("weights", "patterns"):
            heads = [head["head"] for head in data["heads"] if _has(head, name, source)]
            known = name != {"weights": "sink", "patterns": "copying"}[source]
            measured = known and (source == "weights" or data["data"] is not None)
            row.append(_listed(heads) if measured else MISSING)
        table.rows.append(row)
    return table


def _listed(heads: Sequence[str]) -> str:
    """Name the heads, or count them where there are too many to read."""
    return (" ".join(heads) or "none") if len(heads) <= MOST else f"{len(heads)} heads"


def heads_table(data: Mapping[str, Any], *, labelled_only: bool = False) -> Table:
    """All heads, or those with a label, with their scores."""
    columns = [
        Column("head"),
        Column("labels"),
        Column("one back", "number", "kernel"),
        Column("mass", "number", "kernel"),
        Column("own", "number", "match (z)"),
        Column("copied", "number", "match (z)"),
        Column("best through", "text", "match (z)"),
        Column("copying", "number", "readout (z)"),
    ]
    if any(head["assoc_readout"] for head in data["heads"]):
        columns.append(Column("assoc", "number", "readout (z)"))
    if data["data"] is not None:
        columns += [Column(NAMES[name], "number", "attention") for name in NAMES if name != "copying"]
        columns.append(Column("explained", "number", "scores"))
    if data["check"] is not None:
        columns += [Column("coordinate", "number", "removal (nats)"), Column("head", "number", "removal (nats)")]
    table = Table("Heads with a label" if labelled_only else "All heads", tuple(columns))
    for head in data["heads"]:
        if not labelled_only or head["labels"]:
            table.rows.append(_row(head, data))
    return table


def _row(head: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    previous, best = head["previous_token"], head["same_through"][:1]
    row = [
        head["head"],
        ", ".join(dict.fromkeys(NAMES[label["name"]] for label in head["labels"])),
        number(previous["z"]),
        f"{previous['mass']:.2f}",
        number(head["same"]["z"]),
        number(head["same_copied"]["z"]),
        f"{best[0]['head']} {number(best[0]['z'])}" if best else "",
        number(head["copying"]["z"]),
    ]
    if any(other["assoc_readout"] for other in data["heads"]):
        row.append(number(head["assoc_readout"]["z"]))
    if data["data"] is not None:
        row += [f"{head['patterns'][name]:.2f}" for name in NAMES if name != "copying"]
        row.append(f"{head['explained']['r2']:.2f}")
    if data["check"] is not None:
        removed = head["removed"]
        row += [number(None)] * 2 if removed is None else [number(removed[part]) for part in ("coordinate", "head")]
    return row


def evidence_table(data: Mapping[str, Any]) -> Table:
    """Every label with its evidence."""
    table = Table("Evidence", (Column("head"), Column("label"), Column("from"), Column("evidence")))
    for head in data["heads"]:
        for label in head["labels"]:
            if label["name"] != "sink":  # in large models most heads are; their attention stands in the table
                table.rows.append([head["head"], NAMES[label["name"]], label["source"], label["evidence"]])
    return table


def agreement_table(data: Mapping[str, Any]) -> Table:
    """How well the weights name the heads that patterns show."""
    columns = [Column("kind"), Column("score")]
    titles = ("attention at least", "heads", "AUC", "precision at 5", "of the five strongest")
    columns += [Column(title, "number") for title in titles]
    table = Table("Scores of the weights against patterns", tuple(columns))
    for row in data["data"]["agreement"]:
        cells = [NAMES[row["kind"]], row["score"], number(row["share"]), str(row["positive"])]
        table.rows.append([*cells, *(number(row[name]) for name in ("auc", "precision_at_5", "overlap_at_5"))])
    return table


def check_table(data: Mapping[str, Any]) -> Table:
    """What becomes of the repetition gain."""
    columns = [Column("removed")]
    columns += [
        Column(title, "number") for title in ("loss, first showing", "loss, second", "gain (nats)", "gain left")
    ]
    table = Table("Removals", tuple(columns))
    rows = data["check"]["gains"]
    whole = rows[0]["gain"]
    for row in rows:
        name = "nothing" if row["removed"] == "model" else row["removed"]
        share = f"{round(100 * row['gain'] / whole) + 0}%" if whole else number(None)
        values = [number(row[part]) for part in ("loss_first", "loss_second", "gain")]
        table.rows.append([name, *values, share])
    return table


def provenance_table(data: Mapping[str, Any]) -> Table:
    """Where the atlas comes from."""
    model, made = data["model"], data["created_with"]
    rows = [
        ["model", f"{model['source']} ({model['family']})"],
        ["SHA-256", model["sha256"]],
        ["tokens enter as", data["settings"]["token_source"]],
        ["seed", str(data["seed"])],
        ["made with", ", ".join(f"{name} {version}" for name, version in made.items())],
    ]
    return Table("Provenance", (Column(""), Column("")), rows)


def thresholds_note(data: Mapping[str, Any]) -> str:
    """Say in numbers what a label needs."""
    needed = data["thresholds"]
    return (
        f"A label from the weights needs z ≥ {needed['effect']:g} (standard deviations over pairs of tokens), and a "
        f"contrast of at least {needed['chance']:.2f} standard deviations of what chance gives: then a model of "
        f"chance has any label at all with probability {needed['error']:g} ({needed['n_tests']:,} tests, Bonferroni). "
        f"A previous token head's kernel peaks at 1 with {needed['mass']:g} of the attention, and needs no z with "
        f"{needed['mass_alone']:g} of it; an induction head matches through one of these, and better than with its own "
        f"token. A label from patterns needs {needed['share']:g} of the attention."
    )


def paths_note(data: Mapping[str, Any]) -> str:
    """Say which upstream heads were looked through, and which were not."""
    paths = data["paths"]
    if not paths["skipped"]:
        return f"Looked through all {paths['chosen']:,} pairs of a head and an upstream head one by one."
    return (
        f"Looked through {paths['chosen']:,} pairs of a head and an upstream head one by one; skipped "
        f"{paths['skipped']:,} whose upstream head gives the previous token less than {paths['bound']:g} of its "
        f"attention by its kernel (at most {paths['largest_skipped']:.3f}). The match with copied tokens has all of "
        "them."
    )


def csv_rows(data: Mapping[str, Any]) -> list[list[Any]]:
    """Return all numbers of the heads: a line of names, then a line for each head; empty where not measured."""
    flat = [_flat(head) for head in data["heads"]]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return [names, *([row.get(name, "") for name in names] for row in flat)]


def _flat(head: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {name: head[name] for name in ("head", "layer", "index")}
    out["labels"] = " ".join(dict.fromkeys(label["name"] for label in head["labels"]))
    for name, value in head.items():
        if isinstance(value, Mapping):
            out |= {f"{name}.{part}": item for part, item in value.items() if not isinstance(item, list)}
        elif isinstance(value, float):
            out[name] = value
    if head["same_through"]:
        out["same_through.head"], out["same_through.z"] = head["same_through"][0].values()
    return out


def _has(head: Mapping[str, Any], name: str, source: str) -> bool:
    return any(label["name"] == name and label["source"] == source for label in head["labels"])
