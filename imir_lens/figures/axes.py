"""A pair of axes in an SVG: ticks, titles, lines and marks; figures put several of them side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from imir_lens.figures.style import Real, markup

Mark = Literal["circle", "square", "diamond"]
FONT: Final = 11.0
LEFT: Final = 48.0  # room for the labels and the title of the vertical axis
BELOW: Final = 38.0  # the same for the horizontal one
ABOVE: Final = 26.0  # room for the panel's heading


def ticks(low: Real, high: Real, about: int = 5) -> list[float]:
    """Return round numbers between two bounds.

    >>> ticks(0, 1.1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = float(high - low) or 1.0
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= 0.75 * raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


def tick_label(value: Real) -> str:
    """Write a tick's value.

    >>> tick_label(0.20), tick_label(-5.0), tick_label(10)
    ('0.2', '−5', '10')
    """
    return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")


def words(
    x: Real, y: Real, text: str, style: str = "", *, size: Real = FONT, anchor: str = "start", turn: Real = 0
) -> str:
    """Return a text at a place; `turn` in degrees."""
    at = f'transform="translate({x:.1f} {y:.1f}) rotate({turn:g})"' if turn else f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{style}" {at} font-size="{size:g}" text-anchor="{anchor}">{markup(text)}</text>'


@dataclass(frozen=True)
class Axes:
    """A panel whose inner frame has its upper left corner at (left, top).

    Attributes:
        left, top, width, height: of the frame, in SVG units.
        x_range, y_range: values at its ends.
        log_x: whether the horizontal axis is logarithmic.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[Real, Real]
    y_range: tuple[Real, Real]
    log_x: bool = False

    def x(self, value: Real) -> float:
        """Return where a value lies on the horizontal axis."""
        low, high, at = (math.log(v) if self.log_x else v for v in (*self.x_range, value))
        return self.left + (at - low) / ((high - low) or 1) * self.width

    def y(self, value: Real) -> float:
        """Return where a value lies on the vertical axis, kept inside the frame."""
        low, high = self.y_range
        share = (value - low) / ((high - low) or 1)
        return self.top + (1 - min(1.0, max(0.0, share))) * self.height

    def frame(
        self,
        heading: str,
        x_title: str,
        y_title: str,
        *,
        x_ticks: Sequence[Real] | None = None,
        y_ticks: Sequence[Real] | None = None,
        x_labels: Sequence[str] | None = None,
        y_labels: Sequence[str] | None = None,
        grid: bool = True,
    ) -> str:
        """Draw heading, frame, grid, labels and titles; over a heat map without the grid."""
        bottom = self.top + self.height
        x_at = ticks(*self.x_range) if x_ticks is None else x_ticks
        y_at = ticks(*self.y_range) if y_ticks is None else y_ticks
        out = [words(self.left, self.top - 10, heading, "strong", size=12.5)] if heading else []
        for value, label in zip(x_at, x_labels or map(tick_label, x_at), strict=True):
            x = self.x(value)
            if grid:
                out.append(f'<path class="rule" stroke-opacity=".5" d="M{x:.1f} {self.top:.1f}v{self.height:.1f}"/>')
            out.append(words(x, bottom + 14, label, "muted", anchor="middle"))
        for value, label in zip(y_at, y_labels or map(tick_label, y_at), strict=True):
            y = self.y(value)
            if grid:
                out.append(f'<path class="rule" stroke-opacity=".5" d="M{self.left:.1f} {y:.1f}h{self.width:.1f}"/>')
            out.append(words(self.left - 6, y + 4, label, "muted", anchor="end"))
        out.append(f'<rect class="frame" x="{self.left:.1f}" y="{self.top:.1f}" width="{self.width:.1f}" ')
        out.append(f'height="{self.height:.1f}"/>')
        out.append(words(self.left + self.width / 2, bottom + 31, x_title, anchor="middle"))
        if y_title:
            out.append(words(self.left - 36, self.top + self.height / 2, y_title, anchor="middle", turn=-90))
        return "".join(out)

    def line(
        self, points: Sequence[tuple[Real, Real]], colour: str, *, width: Real = 2, dash: str = "", opacity: Real = 1
    ) -> str:
        """Draw a line through points; `colour` is a role's class such as `r-alpha`."""
        path = "".join(f"{'M' if k == 0 else 'L'}{self.x(x):.1f} {self.y(y):.1f}" for k, (x, y) in enumerate(points))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<path class="edge {colour}" stroke-width="{width:g}" stroke-opacity="{opacity:g}"{dashed} d="{path}"/>'

    def diagonal(self) -> str:
        """Draw the line on which both coordinates are equal."""
        low, high = max(self.x_range[0], self.y_range[0]), min(self.x_range[1], self.y_range[1])
        ends = f'x1="{self.x(low):.1f}" y1="{self.y(low):.1f}" x2="{self.x(high):.1f}" y2="{self.y(high):.1f}"'
        return f'<line class="rule" stroke-dasharray="5 4" {ends}/>'

    def mark(
        self,
        x: Real,
        y: Real,
        colour: str,
        *,
        shape: Mark = "circle",
        size: Real = 4,
        opacity: Real = 1,
        title: str = "",
    ) -> str:
        """Draw a mark, with a title that shows where it is pointed at."""
        return mark(self.x(x), self.y(y), colour, shape=shape, size=size, opacity=opacity, title=title)


def mark(
    x: Real, y: Real, colour: str, *, shape: Mark = "circle", size: Real = 4, opacity: Real = 1, title: str = ""
) -> str:
    """Draw a mark at a place of the drawing."""
    style = f'class="fill {colour}" fill-opacity="{opacity:g}"'
    note = f"<title>{markup(title)}</title>" if title else ""
    if shape == "circle":
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{size:g}">{note}</circle>'
    if shape == "square":
        box = f'x="{x - size * 0.9:.1f}" y="{y - size * 0.9:.1f}" width="{size * 1.8:.1f}" height="{size * 1.8:.1f}"'
        return f"<rect {style} {box}>{note}</rect>"
    s = size * 1.3
    return f'<path {style} d="M{x:.1f} {y - s:.1f}l{s:.1f} {s:.1f}l{-s:.1f} {s:.1f}l{-s:.1f} {-s:.1f}z">{note}</path>'


def key(x: Real, y: Real, entries: Sequence[tuple[str, str, Mark | Literal["line", "dashed", "dotted"]]]) -> str:
    """Draw a key: (name, colour, kind) side by side."""
    out, at = [], float(x)
    for name, colour, kind in entries:
        if kind in ("line", "dashed", "dotted"):
            dash = {"line": "", "dashed": "7 4", "dotted": "2 4"}[kind]
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            ends = f'd="M{at:.1f} {y - 4:.1f}h24"'
            out.append(f'<path class="edge {colour}" stroke-width="2"{dashed} {ends}/>')
            at += 30
        else:
            shape: Mark = "circle" if kind == "circle" else "square" if kind == "square" else "diamond"
            out.append(mark(at + 5, y - 4, colour, shape=shape))
            at += 15
        out.append(words(at, y, name))
        at += 6.4 * len(name) + 22
    return "".join(out)
