"""`Figure`: a drawing with its title and caption, to show in a notebook or to save as SVG or PNG."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.figures.raster import rasterised
from imir_lens.figures.style import DARK_NOTEBOOK, Real, element_name, markup, svg_css, text_width

THEMES: Final = ("light", "dark", "auto")
_TITLE, _CAPTION, _MARGIN = 17.0, 12.0, 22.0
_NARROWEST: Final = 380.0  # of a figure with a heading: narrower ones would break it into single words
_HEAD: Final = re.compile(r'(<svg [^>]*?)viewBox="0 0 (\S+) (\S+)" width="(\S+)" height="(\S+)"')


@dataclass(frozen=True)
class Figure:
    """A drawing that can stand alone.

    In a notebook it shows itself; `save` writes SVG or PNG by the file's ending.

    Attributes:
        drawing: an SVG element (see `imir_lens.figures.style.svg`).
        title: what is shown.
        caption: of what, in which units, on how many contexts; one sentence or a few.
    """

    drawing: str
    title: str
    caption: str = ""

    def svg(self, theme: str = "auto") -> str:
        """Return the text of an SVG file, with title and caption above the drawing.

        Args:
            theme: light, dark, or auto: what the reader's system prefers.

        Raises:
            OptionError: for another theme.
        """
        return standalone(self.drawing, title=self.title, caption=self.caption, theme=theme)

    def _framed(self, rules: str) -> str:
        """Return the element with title, caption and a style sheet."""
        return _framed(self.drawing, self.title, self.caption, rules)

    def png(self, theme: str = "light", *, scale: Real = 2) -> bytes:
        """Return the figure as a PNG picture.

        Args:
            theme: light or dark.
            scale: pixels for each pixel of the SVG's natural size.

        Raises:
            OptionError: for another theme, a scale that is not above zero or makes a side longer than 16,000 pixels,
                without the package resvg-py, or where the machine has no font to write with.
        """
        if theme == "auto":
            raise OptionError("a PNG has one theme: give 'light' or 'dark', found 'auto'")
        return rasterised(self.svg(theme), scale)

    def save(self, path: str | Path, *, theme: str | None = None, scale: Real = 2) -> Path:
        """Write a file.

        Args:
            path: ends in .svg or .png.
            theme: light, dark or, for SVG, auto; default, auto for SVG and light for PNG.
            scale: of a PNG, see `png`.

        Returns:
            the path.

        Raises:
            OptionError: for another ending, a path that cannot be written, and as `svg` and `png`.
        """
        place = Path(path)
        ending = place.suffix.lower()
        if ending not in (".svg", ".png"):
            found = repr(place.suffix) if place.suffix else "no ending"
            raise OptionError(f"{str(path)!r}: a figure is saved as .svg or .png, found {found}")
        data = self.png(theme or "light", scale=scale) if ending == ".png" else self.svg(theme or "auto").encode()
        return write_file(place, data)

    def _repr_svg_(self) -> str:
        # One theme: a picture does not know that of the notebook, and has its own ground.
        return self._framed(svg_css("light"))

    def _repr_html_(self) -> str:
        # In the page itself: as a picture it would neither shrink with its place nor say what it shows. Its ids are its
        # own, since a notebook may show two figures of a kind.
        dark = svg_css("dark").replace(".imir-svg", f".imir-svg{DARK_NOTEBOOK}")
        text = self._framed(f"{svg_css('light')}\n{dark}").replace(
            "<svg ", '<svg style="max-width:100%;height:auto" ', 1
        )
        own = element_name("figure", text)
        name = text.partition(' aria-labelledby="')[2].partition("-t ")[0]
        return re.sub(rf'(?<=[" ]){re.escape(name)}-([td])(?=[" ])', rf"{own}-\1", text)

    def __repr__(self) -> str:
        return f"Figure: {self.title}. {self.caption}".rstrip()


class Drawn:
    """Something that can be drawn: its figures have names."""

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws each figure that there is data for, by name."""
        raise NotImplementedError

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures."""
        return tuple(self.figure_makers())

    def figure(self, name: str) -> Figure:
        """Draw one of the figures.

        Args:
            name: one of `figures`.

        Raises:
            OptionError: for a figure that there is not.
        """
        makers = self.figure_makers()
        if name not in makers:
            raise OptionError(f"no figure {name!r} here; {did_you_mean(name, makers)}")
        return makers[name]()


def standalone(drawing: str, *, title: str = "", caption: str = "", theme: str = "auto") -> str:
    """Turn a drawing into the text of an SVG file: its own rules, an opaque ground, and a heading.

    Args:
        drawing: an element of `imir_lens.figures.style.svg`.
        title: written above it, if any.
        caption: written below the title, wrapped to the drawing's width.
        theme: light, dark, or auto: what the reader's system prefers.

    Raises:
        OptionError: for another theme.
    """
    if theme not in THEMES:
        raise OptionError(f"theme {theme!r}: expected one of {', '.join(THEMES)}")
    rules = svg_css("light" if theme == "auto" else theme)
    if theme == "auto":
        rules += f"\n@media (prefers-color-scheme:dark){{{svg_css('dark')}}}"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_framed(drawing, title, caption, rules)}\n'


def write_file(place: Path, data: bytes) -> Path:
    """Write a file.

    Args:
        place: where to.
        data: what.

    Returns:
        the place.

    Raises:
        OptionError: when it cannot be written.
    """
    try:
        place.write_bytes(data)
    except OSError as error:
        raise OptionError(f"cannot write {str(place)!r}: {error.strerror or type(error).__name__}") from error
    return place


def _framed(drawing: str, title: str, caption: str, rules: str) -> str:
    """Return a drawing as an element with a style sheet, an opaque ground, and a heading if there is one."""
    head, mark, body = drawing.partition("</desc>")
    found = _HEAD.match(head)
    if found is None:
        raise ValueError("expected an element of imir_lens.figures.style.svg")
    start, (width, height, shown_width) = found[1], (float(found[k]) for k in range(2, 5))
    margin = _MARGIN if title or caption else 0.0
    whole_width = max(width + 2 * margin, _NARROWEST if margin else 0.0)
    heading, above = _heading(title, caption, whole_width - 2 * margin)
    whole_height = height + above + margin
    zoom = shown_width / width
    frame = (
        f'{start}viewBox="0 0 {whole_width:g} {whole_height:g}" width="{whole_width * zoom:g}" '
        f'height="{whole_height * zoom:g}"{head[found.end() :]}{mark}'
    )
    ground = '<rect class="page" width="100%" height="100%"/>'
    inside = body.removesuffix("</svg>")
    moved = f'<g transform="translate({margin:g} {above:g})">{inside}</g>' if above else inside
    return f"{frame}<style>{rules}</style>{ground}{heading}{moved}</svg>"


def _heading(title: str, caption: str, width: float) -> tuple[str, float]:
    """Return title and caption as text, and how high they are; nothing is 0 high."""
    if not title and not caption:
        return "", 0.0
    out, y = [], _MARGIN - 4
    for text, size, style in ((title, _TITLE, "strong"), (caption, _CAPTION, "muted")):
        for line in textwrap.wrap(text, int(width / text_width("x", size) * 1.1)):
            y += size * 1.1
            out.append(f'<text class="{style}" x="{_MARGIN:g}" y="{y:.1f}" font-size="{size:g}">{markup(line)}</text>')
            y += size * 0.25
        y += 3
    return "".join(out), y + 14
