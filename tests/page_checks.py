"""What a page must be for everyone: checks on a page that `chromium.Browser` opened, each returning its complaints."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chromium import Page

EXCEPTIONS: dict[str, str] = {}
"""Rules of axe-core that a page may break, with the reason."""


@cache
def _axe() -> str:
    spec = find_spec("axe_core_python")
    assert spec is not None and spec.origin is not None, "needs axe-core-python: pip install -e .[dev]"
    return Path(spec.origin).with_name("axe.min.js").read_text("utf-8")


@cache
def _own() -> str:
    return Path(__file__).with_suffix(".js").read_text("utf-8")


def _run(page: Page, call: str) -> Any:
    """Call a function of `page_checks.js` in the page, which shares no names with it."""
    return page.evaluate(f"(() => {{ {_own()}\n return {call}; }})()")


def axe(page: Page, *, rule: str | None = None) -> list[str]:
    """Return what axe-core finds by WCAG 2.1 A and AA and its best practices, or by one rule; `EXCEPTIONS` aside."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"{_axe()};0")
    found = _run(page, f"axeFindings({json.dumps(rule)})")
    return [f"{name}: {where}: {why}" for name, where, why in found if name not in EXCEPTIONS]


def svg_contrast(page: Page) -> list[str]:
    """Return the texts of figures with less contrast than 4.5, or 3 for large ones, to what is painted below them."""
    return _run(page, "svgContrast()")


def contrast(page: Page) -> list[str]:
    """Return the texts with too little contrast, in figures and elsewhere."""
    return [*axe(page, rule="color-contrast"), *svg_contrast(page)]


def figures(page: Page) -> list[str]:
    """Return the visible figures without a text alternative."""
    return _run(page, "figures()")


def outline(page: Page) -> list[str]:
    """Return what is wrong with headings, landmarks, language, title, ids and links."""
    return _run(page, "outline()")


def too_wide(page: Page) -> list[str]:
    """Return the elements that stick out of the page to the right and cannot be scrolled to inside it."""
    return _run(page, "tooWide()")


def traffic(page: Page) -> list[str]:
    """Return what the page asked for beyond itself, and what the console and the content policy complained about."""
    return [*(f"asked for {url}" for url in page.requests), *page.console_errors]


def shown_text(page: Page) -> str:
    """Return the text that the page shows on its present medium."""
    return _run(page, "shownText()")


def seconds_to_first_view(page: Page) -> float:
    """Return the time from the start of loading to the first contentful paint."""
    return _run(page, "firstView()")


def open_folds(page: Page) -> None:
    """Open everything that is folded: what a reader may open is checked too."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    page.settle()
