"""Which circuit wins over a plane of starts, as a figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imir_lens.errors import OptionError
from imir_lens.figures.figure import Figure
from imir_lens.figures.phase_map import Boundary, phase_map
from imir_lens.figures.style import Real

if TYPE_CHECKING:
    from imir_lens.dynamics.initialisation import Outcomes


def outcome_map(
    outcomes: "Outcomes",
    x: Sequence[Real],
    y: Sequence[Real],
    *,
    x_title: str,
    y_title: str,
    names: Sequence[str] | None = None,
    boundaries: Sequence[Boundary] = (),
    caption: str = "",
) -> Figure:
    """Draw the outcomes of the starts of a plane (`slice_starts`), row by row, the first row at the bottom.

    Args:
        outcomes: of the starts, in the order of the plane.
        x: centres of the columns.
        y: centres of the rows.
        x_title: of the horizontal axis.
        y_title: of the vertical axis.
        names: of the outcomes; default, their own. Their first letters stand in the map.
        boundaries: lines over the map.
        caption: what was trained, on how many contexts, with which seed.

    Raises:
        OptionError: when there are not as many outcomes as cells.
    """
    cells = len(x) * len(y)
    if len(outcomes.winner) != cells:
        raise OptionError(f"expected an outcome for each of {len(x)} × {len(y)} cells, found {len(outcomes.winner)}")  # noqa: RUF001
    drawing = phase_map(
        x,
        y,
        outcomes.winner.reshape(len(y), len(x)).tolist(),
        outcomes.costs.amax(1).clamp(0, 1).reshape(len(y), len(x)).tolist(),
        names=outcomes.names if names is None else names,
        x_title=x_title,
        y_title=y_title,
        title="Which circuit wins",
        intensity_title="share of what was learned that the costliest circuit carries",
        boundaries=boundaries,
    )
    return Figure(drawing, "Which circuit wins, by two numbers at the start", f"{cells:,} starts. {caption}".strip())
