"""Three small charts of a verification: L_pa over the number of examples, kernel errors, and predicted removals."""

from collections.abc import Mapping
from typing import Any, Final

from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, Mark, key, mark, words
from imir_lens.figures.style import number, svg

WIDTH: Final = 560.0
HEIGHT: Final = 270.0
SQUARE: Final = 340.0


def curve_figure(report: Mapping[str, Any], *, name: str = "examples") -> str:
    """Draw L_pa over L', the number of examples before the query.

    Args:
        report: the data of a verification; reads `behaviour.curve` and `behaviour.built_for`.
        name: prefix of the element ids.
    """
    points, built = report["behaviour"]["curve"], report["behaviour"]["built_for"]
    counts = [point["examples"] for point in points]
    most = 1.12 * max(max(point[field] for field in ("model", "bma", "uniform")) for point in points)
    ends = (counts[0], counts[-1]) if len(counts) > 1 else (counts[0] / 1.5, counts[0] * 1.5)
    axes = Axes(LEFT, ABOVE, WIDTH, HEIGHT, (ends[0] / 1.08, ends[1] * 1.08), (0, most), log_x=True)
    out = [axes.frame("", "examples before the query, L'", "parent loss L_pa, in nats", x_ticks=counts)]
    at = axes.x(built)
    out.append(f'<path class="rule" stroke-dasharray="3 3" d="M{at:.1f} {ABOVE:.1f}v{HEIGHT:.1f}"/>')
    flip = at > axes.left + 0.7 * WIDTH
    out.append(
        words(
            at + (-5 if flip else 5), ABOVE + 14, f"the task's L = {built}", "muted", anchor="end" if flip else "start"
        )
    )
    lines = (
        ("uniform", "r-auxiliary", "2 4", "square"),
        ("bma_seen", "r-delta", "2 4", "diamond"),
        ("bma", "r-gamma", "7 4", "diamond"),
        ("model", "r-alpha", "", "circle"),
    )
    shapes: dict[str, Mark] = {"circle": "circle", "square": "square", "diamond": "diamond"}
    beyond = any(point["bma_seen"] != point["bma"] for point in points)
    for field, colour, dash, shape in lines:
        if field == "bma_seen" and not beyond:
            continue
        drawn = [point for point in points if field != "bma_seen" or point["examples"] >= built]
        out.append(axes.line([(p["examples"], p[field]) for p in drawn], colour, dash=dash))
        for p in drawn:
            note = f"{p['examples']} examples, {field}: {number(p[field])} nats"
            size = 4.2 if field == "model" else 3
            out.append(axes.mark(p["examples"], p[field], colour, shape=shapes[shape], size=size, title=note))
    entries: list[Any] = [("model", "r-alpha", "line"), ("BMA", "r-gamma", "dashed")]
    entries += [(f"BMA of the last {built}", "r-delta", "dotted")] if beyond else []
    bottom = ABOVE + HEIGHT + BELOW + 18
    out.append(key(LEFT, bottom, [*entries, ("uniform", "r-auxiliary", "dotted")]))
    return svg(
        LEFT + WIDTH + 14,
        bottom + 10,
        "".join(out),
        name=name,
        title="Parent loss over the number of examples",
        description="; ".join(
            f"{p['examples']} examples: model {number(p['model'])}, BMA {number(p['bma'])}, "
            f"uniform {number(p['uniform'])}"
            for p in points
        ),
    )


def errors_figure(report: Mapping[str, Any], *, name: str = "errors") -> str:
    """Draw column and row errors of each example's block, and of their mean.

    Args:
        report: the data of a verification; reads `parameters.column` and `parameters.row`, which must be there.
        name: prefix of the element ids.
    """
    column, row = report["parameters"]["column"], report["parameters"]["row"]
    names = [f"example {k + 1}" for k in range(len(column["per_example"]))]
    values = [*zip(column["per_example"], row["per_example"], strict=True), (column["averaged"], row["averaged"])]
    step = 24.0 if len(values) <= 12 else 260 / len(values)
    label = 84.0
    high = 1.1 * max(column["uniform"], row["uniform"], *(max(pair) for pair in values))
    axes = Axes(label, ABOVE + 8, WIDTH, step * len(values) + 8, (0, high), (0, 1))
    out = [axes.frame("", "error: mean total variation to pi", "", y_ticks=[])]
    for value, colour, title in (
        (column["uniform"], "r-alpha", "zero kernel, column"),
        (row["uniform"], "r-beta", "zero kernel, row"),
    ):
        x = axes.x(value)
        out.append(f'<path class="edge {colour}" stroke-width="1.4" stroke-dasharray="4 4" ')
        out.append(f'd="M{x:.1f} {axes.top:.1f}v{axes.height:.1f}"><title>{title}: {number(value)}</title></path>')
    for k, (name_of, (c, r)) in enumerate(zip([*names, "their mean"], values, strict=True)):
        y = axes.top + 4 + (k + 0.5) * step
        style = "strong" if k == len(names) else "muted"
        if step > 11:
            out.append(words(label - 8, y + 4, name_of, style, anchor="end"))
        out.append(f'<path class="rule" d="M{axes.x(c):.1f} {y:.1f}H{axes.x(r):.1f}"/>')
        out.append(mark(axes.x(c), y, "r-alpha", size=4.6, title=f"{name_of}, column error {number(c)}"))
        out.append(mark(axes.x(r), y, "r-beta", shape="square", size=4.2, title=f"{name_of}, row error {number(r)}"))
    bottom = axes.top + axes.height + BELOW + 16
    out.append(
        key(
            label,
            bottom,
            [
                ("column error", "r-alpha", "circle"),
                ("row error", "r-beta", "square"),
                ("zero kernel, each", "r-auxiliary", "dashed"),
            ],
        )
    )
    return svg(
        label + WIDTH + 14,
        bottom + 10,
        "".join(out),
        name=name,
        title="Column and row errors of the kernel",
        description=f"Column error on average {number(column['averaged'])} (zero kernel {number(column['uniform'])}), "
        f"row error {number(row['averaged'])} (zero kernel {number(row['uniform'])}). Training fixes columns and not "
        "rows: a constant in a column changes no attention.",
    )


_KINDS: Final[tuple[tuple[str, str, Mark, str], ...]] = (
    ("example", "r-alpha", "circle", "an example"),
    ("head", "r-beta", "square", "a copyer head"),
    ("relation", "r-gamma", "diamond", "a relation of the kernel"),
)


def ablations_figure(report: Mapping[str, Any], *, name: str = "ablations") -> str:
    """Draw measured over predicted changes of L_pa.

    Args:
        report: the data of a verification; reads `mechanism.ablations`, which must hold some.
        name: prefix of the element ids.
    """
    rows = report["mechanism"]["ablations"]
    groups = [("example", "head"), ("relation",)]
    panels = [(kinds, some) for kinds in groups if (some := [row for row in rows if row["kind"] in kinds])]
    out, left = [], LEFT + 8
    for kinds, some in panels:
        values = [row[side] for row in some for side in ("predicted", "measured")]
        low, high = min([0.0, *values]), max([1e-3, *values])
        pad = 0.08 * (high - low)
        span = (low - pad, high + pad)
        axes = Axes(left, ABOVE, SQUARE, SQUARE, span, span)
        heading = "Examples and copyer heads" if "example" in kinds else "Relations of the kernel"
        out += [axes.frame(heading, "predicted change of L_pa, in nats", "measured change, in nats"), axes.diagonal()]
        for kind, colour, shape, _ in _KINDS:
            for row in some:
                if row["kind"] == kind:
                    values_ = f"predicted {number(row['predicted'])}, measured {number(row['measured'])} nats"
                    x, y, note = row["predicted"], row["measured"], f"{row['what']}: {values_}"
                    out.append(axes.mark(x, y, colour, shape=shape, size=5, opacity=0.75, title=note))
        left += SQUARE + 84
    entries: list[Any] = [
        (f"without {thing}", colour, shape)
        for kind, colour, shape, thing in _KINDS
        if any(row["kind"] == kind for row in rows)
    ]
    bottom = ABOVE + SQUARE + BELOW + 18
    out.append(key(LEFT + 8, bottom, entries))
    return svg(
        max(left - 84 + 14, LEFT + 8 + sum(6.4 * len(entry[0]) + 37 for entry in entries)),
        bottom + 10,
        "".join(out),
        name=name,
        title="Removals: predicted and measured change of the parent loss",
        description="; ".join(
            f"{row['what']}: predicted {number(row['predicted'])}, measured {number(row['measured'])}" for row in rows
        ),
    )
