"""Real pages by Lighthouse's measure: no traffic, contrast, names, outline, paper, narrow windows, size and speed."""

from functools import cache

import pytest
from helpers_report import hostile_report
from page_checks import (
    axe,
    contrast,
    figures,
    open_folds,
    outline,
    seconds_to_first_view,
    shown_text,
    svg_contrast,
    too_wide,
    traffic,
)
from planted_series import TASK, grown, write_series
from sample_report import sample_report

import imir_lens
from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.causal.construction import construct
from imir_lens.report import Report
from imir_lens.report.atlas_render import render_atlas_html
from imir_lens.report.comparison_build import compare
from imir_lens.report.comparison_render import render_comparison_html
from imir_lens.report.html import render_html
from imir_lens.report.trajectory_render import render_trajectory_html
from imir_lens.report.verification_render import render_verification_html
from imir_lens.tasks.causal_tree import CausalTree

LARGEST, SLOWEST = 4_000_000, 2.0  # bytes; seconds


def _atlas(folder) -> str:
    checkpoint = "tests/data/recall_rotary_ln.pt"
    return render_atlas_html(heads_atlas(checkpoint, data=True, check=2, contexts=4, length=12).data)


def _trajectory(folder) -> str:
    series = write_series(folder / "series", grown, steps=(0, 20, 40, 60, 80))
    return render_trajectory_html(imir_lens.trajectory(series, TASK, contexts=64).data)


def _verification(folder) -> str:
    task = CausalTree(d=4, positions=6, examples=2)
    return render_verification_html(imir_lens.verify(construct(task), task, contexts=48).data)


def _comparison(folder) -> str:
    found = compare(Report(sample_report("recall")), Report(sample_report("mixed")))
    return render_comparison_html(found.data)


MAKERS = {
    "recall": lambda folder: render_html(sample_report("recall")),
    "deep": lambda folder: render_html(sample_report("deep") | {"examples": []}),
    "hostile": lambda folder: render_html(hostile_report()),
    "not_detected": lambda folder: render_html(sample_report("not_detected")),
    "atlas": _atlas,
    "trajectory": _trajectory,
    "verification": _verification,
    "comparison": _comparison,
}
PAPER = dict.fromkeys(MAKERS, 794) | {"atlas": 1009}  # pixels: A4; the table of all heads has a landscape page
LIGHT = (traffic, figures, outline, svg_contrast, axe)
each_page = pytest.mark.parametrize("name", MAKERS)


@pytest.fixture(scope="module")
def path_of(tmp_path_factory):
    """Where the page of a name lies; each is made once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def find(name):
        path = folder / f"{name}.html"
        path.write_bytes(MAKERS[name](folder).encode())
        return path

    return find


def _seconds(page):
    return max(page.load_seconds, seconds_to_first_view(page))


@pytest.fixture(scope="module")
def inspected(web, path_of):
    """What the checks say of the page of a name, opened once for all of them."""

    @cache
    def inspect(name):
        page = web.open(path_of(name))
        found = {"seconds": _seconds(page)}
        page.settle()
        found["marked"] = page.evaluate("[...document.querySelectorAll('.contents [aria-current]')].map(a => a.hash)")
        open_folds(page)
        found |= {check.__name__: check(page) for check in LIGHT}
        page.emulate(dark=True)
        found["in the dark"] = contrast(page)
        page.emulate()
        page.resize(390, 844)
        page.settle()
        found["narrow"] = too_wide(page)
        page.emulate_print(PAPER[name])
        found["paper"] = too_wide(page)
        found["printed"] = shown_text(page)
        page.close()
        return found

    return inspect


@each_page
def test_the_contents_mark_the_section_that_is_read(inspected, name):
    assert inspected(name)["marked"] == ["#main"]


@each_page
def test_nothing_is_fetched_and_nothing_complains(name, inspected):
    assert inspected(name)["traffic"] == []


@each_page
def test_axe_finds_nothing(name, inspected):
    assert inspected(name)["axe"] == []


@each_page
def test_text_stands_out_in_both_themes(name, inspected):
    assert inspected(name)["svg_contrast"] == inspected(name)["in the dark"] == []


@each_page
def test_every_figure_has_words(name, inspected):
    assert inspected(name)["figures"] == []


@each_page
def test_headings_landmarks_and_links_are_in_order(name, inspected):
    assert inspected(name)["outline"] == []


@each_page
def test_neither_a_narrow_window_nor_paper_cuts_anything(name, inspected):
    assert inspected(name)["narrow"] == inspected(name)["paper"] == []
    assert "Skip to the content" not in inspected(name)["printed"]


@each_page
def test_it_is_small_and_there_at_once(name, web, path_of, inspected):
    assert path_of(name).stat().st_size < LARGEST
    best = inspected(name)["seconds"]
    for _ in range(2):
        if best >= SLOWEST:
            page = web.open(path_of(name))
            best = min(best, _seconds(page))
            page.close()
    assert best < SLOWEST


@pytest.mark.parametrize("kind", ["recall", "deep"])
def test_paper_has_the_verdict_the_units_and_what_was_folded(kind, web, path_of):
    report = sample_report(kind)
    page = web.open(path_of(kind))
    page.emulate_print()
    text = shown_text(page)
    hidden = page.evaluate(
        "[...document.querySelectorAll('details.long table')].some(e => e.checkVisibility("
        "{contentVisibilityAuto: true}) && e.getBoundingClientRect().height > 0)"
    )
    shown = page.evaluate("[...document.querySelectorAll('.example svg, table.facts')].map(e => e.checkVisibility())")
    views = page.evaluate("[...document.querySelectorAll('canvas, nav, .skip')].some(e => e.checkVisibility())")
    page.close()
    assert report["verdict"]["text"] in text
    assert all(unit["id"] in text for unit in report["circuit"]["units"])
    assert all(caveat in text for caveat in report["verdict"]["caveats"])
    assert report["model"]["sha256"] in text
    assert len(shown) == (3 if kind == "recall" else 1) and all(shown) and not hidden and not views


def test_a_page_prints_on_several_sheets(web, path_of, tmp_path):
    page = web.open(path_of("recall"))
    page.pdf(tmp_path / "report.pdf")
    page.close()
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF") and 3 <= data.count(b"/Type /Page\n") <= 9


GOOD = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"></head><body style="background:#fff;color:#000">
<nav aria-label="Contents"><a href="#main">Text</a></nav><main id="main"><h1>Heading</h1><p>Text</p>{}</main>
</body></html>"""
_SVG = (
    '<svg role="img" aria-labelledby="t d" width="90" height="40"><title id="t">T</title><desc id="d">D</desc>{}</svg>'
)

BAD = {
    "pale text": (axe, '<p style="color:#bbb">Pale</p>'),
    "an image without words": (axe, '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">'),
    "pale text in a figure": (svg_contrast, _SVG.format('<text y="20" fill="#999">pale</text>')),
    "text on a dark shape": (
        svg_contrast,
        _SVG.format('<rect width="90" height="40" fill="#333"/><text y="20" fill="#000">dark</text>'),
    ),
    "a figure without a title": (figures, '<svg role="img" width="9" height="9"><rect width="9" height="9"/></svg>'),
    "an image from elsewhere": (traffic, '<img alt="x" src="http://example.invalid/x.png">'),
    "a style from elsewhere": (traffic, '<link rel="stylesheet" href="http://example.invalid/x.css">'),
    "a complaint": (traffic, "<script>console.error('wrong')</script>"),
    "an exception": (traffic, "<script>null.wrong</script>"),
    "a complaint in a frame": (traffic, '<iframe title="f" srcdoc="<script>console.error(1)</script>"></iframe>'),
    "a script against the policy": (
        traffic,
        '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'"><script>1</script>',
    ),
    "two first headings": (outline, "<h1>Again</h1>"),
    "a skipped level": (outline, "<h3>Too deep</h3>"),
    "a link to nothing": (outline, '<a href="#nothing">x</a>'),
    "a wide box": (too_wide, '<div style="width:3000px">wide</div>'),
    "a long word": (too_wide, f"<ul><li>{'word' * 400}</li></ul>"),
}


def test_a_good_page_passes_every_check(web, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        GOOD.format(_SVG.format('<rect width="90" height="40" fill="#333"/><text y="20" fill="#fff">t</text>'))
    )
    page = web.open(path)
    found = {check.__name__: check(page) for check in (*LIGHT, too_wide)}
    page.close()
    assert found == {check: [] for check in found}


@pytest.mark.parametrize("flaw", BAD)
def test_a_flaw_is_found(flaw, web, tmp_path):
    check, piece = BAD[flaw]
    path = tmp_path / "page.html"
    path.write_text(GOOD.format(piece))
    page = web.open(path)
    found = check(page)
    page.close()
    assert found


def test_a_key_sorts_the_table_of_heads(web, path_of):
    page = web.open(path_of("atlas"))
    heading = "document.querySelectorAll('.sortable th.number')[0]"
    page.evaluate(f"{heading}.querySelector('button').focus()")
    value = f"parseFloat(row.cells[{heading}.cellIndex].textContent)"
    column = f"[...document.querySelectorAll('.sortable tbody tr')].map(row => {value})"
    orders = []
    for _ in range(2):
        page.press("Enter")
        orders.append((page.evaluate(f"{heading}.getAttribute('aria-sort')"), page.evaluate(column)))
    page.close()
    assert [told for told, _ in orders] == ["descending", "ascending"]
    assert orders[0][1] == sorted(orders[1][1], reverse=True) != orders[1][1]
