"""The circuit as a graph: columns are layers, nodes heads, edges units.

A unit that compares raw tokens or positions is a loop on its head (`offset+1`); one that reads through another head is
an edge from that head; a readout is an edge to the output. Edges that skip a column run in lanes above or below the
heads, so that nothing passes behind a node. Thickness grows with a unit's effect: what the model loses without it, or
where nothing was removed its attribution.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from imir_lens.figures.graph_layout import (
    LANE,
    LOOP,
    MOST_LOOPS,
    NODE_HEIGHT,
    NODE_WIDTH,
    Canvas,
    Edge,
    Node,
    Unit,
    column_width,
    edges_of,
    is_loop,
    parse_units,
)
from imir_lens.figures.style import Real, markup, number, role_class, role_symbol, shorten, svg, text_width
from imir_lens.ids import Head

MOST_IDLE: Final = 4


@dataclass(frozen=True)
class Effects:
    """What each unit does, in nats, by its id.

    Attributes:
        nats: the effects; thickness is the square root of the positive ones, scaled to 1.6..8.
        notes: the same in words, shown where a unit is pointed at.
        meaning: what a thicker line says, for the legend.
        strongest: the effect of the thickest line; None, the largest of these.
    """

    nats: Mapping[str, Real]
    notes: Mapping[str, str]
    meaning: str
    strongest: Real | None = None

    def width(self, unit: Unit) -> float:
        """Return how thick a unit is drawn."""
        most = max(self.nats.values(), default=0.0) if self.strongest is None else self.strongest
        return 1.6 + 6.4 * math.sqrt(max(0.0, self.nats[unit["id"]]) / most) if most > 0 else 1.6

    def tooltip(self, unit: Unit) -> str:
        """Return what is shown where a unit is pointed at."""
        text = f"{unit['id']} ({unit['role']}, value {number(unit['value'], signed=True)}): {unit.get('words', '')} "
        return f"<title>{markup(text + self.notes[unit['id']])}</title>"


def removal_effects(report: Mapping[str, Any]) -> Effects:
    """Return what the real model loses without each unit of a report."""
    baseline = report["evaluation"]["model"]["loss"]
    losses = {unit["id"]: unit["loss_if_removed"]["model"] for unit in report["circuit"]["units"]}
    return Effects(
        {name: (loss or baseline) - baseline for name, loss in losses.items()},
        {name: f"Loss when removed from the model: {number(loss)} nats." for name, loss in losses.items()},
        "the model loses more when it is removed",
    )


def _relation(unit: Unit) -> str:
    return str(unit["id"]).rpartition("/")[2]


def _label(unit: Unit, x: float, y: float, effects: Effects) -> str:
    """Draw a pill: the role's sign, the relation and the value."""
    sign, name = role_symbol(unit["role"]), shorten(_relation(unit), 20)
    value = number(unit["value"], signed=True)
    width = _pill_width(unit)
    role = role_class(unit["role"])
    return (
        f'<g>{effects.tooltip(unit)}<rect class="pill {role}" '
        f'stroke-width="{min(3.0, 0.8 + effects.width(unit) / 4):.1f}" rx="10" '
        f'x="{x - width / 2:.1f}" y="{y - 10:.1f}" width="{width:.1f}" height="20"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" font-size="11.5" text-anchor="middle"><tspan class="strong fill {role}">'
        f'{markup(sign)}</tspan> {markup(name)} <tspan class="muted">{value}</tspan></text></g>'
    )


def _pill_width(unit: Unit) -> float:
    words = f"{role_symbol(unit['role'])} {shorten(_relation(unit), 20)} {number(unit['value'], signed=True)}"
    return text_width(words, 11.5) * 0.93 + 16


def _arrowhead(x: float, y: float, thick: float, role: str) -> str:
    size = 4.5 + thick * 0.55
    points = f"{x + 7:.1f},{y:.1f} {x + 7 - size * 1.6:.1f},{y - size:.1f} {x + 7 - size * 1.6:.1f},{y + size:.1f}"
    return f'<polygon class="fill {role}" points="{points}"/>'


def _draw_edge(canvas: Canvas, edge: Edge, effects: Effects) -> tuple[str, str]:
    """Return an edge's line and its label (drawn later, above all lines)."""
    path, points = canvas.route(edge)
    if edge.unit is None:
        return f'<path class="value" d="{path}"><title>what the head moves</title></path>', ""
    role = role_class(edge.unit["role"])
    thick = effects.width(edge.unit)
    minor = not edge.labelled
    stroke = 1.6 if minor else thick
    dash = ' stroke-dasharray="5 5"' if minor and edge.side in ("query", "key") else ""
    line = f'<path class="edge {role}" stroke-width="{stroke:.1f}"{dash} d="{path}">{effects.tooltip(edge.unit)}</path>'
    x, y = path.split()[-2], path.split()[-1]
    line += _arrowhead(float(x), float(y), stroke, role)
    if minor:
        return line, ""
    label_x, label_y = canvas.place(points, _pill_width(edge.unit))
    return line, _label(edge.unit, label_x, label_y, effects)


def _draw_loops(node: Node, effects: Effects) -> tuple[str, str]:
    lines, labels = [], []
    shown = node.loops if len(node.loops) <= MOST_LOOPS else node.loops[: MOST_LOOPS - 1]
    top = node.y - NODE_HEIGHT / 2
    for k, unit in enumerate(shown):
        role, thick, up = role_class(unit["role"]), effects.width(unit), LOOP * (k + 1) - 6
        w = 20.0 + 9 * k
        lines.append(
            f'<path class="edge {role}" stroke-width="{thick:.1f}" d="M{node.x - w:.1f} {top:.1f}V{top - up + 8:.1f}'
            f"q0 -8 8 -8H{node.x + w - 8:.1f}q8 0 8 8V{top - 8:.1f}"
            f'">{effects.tooltip(unit)}</path>'
        )
        size = 3.6 + thick * 0.5
        x = node.x + w
        lines.append(
            f'<polygon class="fill {role}" points="{x:.1f},{top - 1:.1f} {x - size:.1f},{top - 1 - size * 1.5:.1f} '
            f'{x + size:.1f},{top - 1 - size * 1.5:.1f}"/>'
        )
        labels.append(_label(unit, node.x, top - up, effects))
    if len(shown) < len(node.loops):
        more = f"+{len(node.loops) - len(shown)} more in the table"
        labels.append(
            f'<text class="muted" x="{node.x:.1f}" y="{top - LOOP * MOST_LOOPS + 8:.1f}" font-size="11" '
            f'text-anchor="middle">{more}</text>'
        )
    return "".join(lines), "".join(labels)


def _draw_node(node: Node, label: str, note: str) -> str:
    y = node.y - NODE_HEIGHT / 2
    text = f'<text class="{"strong" if node.used else "muted"}" x="{node.x:.1f}" y="{node.y + (0 if note else 5):.1f}" '
    text += f'font-size="14" text-anchor="middle">{markup(label)}</text>'
    if note:
        text += f'<text class="muted" x="{node.x:.1f}" y="{node.y + 14:.1f}" font-size="10.5" text-anchor="middle">'
        text += f"{markup(note)}</text>"
    return (
        f'<rect class="{"node" if node.used else "idle"}" rx="9" x="{node.left:.1f}" y="{y:.1f}" '
        f'width="{NODE_WIDTH:g}" height="{NODE_HEIGHT:g}"/>{text}'
    )


def circuit_graph(report: Mapping[str, Any], *, name: str = "circuit") -> str:
    """Draw the circuit of a report.

    Args:
        report: the report's data; reads `model`, `evaluation.model.loss` and `circuit.units`.
        name: prefix of the element ids.

    Returns:
        an SVG element (see `imir_lens.figures.style.svg`).
    """
    model = report["model"]
    return units_graph(
        report["circuit"]["units"], removal_effects(report), (model["n_layers"], model["n_heads"]), name=name
    )


def units_graph(units: Sequence[Unit], effects: Effects, shape: tuple[int, int], *, name: str = "circuit") -> str:
    """Draw units between the heads of a model.

    Args:
        units: each with `id`, `role`, `value` and perhaps `words`.
        effects: what each of them does.
        shape: layers of the model, and heads in each.
        name: prefix of the element ids.

    Returns:
        an SVG element.
    """
    layers, per_layer = shape
    parsed, strange = parse_units(units)
    edges = edges_of(parsed)
    loops: dict[Head | None, list[Unit]] = defaultdict(list)
    for identity, unit in parsed:
        if is_loop(identity):
            loops[identity.head].append(unit)
    used = {h for e in edges for h in (e.start, e.end) if h is not None} | {h for h in loops if h is not None}
    layers = max([layers, *(head.layer + 1 for head in used)])
    shown, left_out = _choose_heads(layers, per_layer, used)
    rows = {head: k for heads in shown.values() for k, head in enumerate(heads)}

    column = column_width(layers)
    n_rows = max(len(heads) for heads in shown.values())
    heights = []
    for k in range(n_rows):
        most = max((len(loops[head]) for head, row in rows.items() if row == k and head in loops), default=0)
        heights.append(NODE_HEIGHT + LOOP * min(most, MOST_LOOPS) + 30)
    starts = [sum(heights[:k]) for k in range(n_rows + 1)]
    nodes = {}
    for head, row in rows.items():
        y = starts[row + 1] - 15 - NODE_HEIGHT / 2
        nodes[head] = Node(column * (head.layer + 1), y, loops.get(head, []), head in used)
    middle = sum(node.y for node in nodes.values()) / len(nodes)
    source = Node(0.0, middle, used=True)
    sink = Node(column * (layers + 1), middle, loops.get(None, []), used=True)
    canvas = Canvas(layers, nodes, source, sink)

    lines, labels = [], []
    for edge in sorted(edges, key=lambda e: e.unit is not None):
        line, label = _draw_edge(canvas, edge, effects)
        lines.append(line)
        labels.append(label)
    for node in [*nodes.values(), sink]:
        line, label = _draw_loops(node, effects)
        lines.append(line)
        labels.append(label)
    boxes = [_draw_node(node, str(head), "") for head, node in nodes.items()]
    boxes += [_draw_node(source, "embedding", "token, position"), _draw_node(sink, "output", "next token")]

    top = canvas.top - LANE * canvas.lanes["above"] - 42
    low = canvas.bottom + LANE * canvas.lanes["below"] + 8
    titles = _column_titles(layers, top + 22, left_out)
    legend, low = _legend(units, strange, effects.meaning, low)
    left, width = -NODE_WIDTH / 2 - 24, column * (layers + 1) + NODE_WIDTH + 48
    body = f'<g transform="translate({-left:.1f} {-top:.1f})">{titles}{"".join(lines + boxes + labels)}{legend}</g>'
    zoom = 1.2 if layers <= 3 else 1.0
    return svg(width, low - top, body, name=name, title="The circuit", description=_description(units), zoom=zoom)


def _choose_heads(layers: int, per_layer: int, used: set[Head]) -> tuple[dict[int, list[Head]], dict[int, int]]:
    """Return the heads to draw in each layer, and how many idle ones are only counted."""
    shown, left_out = {}, {}
    for layer in range(layers):
        every = [Head(layer, index) for index in range(per_layer)]
        extra = sorted(head for head in used if head.layer == layer and head not in every)
        if per_layer > MOST_IDLE:
            kept = [head for head in every if head in used]
            left_out[layer] = per_layer - len(kept)
            every = kept or every[:1]
            left_out[layer] -= 0 if kept else 1
        shown[layer] = every + extra
    return shown, {layer: count for layer, count in left_out.items() if count}


def _column_titles(layers: int, y: float, left_out: Mapping[int, int]) -> str:
    titles = ["input", *(f"layer {layer}" for layer in range(layers)), "prediction"]
    out = []
    for k, title in enumerate(titles):
        note = f" (+{left_out[k - 1]} idle heads)" if k - 1 in left_out else ""
        out.append(
            f'<text class="muted" x="{column_width(layers) * k:.1f}" y="{y:.1f}" font-size="12" text-anchor="middle">'
            f"{title}{note}</text>"
        )
    return "".join(out)


def _legend(units: Sequence[Unit], strange: Sequence[str], meaning: str, y: float) -> tuple[str, float]:
    """Explain the lines below the drawing; returns the new lower edge too."""
    x = -NODE_WIDTH / 2
    if not units:
        rows = ["No unit survived: nothing is drawn between the heads."]
    else:
        rows = [f"Thicker: {meaning}. Dashed: what it is compared with."]
        rows.append("Grey: the tokens that a head moves. Dashed boxes: heads the circuit does not use.")
    if strange:
        rows.append(f"Not drawn, unreadable id: {shorten(', '.join(strange), 90)}")
    out = []
    for row in rows:
        y += 17
        out.append(f'<text class="muted" x="{x:.1f}" y="{y:.1f}" font-size="11.5">{markup(row)}</text>')
    return "".join(out), y + 12


def _description(units: Sequence[Unit]) -> str:
    if not units:
        return "No unit survived detection."
    return f"{len(units)} units: " + " ".join(f"{unit['role']}: {unit.get('words') or unit['id']}" for unit in units)
