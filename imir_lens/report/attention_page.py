"""`AttentionView`: the attention of some heads on one context, to look at in a notebook, without a network."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from imir_lens.errors import OptionError
from imir_lens.figures import style
from imir_lens.figures.attention import attention_figure
from imir_lens.figures.figure import Figure, write_file
from imir_lens.report import attention_view
from imir_lens.report.html import environment, policy, read_template, stylesheet

# Pixels: the view, its large pattern, a row of small ones; then how many heads a row has.
_WIDTH, _LARGE, _ROW, _A_ROW = 560, 740, 90, 6


class AttentionView:
    """Attention patterns on one context.

    In a notebook it shows itself: with CircuitsVis, in a frame of its own that needs no network, and as a fixed figure
    where CircuitsVis is not installed. As text it says what it holds.

    Args:
        example: `tokens`, `query` (a position), `target` (a text), and `attention` {label: query × key}.
        dropped: what was left out to keep it small; empty when nothing was.

    Attributes:
        example: the tokens and patterns.
        dropped: what was left out.
    """

    def __init__(self, example: Mapping[str, Any], *, dropped: str = "") -> None:
        self.example = dict(example)
        self.dropped = dropped

    @property
    def title(self) -> str:
        """What is shown."""
        return f"Attention of {', '.join(self.example['attention'])} on {len(self.example['tokens'])} tokens"

    def svg(self) -> str:
        """Return the fixed figure."""
        return attention_figure(self.example)

    def figure(self) -> Figure:
        """Return the fixed figure as one that can be saved as SVG or PNG."""
        return Figure(self.svg(), self.title, f"Rows are queries, columns keys. {self.dropped}".rstrip())

    def html(self) -> str:
        """Return a whole page, which needs no network."""
        bundle = attention_view.read_bundle()
        data = attention_view.as_data(attention_view.attention_props(self.example)) if bundle is not None else ""
        scripts = [bundle, read_template("attention.js.j2").strip()] if bundle is not None else []
        return (
            environment()
            .get_template("attention.html.j2")
            .render(
                policy=policy(scripts),
                title=self.title,
                dropped=self.dropped,
                # CircuitsVis draws on white only, and a notebook's dark theme reaches into the frame.
                stylesheet=stylesheet(dark=False),
                theme=style.THEMES["light"],
                width=_WIDTH,
                a_row=_A_ROW,
                licences=attention_view.LICENCES if scripts else (),
                scripts=[Markup(code) for code in scripts],
                data=Markup(data),
                figure=Markup(self.svg()),
            )
        )

    def save(self, path: str | Path) -> Path:
        """Write the page (`.html`), or for a name ending in `.svg` or `.png` the fixed figure.

        Args:
            path: the file.

        Raises:
            OptionError: for another ending, when it cannot be written, or a PNG not be drawn (see `Figure.png`).
        """
        place = Path(path)
        ending = place.suffix.lower()
        if ending in (".svg", ".png"):
            return self.figure().save(place)
        if ending not in (".html", ".htm"):
            found = repr(place.suffix) if place.suffix else "no ending"
            raise OptionError(f"{str(path)!r}: the view is saved as .html, .svg or .png, found {found}")
        return write_file(place, self.html().encode("utf-8", "xmlcharrefreplace"))

    def _repr_html_(self) -> str:
        if attention_view.read_bundle() is None:
            return self.svg()
        # A frame of its own: two figures in one notebook share no names, and scripts of the page stay in it.
        heads = len(self.example["attention"])
        height = _LARGE + _ROW * -(-heads // _A_ROW)
        return (
            f'<iframe sandbox="allow-scripts" title="{escape(self.title)}" width="100%" height="{height}" '
            f'style="border:0" srcdoc="{escape(self.html())}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"AttentionView: {self.title}; rows are queries, columns keys. {self.dropped}".rstrip()
