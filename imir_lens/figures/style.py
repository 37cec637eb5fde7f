"""How figures look: the role colours, the two themes, numbers, and the frame of an SVG.

The colours are darkened (for a light page) and lightened (for a dark one) relatives of the Okabe-Ito palette, which
people with any colour vision can tell apart; a role is never shown by colour alone, its Greek letter stands beside it.
"""

import hashlib
import math
from html import escape
from typing import Final

Real = float | int
"""A number as JSON gives it: the run-time checks do not take an int for a float."""

ROLES: Final = ("alpha", "beta", "gamma", "delta", "auxiliary")

ROLE_COLOURS: Final[dict[str, dict[str, str]]] = {
    "light": {
        "alpha": "#0067a5",
        "beta": "#bd4b00",
        "gamma": "#00795a",
        "delta": "#a23b7a",
        "auxiliary": "#5d6878",
    },
    "dark": {
        "alpha": "#62b6f2",
        "beta": "#f59a52",
        "gamma": "#45cfa3",
        "delta": "#ea94c6",
        "auxiliary": "#a3adbb",
    },
}

THEMES: Final[dict[str, dict[str, str]]] = {
    "light": {
        "page": "#ffffff",
        "panel": "#f6f7f9",
        "text": "#1b2230",
        "muted": "#5d6878",
        "line": "#d5dae1",
        "cell": "#0b4f86",
    },
    "dark": {
        "page": "#12161d",
        "panel": "#1a2029",
        "text": "#e7ebf1",
        "muted": "#a3adbb",
        "line": "#38414e",
        "cell": "#6fc0ff",
    },
}

DARK_NOTEBOOK: Final = ":is([data-jp-theme-light=false] *,.vscode-dark *)"
"""What stands inside a dark JupyterLab or VS Code, as a CSS selector: a notebook's theme is not the system's."""

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

_GREEK = {
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "beta": "\N{GREEK SMALL LETTER BETA}",
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "delta": "\N{GREEK SMALL LETTER DELTA}",
    "auxiliary": "aux",
}
_MINUS = "\N{MINUS SIGN}"
_MISSING = "\N{EN DASH}"
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_BLANKS = {"\n": "↵", "\r": "␍", "\t": "⇥"}


def base_role(role: str) -> str:
    """Return the role without its number.

    >>> base_role("beta_2")
    'beta'
    """
    return role.partition("_")[0]


def role_class(role: str) -> str:
    """Return the CSS class of a role; an unknown role looks like an auxiliary one."""
    base = base_role(role)
    return f"r-{base if base in ROLES else 'auxiliary'}"


def role_symbol(role: str) -> str:
    """Return the short sign of a role.

    >>> role_symbol("beta_2"), role_symbol("auxiliary")
    ('β₂', 'aux')
    """
    base, _, index = role.partition("_")
    return _GREEK.get(base, base) + index.translate(_SUBSCRIPT)


def number(value: Real | None, *, signed: bool = False) -> str:
    """Write a value with three significant digits.

    >>> number(13.2), number(0.010142), number(4.8e-6), number(None)
    ('13.2', '0.0101', '4.80e−6', '–')
    >>> number(6.7, signed=True), number(-2)
    ('+6.70', '−2.00')
    """
    if value is None:
        return _MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if -4 <= exponent < 5:
        text = f"{abs(rounded):,.{max(0, 2 - exponent)}f}"
    else:
        text = f"{abs(rounded) / 10.0**exponent:.2f}e{exponent}".replace("-", _MINUS)
    return (_MINUS if value < 0 else "+" if signed else "") + text


def visible(token: str) -> str:
    """Return a token with its blanks and control characters made visible, so that it takes a place in a figure.

    >>> visible(chr(10)), visible(" the"), visible("")
    ('↵', '·the', '∅')
    """
    shown = "".join(_BLANKS.get(c, "·" if c.isspace() else c if c.isprintable() else f"\\u{ord(c):04x}") for c in token)
    return shown or "∅"


def printable(text: str) -> str:
    r"""Replace what neither XML nor a terminal can carry (control characters, lone surrogates) by its escape.

    >>> printable("a" + chr(0) + "b")
    'a\\u0000b'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or (c.isspace() and c >= " ") or c in "\n\t" else f"\\u{ord(c):04x}" for c in text
    )


def markup(text: str) -> str:
    """Return a text as it may stand in SVG or HTML: printable and escaped, quotes too."""
    return escape(printable(text))


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def text_width(text: str, size: Real) -> float:
    """Return about how wide a text is, in SVG units: exact widths need a browser, this errs on the wide side."""
    return 0.61 * size * len(text)


def element_name(prefix: str, *parts: str) -> str:
    """Return a short name for element ids made of what is shown, so that two drawings on a page do not share them."""
    return f"{prefix}-{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'replace')).hexdigest()[:8]}"


def svg_css(theme: str) -> str:
    """Return the rules of one theme for every figure."""
    t = THEMES[theme]
    rules = [
        f".imir-svg text{{font-family:{FONT};fill:{t['text']};stroke:none}}",
        f".imir-svg .mono{{font-family:{MONO}}}",
        f".imir-svg .muted{{fill:{t['muted']}}}",
        ".imir-svg .strong{font-weight:600}",
        f".imir-svg .page{{fill:{t['page']}}}",
        f".imir-svg .node{{fill:{t['panel']};stroke:{t['text']};stroke-width:1.4}}",
        f".imir-svg .idle{{fill:none;stroke:{t['line']};stroke-width:1.2;stroke-dasharray:3 3}}",
        f".imir-svg .rule{{fill:none;stroke:{t['line']};stroke-width:1}}",
        f".imir-svg .value{{fill:none;stroke:{t['line']};stroke-width:3}}",
        f".imir-svg .frame{{fill:none;stroke:{t['line']};stroke-width:1}}",
        f".imir-svg .cell{{fill:{t['cell']};stroke:none}}",
        f".imir-svg .query{{fill:none;stroke:{ROLE_COLOURS[theme]['beta']};stroke-width:1.6}}",
        f".imir-svg .bar-out{{fill:{t['line']}}}",
        ".imir-svg .edge{fill:none;stroke-linecap:round}",
        f".imir-svg .ink{{fill:none;stroke:{t['text']}}}",
        f".imir-svg .halo{{fill:none;stroke:{t['page']};stroke-width:4.4;stroke-opacity:.75}}",
        f".imir-svg .badge text{{stroke:{t['page']};stroke-width:3.2;stroke-opacity:.8;paint-order:stroke}}",
    ]
    for role, colour in ROLE_COLOURS[theme].items():
        rules += [
            f".imir-svg .edge.r-{role}{{stroke:{colour}}}",
            f".imir-svg .fill.r-{role},.imir-svg text.r-{role}{{fill:{colour}}}",
            f".imir-svg .pill.r-{role}{{fill:{t['page']};stroke:{colour}}}",
        ]
    return "\n".join(rules)


def svg(width: Real, height: Real, body: str, *, name: str, title: str, description: str, zoom: Real = 1.0) -> str:
    """Frame a drawing: an accessible SVG that uses only the classes of `svg_css`.

    Args:
        width: width in SVG units.
        height: height in SVG units.
        body: the drawing, already escaped.
        name: prefix of its element ids, unique on a page.
        title: what it is, read out by screen readers.
        description: what it shows.
        zoom: natural size in pixels over SVG units.

    Returns:
        the element, for a page that carries the rules of `svg_css`; `imir_lens.figures.figure` makes a file of it.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="imir-svg" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width * zoom:g}" height="{height * zoom:g}" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{markup(title)}</title><desc id="{name}-d">{markup(description)}</desc>{body}</svg>'
    )
