"""What a notebook shows of a result: a card without scripts and without a request, in a ground of its own."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from imir_lens.figures import style
from imir_lens.report.html import environment
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Table


@dataclass(frozen=True)
class Card:
    """What a card says, from top to bottom.

    Attributes:
        kicker: what kind of result it is, in a few words.
        headline: the result in a sentence.
        key_numbers: the numbers a reader wants first.
        drawings: SVG elements (see `imir_lens.figures.style.svg`), with ids made of `card_name`.
        tables: tables.
        note: how to go on, or what is not shown.
    """

    kicker: str
    headline: str
    key_numbers: Sequence[KeyNumber] = ()
    drawings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    note: str = ""

    def html(self) -> str:
        """Return the card, to stand anywhere in a page: its rules touch nothing outside it."""
        return (
            environment()
            .get_template("card.html.j2")
            .render(
                card=self,
                drawings=[Markup(drawing) for drawing in self.drawings],
                tables=[table for table in self.tables if table.rows],
                font=Markup(style.FONT),
                mono=Markup(style.MONO),
                themes=style.THEMES,
                dark_notebook=Markup(style.DARK_NOTEBOOK),
                roles=style.ROLE_COLOURS,
                svg_rules={theme: Markup(style.svg_css(theme)) for theme in style.THEMES},
            )
        )


def card_name(*parts: str) -> str:
    """Return a short name for element ids, so that two cards in a notebook do not share them."""
    return "card-" + hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:8]
