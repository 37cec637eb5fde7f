"""Where the nodes, lines and labels of a circuit graph go.

Edges between neighbouring columns are curves. Edges that skip a column run in lanes above the heads (what is compared)
or below them (what is moved), so that nothing passes behind a node.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from imir_lens.errors import CoordinateError
from imir_lens.ids import CoordinateId, Head, Path

NODE_WIDTH: Final = 96.0
NODE_HEIGHT: Final = 44.0
WIDE_COLUMN: Final = 232.0
COLUMN: Final = 204.0
LOOP: Final = 27.0
LANE: Final = 25.0
LABEL: Final = 150.0
SAG: Final = 40.0
MOST_LOOPS: Final = 4

Unit = Mapping[str, Any]
Box = tuple[float, float, float, float]


@dataclass
class Node:
    """A head or a source at a place, with the loops on it."""

    x: float
    y: float
    loops: list[Unit] = field(default_factory=list)
    used: bool = False

    @property
    def left(self) -> float:
        """Left edge."""
        return self.x - NODE_WIDTH / 2

    @property
    def right(self) -> float:
        """Right edge."""
        return self.x + NODE_WIDTH / 2


@dataclass(frozen=True)
class Edge:
    """One line of a unit: `side` says what it carries (key, query, readout, chain, value)."""

    start: Head | None
    end: Head | None
    side: str
    unit: Unit | None
    labelled: bool


def parse_units(units: Sequence[Unit]) -> tuple[list[tuple[CoordinateId, Unit]], list[str]]:
    """Split units into those with a readable id and the ids that cannot be drawn."""
    drawn, strange = [], []
    for unit in units:
        try:
            drawn.append((CoordinateId.parse(unit["id"]), unit))
        except CoordinateError:
            strange.append(unit["id"])
    return drawn, strange


def is_loop(identity: CoordinateId) -> bool:
    """Whether a unit is a loop on its node: a score of nothing but raw tokens and positions, or a constant readout."""
    if identity.head is None:
        return identity.key is None
    return not any(path.heads for path in identity.paths)


def column_width(layers: int) -> float:
    """Return the distance of two columns; deep models are drawn closer, so that the text stays large."""
    return WIDE_COLUMN if layers <= 3 else COLUMN


def edges_of(parsed: Sequence[tuple[CoordinateId, Unit]]) -> list[Edge]:
    """List the lines of the units that are not loops; the source and the output are None."""
    edges: list[Edge] = []
    moved: dict[Head, None] = {}

    def along(path: Path, unit: Unit) -> None:
        moved[path.heads[0]] = None
        edges.extend(Edge(a, b, "chain", unit, False) for a, b in zip(path.heads, path.heads[1:], strict=False))

    for identity, unit in parsed:
        if is_loop(identity):
            continue
        if identity.head is None:
            heads = identity.key.heads if identity.key else ()
            if heads:
                along(Path(heads), unit)
            edges.append(Edge(heads[-1] if heads else None, None, "readout", unit, True))
            continue
        sides = [("key", identity.key), ("query", identity.query)]
        deep = [side for side, path in sides if path is not None and path.heads]
        for side, path in sides:
            if path is None:
                continue
            if path.heads:
                along(path, unit)
            edges.append(Edge(path.heads[-1] if path.heads else None, identity.head, side, unit, side == deep[0]))
    return [Edge(None, head, "value", None, False) for head in moved] + edges


class Canvas:
    """Places nodes, routes edges, and keeps labels off each other."""

    def __init__(self, layers: int, nodes: Mapping[Head, Node], source: Node, sink: Node) -> None:
        self.layers, self.nodes, self.source, self.sink = layers, nodes, source, sink
        self.gap = column_width(layers) - NODE_WIDTH
        self.boxes: list[Box] = []
        every = [*nodes.values(), source, sink]
        for node in every:
            height = NODE_HEIGHT / 2 + 2
            self.boxes.append((node.left, node.y - height, node.right, node.y + height))
            # The loops' labels, which are wider than the node.
            loops = min(len(node.loops), MOST_LOOPS) * LOOP
            self.boxes.append((node.x - LABEL / 2, node.y - height - loops - 4, node.x + LABEL / 2, node.y - height))
        self.top = min(node.y - NODE_HEIGHT / 2 - LOOP * min(len(node.loops), MOST_LOOPS) for node in every) - 12
        self.bottom = max(node.y for node in every) + NODE_HEIGHT / 2 + 14
        self.lanes = {"above": 0, "below": 0}
        self.value_lane: float | None = None
        self.ports: dict[tuple[Head | None, str], int] = defaultdict(int)
        self.parallel: dict[tuple[Head | None, Head | None, str], int] = defaultdict(int)

    def column(self, head: Head | None, *, end: bool) -> int:
        """Return the column of a head; None is the source, or at the end of an edge the output."""
        if head is None:
            return self.layers + 1 if end else 0
        return head.layer + 1

    def lane(self, side: str) -> float:
        """Return the height of a lane for an edge that skips columns; the streams of values share one."""
        if side == "value":
            if self.value_lane is None:
                self.value_lane = self._next("below")
            return self.value_lane
        return self._next("below" if side in ("readout", "chain") else "above")

    def _next(self, where: str) -> float:
        self.lanes[where] += 1
        k = self.lanes[where]
        return self.top - LANE * (k - 0.4) if where == "above" else self.bottom + LANE * (k - 0.4)

    def port(self, head: Head | None, side: str, *, lane: bool) -> float:
        """Return how far from the middle of a node an edge docks; a second edge on the same side shifts.

        At the output, edges out of a lane come from below and dock below the straight ones.
        """
        if side == "readout" and lane:
            side = "stream"
        self.ports[head, side] += 1
        shift = 7.0 * (self.ports[head, side] - 1)
        base = {"query": -12.0, "key": -1.0, "value": 13.0, "chain": 6.0, "readout": -5.0, "stream": 10.0}[side]
        return max(-18.0, min(18.0, base + (-shift if side == "query" else shift)))

    def route(self, edge: Edge) -> tuple[str, list[tuple[float, float]]]:
        """Return the path of an edge and the points where its label may stand, best first."""
        start = self.source if edge.start is None else self.nodes[edge.start]
        end = self.sink if edge.end is None else self.nodes[edge.end]
        a, b = self.column(edge.start, end=False), self.column(edge.end, end=True)
        x0, y0 = start.right, start.y + {"query": -10.0, "value": 12.0}.get(edge.side, 0.0)
        x1, y1 = end.left - 7, end.y + self.port(edge.end, edge.side, lane=b > a + 1)
        if edge.side == "value":
            x1 += 5
        # Edges with both ends in common would lie on each other: each next one leaves lower and sags more.
        before = self.parallel[edge.start, edge.end, edge.side]
        y0 = min(y0 + 14.0 * before, start.y + 18)
        sag = SAG * before
        self.parallel[edge.start, edge.end, edge.side] += 1
        if b == a + 1:
            bend = (x1 - x0) * 0.45
            points = [_bezier(x0, y0, bend, x1, y1, sag, t) for t in (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)]
            return (
                f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0 + sag:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}",
                points,
            )
        lane = self.lane(edge.side)
        gap = self.gap
        y0 += {"key": -6.0, "readout": 4.0, "chain": 4.0}.get(edge.side, 0.0)
        xa, xb = x0 + gap * 0.72, x1 - gap * 0.72 + 7
        mid, half = (xa + xb) / 2, (xb - xa) / 2
        path = (
            f"M{x0:.1f} {y0:.1f}C{x0 + gap * 0.42:.1f} {y0:.1f} {x0 + gap * 0.3:.1f} {lane:.1f} {xa:.1f} {lane:.1f}"
            f"H{xb:.1f}C{x1 - gap * 0.3:.1f} {lane:.1f} {x1 - gap * 0.42:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        )
        return path, [(mid + half * s, lane) for s in (0.0, -0.5, 0.5, -0.9, 0.9)]

    def place(self, points: Sequence[tuple[float, float]], width: float) -> tuple[float, float]:
        """Return the first point where a label of this width covers nothing, shifting up and down where none is."""
        for dy in sorted(range(-80, 81, 4), key=lambda step: (abs(step), step)):
            for x, y in points:
                box = (x - width / 2, y + dy - 10.5, x + width / 2, y + dy + 10.5)
                if not any(_overlap(box, other) for other in self.boxes):
                    self.boxes.append(box)
                    return x, y + dy
        return points[0]


def _bezier(x0: float, y0: float, bend: float, x1: float, y1: float, sag: float, t: float) -> tuple[float, float]:
    s = 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    xs, ys = (x0, x0 + bend, x1 - bend, x1), (y0, y0 + sag, y1, y1)
    return sum(w * x for w, x in zip(weights, xs, strict=True)), sum(w * y for w, y in zip(weights, ys, strict=True))


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
