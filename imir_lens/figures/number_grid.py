"""A small matrix of signed numbers with its labels: blue above zero, orange below, each number written in its cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from imir_lens.figures.axes import words
from imir_lens.figures.style import Real, markup, number, role_class, role_symbol, shorten, text_width

FONT: Final = 10.5
LABEL: Final = 18
"""Characters of a label at most."""
_ABOVE: Final = 40.0  # title, and those of rows and columns
STRONGEST: Final = 0.5
"""The shade of the largest: faint, since the number has to be read on it, in both themes."""
_WRITTEN: Final = 30.0  # the narrowest cell that holds its number


@dataclass(frozen=True)
class NumberGrid:
    """What is drawn.

    Attributes:
        title: what the numbers are.
        rows, columns: labels.
        values: row by row.
        y_title, x_title: what rows and columns are.
        roles: cells of the circuit, by (row, column): outlined in the role's colour, with its sign.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Real]]
    y_title: str = ""
    x_title: str = ""
    roles: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Room for the rows' labels and title."""
        return max(_room(self.rows), text_width(self.y_title, FONT) * 0.9 + 10)

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell."""
        many = max(len(self.rows), len(self.columns))
        if many > 4:
            return (46.0, 24.0) if many <= 8 else (22.0, 16.0)
        widest = max((text_width(shorten(label, LABEL), FONT) for label in self.columns), default=0.0)
        return min(96.0, max(58.0, widest + 8)), 30.0

    @property
    def written(self) -> bool:
        """Whether every number is written in its cell."""
        return self.cell[0] >= _WRITTEN

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the whole, labels included."""
        wide, high = self.cell
        tail = text_width(self.title, 12.5) * 0.95
        below = 16 if self._level else _room(self.columns) + 8
        title = text_width(self.x_title, FONT) * 0.9
        return self.left + max(wide * len(self.columns), title, tail), _ABOVE + high * len(self.rows) + below

    @property
    def _level(self) -> bool:
        """Whether the columns' labels fit side by side, each below its column."""
        return all(text_width(shorten(label, LABEL), FONT) * 0.95 <= self.cell[0] for label in self.columns)

    def draw(self, x: Real, y: Real, largest: Real) -> str:
        """Draw it with its upper left corner at a place; `largest` is the size that has the strongest shade."""
        wide, high = self.cell
        left, top = x + self.left, y + _ABOVE
        out = [words(left, y + 12, self.title, "strong", size=12.5)]
        out.append(words(left, y + 32, self.x_title, "muted", size=FONT))
        out.append(words(left - 6, y + 32, self.y_title, "muted", size=FONT, anchor="end"))
        for i, row in enumerate(self.values):
            for j, value in enumerate(row):
                out.append(self._draw_cell((i, j), value, left + j * wide, top + i * high, largest))
            middle = top + (i + 0.5) * high + 4
            out.append(words(left - 6, middle, shorten(self.rows[i], LABEL), "mono", size=FONT, anchor="end"))
        bottom = top + high * len(self.rows)
        out.append(
            f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{wide * len(self.columns):.1f}" '
            f'height="{bottom - top:.1f}"/>'
        )
        for j, label in enumerate(self.columns):
            at, text = left + (j + 0.5) * wide, shorten(label, LABEL)
            if self._level:
                out.append(words(at, bottom + 13, text, "mono", size=FONT, anchor="middle"))
            else:
                out.append(words(at + 4, bottom + 6, text, "mono", size=FONT, anchor="end", turn=-90))
        # Outlines last: the next cells would cover half of them.
        out += [self._outline(at, left, top) for at in self.roles]
        return "".join(out)

    def _draw_cell(self, at: tuple[int, int], value: Real, x: float, y: float, largest: Real) -> str:
        wide, high = self.cell
        share = min(1.0, abs(value) / largest) if largest > 0 else 0.0
        note = f"{self.title}: {self.rows[at[0]]}, {self.columns[at[1]]}: {number(value, signed=True)} nats"
        colour = "cell" if value > 0 else "fill r-beta"
        box = (
            f'<rect class="{colour}" fill-opacity="{share * STRONGEST:.3f}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{wide:.1f}" height="{high:.1f}"><title>{markup(note)}</title></rect>'
        )
        if not self.written:
            return box
        if at in self.roles:  # its sign takes the upper left corner
            return box + words(x + wide - 5, y + high - 5, brief(value), "", size=FONT, anchor="end")
        return box + words(x + wide / 2, y + high / 2 + 4, brief(value), "", size=FONT, anchor="middle")

    def _outline(self, at: tuple[int, int], left: float, top: float) -> str:
        wide, high = self.cell
        x, y, role = left + at[1] * wide, top + at[0] * high, self.roles[at]
        frame = f'<rect class="edge {role_class(role)}" stroke-width="2.4" rx="2" x="{x + 1.2:.1f}" y="{y + 1.2:.1f}" '
        frame += f'width="{wide - 2.4:.1f}" height="{high - 2.4:.1f}"/>'
        if not self.written:
            return frame
        sign = role_symbol(role)
        # On a strong shade the role's colour could not be read.
        tab = f'<rect class="page" x="{x:.1f}" y="{y:.1f}" width="{text_width(sign, 8.5) + 6:.1f}" height="12" rx="2"/>'
        return tab + frame + words(x + 3.5, y + 9.5, sign, f"strong fill {role_class(role)}", size=8.5)


def brief(value: Real) -> str:
    """Write a number so that it fits a cell: two decimals, or one from ten on.

    >>> brief(27.7191), brief(-0.0504), brief(0.001)
    ('+27.7', '−0.05', '0')
    """
    text = f"{value:+.2f}" if abs(value) < 9.995 else f"{value:+.1f}" if abs(value) < 999.5 else f"{value:+.3g}"
    return "0" if text in ("+0.00", "-0.00") else text.replace("-", "\N{MINUS SIGN}")


def _room(labels: Sequence[str]) -> float:
    return max((text_width(shorten(label, LABEL), FONT) for label in labels), default=0.0) + 10
