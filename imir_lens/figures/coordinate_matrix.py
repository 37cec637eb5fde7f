"""A head's coordinates, or the readout's: token relations by path, the offset kernel, class constants.

Where the circuit is known its coordinates are outlined in the colours of their roles.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from jaxtyping import Float
from torch import Tensor

from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, key, words
from imir_lens.figures.number_grid import STRONGEST, NumberGrid
from imir_lens.figures.signed_map import signed_key
from imir_lens.figures.style import Real, number, role_class, role_symbol, svg
from imir_lens.ids import CoordinateId, Head, offset_name

if TYPE_CHECKING:
    from imir_lens.coordinates import Coordinates

MOST_PATHS: Final = 8
MOST_RELATIONS: Final = 4
MOST_KERNELS: Final = 3
_GAP: Final = 30.0
_KERNEL: Final = (520.0, 150.0)
_DASHES: Final[tuple[str, ...]] = ("", "7 4", "2 4")
_KINDS: Final = ("line", "dashed", "dotted")
Roles = Mapping[str, str]


def coordinate_matrix(
    coordinates: "Coordinates", head: Head | None, *, roles: Roles | None = None, name: str = "coordinates"
) -> str:
    """Draw the coordinates of one head's scores, or of the readout.

    Args:
        coordinates: of a model.
        head: which head; None for the readout.
        roles: role of each coordinate of a circuit, by id.
        name: prefix of the element ids.

    Returns:
        an SVG element. At most 8 paths, 4 token relations and 3 offset kernels are drawn, the largest ones; the last
        line says what was left out.
    """
    found = roles or {}
    grids, left_out = _score_grids(coordinates, head, found) if head else _readout_grids(coordinates, found)
    largest = max((abs(v) for grid in grids for row in grid.values for v in row), default=0.0)
    parts: list[str] = []
    x, bottom = 6.0, 0.0
    for grid in grids:
        parts.append(grid.draw(x, 0, largest))
        x, bottom = x + grid.size[0] + _GAP, max(bottom, grid.size[1])
    width = max(x - _GAP + 10, 420.0)
    if not all(grid.written for grid in grids):
        parts.append(signed_key(14, bottom + 16, largest, strongest=STRONGEST))
        bottom += 20
    if head is not None:
        kernel, high, more = _kernels(coordinates, head, found, bottom + 12, 0.15 * largest)
        parts.append(kernel)
        left_out += more
        bottom += high
        width = max(width, LEFT + _KERNEL[0] + 30)
    note = "Numbers in nats." + (" Outlined: the circuit." if found else "")
    note += f" Not drawn: {'; '.join(left_out)}." if left_out else ""
    parts.append(words(10, bottom + 18, note, "muted", size=10.5))
    bottom += 20
    what = f"scores of {head}" if head else "readout"
    circuit = "; outlined: the circuit" if found else ""
    return svg(
        width,
        bottom + 10,
        "".join(parts),
        name=name,
        title=f"Coordinates of the {what}",
        description=f"Signed numbers in nats, blue above zero and orange below{circuit}. {_largest(grids)}",
    )


def _score_grids(coordinates: "Coordinates", head: Head, roles: Roles) -> tuple[list[NumberGrid], list[str]]:
    """Return a grid for each token relation (query path × key path) and one for the class constants of keys."""
    space = coordinates.space
    block = space.block("score", head)
    values: Float[Tensor, "query key relation"] = block.view(coordinates.values)
    names = space.relations.names
    n_tokens, n_paths = len(names), block.shape[0]
    paths = _chosen((values.abs().amax((1, 2)) + values.abs().amax((0, 2))).tolist(), MOST_PATHS, keep=(0,))
    relations = _chosen(values[..., :n_tokens].abs().amax((0, 1)).tolist(), MOST_RELATIONS)
    labels = [str(space.paths.paths[k]) for k in paths]
    grids = []
    for k in relations:
        cells = [[float(values[q, p, k]) for p in paths] for q in paths]
        ids = [[CoordinateId(head, space.paths.paths[q], space.paths.paths[p], names[k]) for p in paths] for q in paths]
        title = _titled(names[k])
        grids.append(NumberGrid(title, labels, labels, cells, "query via", "key via", _marks(ids, roles)))
    classes = space.relations.free_classes
    if classes:
        bias = space.block("score_bias", head).view(coordinates.values)
        cells = [[float(bias[p, c]) for c in range(len(classes))] for p in paths]
        ids = [[CoordinateId(head, None, space.paths.paths[p], name) for name in classes] for p in paths]
        grids.append(
            NumberGrid("whatever the query", labels, classes, cells, "key via", "key's class", _marks(ids, roles))
        )
    return grids, _counted(n_paths - len(paths), "path") + _counted(n_tokens - len(relations), "token relation")


def _readout_grids(coordinates: "Coordinates", roles: Roles) -> tuple[list[NumberGrid], list[str]]:
    """Return a grid of path × token relation, and one for the class constants of outputs."""
    space = coordinates.space
    values: Float[Tensor, "path relation"] = space.block("readout").view(coordinates.values)
    names, classes = space.relations.names, space.relations.free_classes
    paths = _chosen(values.abs().amax(1).tolist(), MOST_PATHS, keep=(0,))
    cells = [values[k].tolist() for k in paths]
    labels = [str(space.paths.paths[k]) for k in paths]
    ids = [[CoordinateId(None, None, space.paths.paths[k], name) for name in names] for k in paths]
    grids = [
        NumberGrid("raised at the output", labels, names, cells, "token via", "relation to it", _marks(ids, roles))
    ]
    if classes:
        constants = [space.block("readout_bias").view(coordinates.values).tolist()]
        own = _marks([[CoordinateId(None, None, None, name) for name in classes]], roles)
        grids.append(NumberGrid("whatever is read", ["const"], classes, constants, "", "output's class", own))
    return grids, _counted(values.shape[0] - len(paths), "path")


def _kernels(
    coordinates: "Coordinates", head: Head, roles: Roles, top: float, least: float
) -> tuple[str, float, list[str]]:
    """Draw the offset kernels of the pairs of paths where they vary most; returns how high that is, too.

    The axis reaches `least` both ways, so that what is small beside the other coordinates looks small.
    """
    space = coordinates.space
    block, first = space.block("score", head), len(space.relations.names)
    values: Float[Tensor, "query key offset"] = block.view(coordinates.values)[..., first:]
    n = block.shape[0]
    spread = (values.amax(2) - values.amin(2)).flatten()
    order = [int(k) for k in spread.argsort(descending=True, stable=True) if spread[k] > 0]
    if not order:
        return words(10, top + 10, "No position coordinates: offsets do not matter here.", "muted"), 26.0, []
    paths, offsets = space.paths.paths, list(space.offsets)
    active: Sequence[bool] = block.view(space.active)[..., first:].flatten(0, 1)[order].any(0).tolist()
    low = min(k for k, on in zip(offsets, active, strict=True) if on)
    lines = values.flatten(0, 1)[order[:MOST_KERNELS]].tolist()
    drawn = [v for line in lines for k, v in zip(offsets, line, strict=True) if k >= low]
    least_drawn, most_drawn = min(-least, *drawn), max(least, *drawn)
    pad = 0.08 * (most_drawn - least_drawn)
    axes = Axes(LEFT + 8, top + ABOVE, *_KERNEL, (low, offsets[-1]), (least_drawn - pad, most_drawn + pad))
    out = [axes.frame("Offset kernel", "positions that the key's token lies behind the query's", "nats")]
    entries: list[tuple[str, str, str]] = []
    for rank, (place, line) in enumerate(zip(order, lines, strict=False)):
        query, source = paths[place // n], paths[place % n]
        points: list[tuple[Real, Real]] = [(k, v) for k, v in zip(offsets, line, strict=True) if k >= low]
        out.append(axes.line(points, "ink", width=1.4, dash=_DASHES[rank]))
        for k, value in points:
            role = roles.get(str(CoordinateId(head, query, source, offset_name(int(k)))))
            if role is not None:
                note = f"offset {k:+g}: {number(value, signed=True)} nats"
                out.append(axes.mark(k, value, role_class(role), title=note))
                x, y = axes.x(k) + 8, axes.y(value) + 4
                out.append(
                    words(x, y, f"{role_symbol(role)} {number(value, signed=True)}", f"strong {role_class(role)}")
                )
        entries.append((f"query {query}, key {source}", "ink", _KINDS[rank]))
    out.append(key(axes.left, axes.top + axes.height + BELOW + 16, entries))  # type: ignore[arg-type]
    more = _counted(len(order) - len(lines), "offset kernel")
    return "".join(out), ABOVE + _KERNEL[1] + BELOW + 34, more


def _chosen(sizes: Sequence[float], most: int, *, keep: tuple[int, ...] = ()) -> list[int]:
    """Return the places of the largest, in their own order, and those to keep in any case."""
    rest = sorted((k for k in range(len(sizes)) if k not in keep), key=lambda k: -sizes[k])
    return sorted([*keep, *rest[: most - len(keep)]])


def _marks(ids: Sequence[Sequence[CoordinateId]], roles: Roles) -> dict[tuple[int, int], str]:
    return {(i, j): roles[str(name)] for i, row in enumerate(ids) for j, name in enumerate(row) if str(name) in roles}


def _titled(relation: str) -> str:
    return {"same": "same token", "assoc": "fixed associate"}.get(relation, relation)


def _counted(count: int, what: str) -> list[str]:
    return [f"{count} smaller {what}{'s' if count > 1 else ''}"] if count > 0 else []


def _largest(grids: Sequence[NumberGrid]) -> str:
    cells = [
        (abs(value), f"{grid.title}, {grid.rows[i]} and {grid.columns[j]}: {number(value, signed=True)}")
        for grid in grids
        for i, row in enumerate(grid.values)
        for j, value in enumerate(row)
    ]
    return f"The largest in the grids: {max(cells)[1]}." if cells and max(cells)[0] > 0 else "All grids are zero."
