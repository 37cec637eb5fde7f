"""The page in a real browser, without a network: what its scripts draw, and where links and keys lead."""

import html
import re

import pytest
from helpers_report import Page, hostile_report
from page_checks import axe, figures, svg_contrast, traffic
from sample_report import example, sample_report

from imir_lens.report.attention_page import AttentionView
from imir_lens.report.html import render_html
from imir_lens.report.summary import subject


@pytest.fixture
def opened(web, tmp_path):
    """Open a report's page; closed after the test, which fails when the page complained."""
    pages = []

    def open_page(report, part=""):
        path = tmp_path / "report.html"
        path.write_bytes(render_html(report).encode())
        pages.append(web.open(path.as_uri() + part))
        return pages[-1]

    yield open_page
    for page in pages:
        assert page.requests == page.console_errors == []
        page.close()


DRAWN = "document.querySelectorAll('canvas').length === 3"
LARGE = "document.querySelector('#view-0 h2').textContent"


@pytest.mark.parametrize("make", [sample_report, hostile_report], ids=["sample", "hostile"])
def test_the_view_and_the_graph_are_drawn(make, opened):
    page = opened(make())
    # The open context: a thumbnail for each head and the large one; the closed one is drawn when it opens.
    page.until(DRAWN)
    dom = Page(page.evaluate("document.documentElement.outerHTML"))
    canvases = [attributes for tag, attributes in dom.elements if tag == "canvas"]
    assert all(float(attributes["width"]) > 20 for attributes in canvases)
    assert "Head Selector" in dom.text
    titles = [
        i for i, (tag, a) in enumerate(dom.elements) if tag == "svg" and a["aria-labelledby"] == "circuit-t circuit-d"
    ]
    assert len(titles) == 1
    pills = sum("pill" in (a.get("class") or "").split() for _, a in dom.elements)
    assert pills == (4 if make is sample_report else 3)
    page.evaluate("document.querySelectorAll('details.example')[1].open = true")
    page.until("document.querySelectorAll('canvas').length === 6")


def test_hostile_strings_stay_text(opened):
    report = hostile_report()
    page = opened(report)
    page.until(DRAWN)
    dom = page.evaluate("document.documentElement.outerHTML")
    title = html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1])
    assert title == f"Circuit report: {subject(report)} on {report['task']['name']}"
    assert page.evaluate("document.title") == title
    assert "<script>alert" not in dom
    assert "<title>owned" not in dom
    assert Page(dom).count("img") == 0


def test_the_browser_would_have_run_a_script(web, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<title>before</title><script>document.title='owned'</script>")
    page = web.open(path)
    assert page.evaluate("document.title") == "owned"
    page.close()


def test_a_unit_leads_to_where_its_heads_look_and_back(opened):
    page = opened(sample_report())
    page.until(DRAWN)
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = false })")
    assert page.evaluate(LARGE) == "L0H0"
    page.click("#unit-1 a")  # readout/via:L1H0/same
    page.until("location.hash === '#attention-0-L1H0'")
    page.until(f"{LARGE} === 'L1H0'")
    assert page.evaluate("document.querySelector(':target').closest('details').open")
    page.until("(top => top > 0 && top < innerHeight)(document.querySelector(':target').getBoundingClientRect().top)")
    page.click(".shown a[href='#unit-1']")
    page.until("location.hash === '#unit-1'")
    assert "readout/via:L1H0/same" in page.evaluate("document.querySelector(':target').textContent")


def test_a_large_pattern_grows_again_with_the_window(opened):
    page = opened(sample_report())
    page.until(DRAWN)
    width = "[...document.querySelectorAll('#view-0 canvas')].pop().clientWidth"
    before = page.evaluate(width)
    for pixels, wanted in ((400, f"{width} < {before}"), (1280, f"{width} === {before}")):
        page.resize(pixels)
        page.until(wanted)


def test_an_address_can_lead_into_a_fold(opened):
    page = opened(sample_report(), part="#attention-1-L1H0")
    page.until("document.querySelectorAll('canvas').length === 6")
    page.until("document.querySelector('#view-1 h2').textContent === 'L1H0'")
    assert page.evaluate(LARGE) == "L0H0"


def test_without_scripts_it_does_so_too(web, tmp_path):
    path = tmp_path / "report.html"
    path.write_bytes(render_html(sample_report()).encode())
    page = web.open("about:blank")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.call("Page.navigate", url=f"{path.as_uri()}#attention-1-L1H0")
    page.until("document.querySelectorAll('details.example[open]').length === 2")
    assert page.evaluate("document.querySelectorAll('canvas').length") == 0
    page.close()


def test_a_notebooks_view_is_for_everyone_and_stays_in_its_frame(web, tmp_path):
    path = tmp_path / "notebook.html"
    view = AttentionView(sample_report()["examples"][0])
    path.write_text(
        f'<!DOCTYPE html><html lang="en"><title>A</title><main><h1>A</h1>{view._repr_html_()}</main></html>'
    )
    outside = web.open(path)
    inside = web.open(view.save(tmp_path / "view.html"))
    for page in (outside, inside):
        page.until("document.readyState === 'complete'")
        assert [*traffic(page), *figures(page), *svg_contrast(page), *axe(page)] == []
    assert outside.evaluate_frames("document.querySelectorAll('[data-attention] [role=button]').length") == [0, 2]
    outside.close()
    inside.close()


@pytest.mark.parametrize("heads", [2, 12])
def test_a_notebooks_view_fits_its_frame_and_can_be_read_in_a_dark_notebook(heads, web, tmp_path):
    path = tmp_path / "notebook.html"
    view = AttentionView(example([f"L{k // 6}H{k % 6}" for k in range(heads)]))
    path.write_text(f"<!DOCTYPE html>{view._repr_html_()}")
    page = web.open(path, dark=True)
    page.until("document.readyState === 'complete'")
    drawn = f"document.querySelectorAll('canvas').length === {heads + 1}"
    look = "[matchMedia('(prefers-color-scheme: dark)').matches, getComputedStyle(document.querySelector('h1')).color]"
    assert page.evaluate_frames(f"{drawn} && {look}")[1] == [True, "rgb(93, 104, 120)"]
    for width in (950, 700, 600, 400):
        page.resize(width)
        page.settle()
        assert page.evaluate_frames("document.documentElement.scrollHeight - innerHeight")[1] == 0, width
    page.close()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened):
    page = opened(sample_report())
    page.until("document.querySelectorAll('[data-attention] [role=button]').length === 2")
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    page.until("document.querySelectorAll('[data-attention] [role=button]').length === 4")
    wanted = page.evaluate("document.querySelectorAll('a, summary, button, [role=button]').length")
    seen = []
    for _ in range(wanted + 20):
        page.press("Tab")
        seen += [
            page.evaluate(
                "(e => [e.tagName, e.getAttribute('role'), getComputedStyle(e).outlineStyle])(document.activeElement)"
            )
        ]
        if seen[-1][0] == "BODY":
            break
    reached = seen[:-1]
    assert len([one for one in reached if one[0] in ("A", "SUMMARY", "BUTTON") or one[1] == "button"]) == wanted
    assert {outline for *_, outline in reached} == {"solid"}


def test_keys_skip_the_contents_and_choose_a_head(opened):
    page = opened(sample_report())
    page.until(DRAWN)
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.press("Enter")
    page.until("document.activeElement.id === 'main'")
    button = "document.querySelectorAll('#view-0 [role=button]')[1]"
    page.evaluate(f"{button}.focus()")
    page.press("Enter")
    page.until(f"{LARGE} === 'L1H0'")
    page.until(f"{button}.getAttribute('aria-pressed') === 'true'")


def test_a_screen_reader_is_told_names_and_levels(opened):
    page = opened(sample_report())
    page.until("document.querySelectorAll('[data-attention] [role=button]').length === 2")
    told = page.accessibility_tree()
    assert [one["name"] for one in told if one["role"] == "navigation"] == ["Contents"]
    assert [one["name"] for one in told if one["role"] == "heading" and one["properties"]["level"] == 1] == [
        sample_report()["verdict"]["text"]
    ]
    for role in ("link", "button", "image", "figure", "table", "DisclosureTriangle"):
        names = [one["name"] for one in told if one["role"] == role]
        assert all(names), role
        assert names or role == "DisclosureTriangle", role
    assert {"L0H0: show it large", "L1H0: show it large"} <= {one["name"] for one in told}
