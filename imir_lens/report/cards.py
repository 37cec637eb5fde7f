"""What a notebook shows of a result: a card without scripts and without a request, in a ground of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from imir_lens.figures import style
from imir_lens.report.html import environment
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Table
from imir_lens.report.words import MECHANISMS


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


def verdict_card(
    report: Mapping[str, Any],
    key_numbers: Sequence[KeyNumber],
    draw: Callable[[str], Sequence[str]],
    table: Table,
    *,
    note: str = "",
) -> Card:
    """Return the card of a report that ends in a verdict.

    Args:
        report: the data of a report, or of a verification.
        key_numbers: the numbers a reader wants first.
        draw: given the prefix of the element ids, the drawings.
        table: what the verdict rests on.
        note: what it leaves open.
    """
    verdict = report["verdict"]
    kicker = f"{MECHANISMS[verdict['mechanism']]}; evidence: {verdict['evidence_level']}"
    name = card_name(report["model"]["source"], report["command"], verdict["text"])
    return Card(kicker, verdict["text"], key_numbers, draw(name), [table], note)


def card_name(*parts: str) -> str:
    """Return a short name for element ids, so that two cards in a notebook do not share them."""
    return style.element_name("card", *parts)
