"""From SVG to PNG, with resvg: no browser and no system library."""

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Final

from imir_lens.errors import OptionError
from imir_lens.figures.style import Real

LONGEST_SIDE: Final = 16_000
"""Pixels: what image viewers and slides still open."""

# The style sheet's families are a browser's. Resvg takes the generic ones as these, by name, or drops the text.
_SANS: Final = (
    "Arial",
    "Helvetica Neue",
    "Segoe UI",
    "Liberation Sans",
    "DejaVu Sans",
    "Noto Sans",
    "Roboto",
    "Ubuntu",
)
_MONO: Final = ("Menlo", "Consolas", "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Courier New")


def rasterised(text: str, scale: Real) -> bytes:
    """Return an SVG file as a PNG picture.

    Args:
        text: the SVG file, with `width` and `height`, in one theme.
        scale: pixels for each pixel of its natural size.

    Raises:
        OptionError: for a scale that is not above zero or makes a side longer than 16,000 pixels, without the package
            resvg-py, or where the machine has no font to write with.
    """
    if find_spec("resvg_py") is None:
        raise OptionError("a PNG needs the package resvg-py: pip install resvg-py, or save as .svg")
    import resvg_py

    found = re.search(r' width="(\S+)" height="(\S+)"', text)
    most = LONGEST_SIDE / max(float(found[1]), float(found[2])) if found else 1.0
    if not 0 < scale <= most:
        raise OptionError(f"scale {scale:g}: expected above 0 and at most {most:.3g} here")
    render: Callable[..., bytes] = resvg_py.svg_to_bytes
    return bytes(render(svg_string=text, zoom=float(scale), **_families(render)))


@cache
def _families(render: Callable[..., bytes]) -> dict[str, str]:
    """Return the machine's fonts for text and for ids: without one the rasteriser drops text and says nothing.

    Where the system says which fonts are its generic ones (fontconfig does), nothing need be named.
    """
    page = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'
    empty = bytes(render(svg_string=page.format("")))

    def writes(family: str) -> bool:
        letter = page.format(f'<text y="15" font-size="16" font-family="{family}">M</text>')
        return bytes(render(svg_string=letter)) != empty

    if writes("sans-serif"):
        return {}
    sans = next(filter(writes, _SANS), None)
    if sans is None:
        raise OptionError("a PNG needs a font, and none was found: install DejaVu or Liberation, or save as .svg")
    return {"font_family": sans, "sans_serif_family": sans, "monospace_family": next(filter(writes, _MONO), sans)}
