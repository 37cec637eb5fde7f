"""The pages of a comparison."""

import re

import pytest
from helpers_report import BREAKOUT, HOSTILE, Page, hostile_report
from sample_report import KINDS, sample_report

from imir_lens.report import Report
from imir_lens.report.comparison_build import compare, comparison_data
from imir_lens.report.comparison_document import Comparison
from imir_lens.report.comparison_render import render_comparison_html, render_comparison_markdown
from imir_lens.report.html import policy as policy_of


def pair(first: dict, second: dict) -> dict:
    return compare(Report(first), Report(second)).data


@pytest.fixture(scope="module", params=["first", "second"])
def hostile(request) -> dict:
    reports = [Report(hostile_report()), Report(sample_report("mixed"))]
    one, two = reports if request.param == "first" else reports[::-1]
    return comparison_data(one, two, command=BREAKOUT)


@pytest.mark.parametrize("kind", KINDS)
def test_page_and_markdown_show_both_reports(kind):
    data = pair(sample_report("recall"), sample_report(kind))
    page, words = Page(render_comparison_html(data)), render_comparison_markdown(data)
    for side in ("first", "second"):
        assert data[side]["verdict"]["text"] in page.text
        assert data[side]["command"] in page.text
        for unit in data[side]["circuit"]["units"]:
            assert unit["id"] in page.text
            assert unit["id"].replace(">", ">") in words
    assert data["headline"] in page.text
    for caveat in data["caveats"]:
        assert caveat in page.text
    assert page.count("svg") >= 1


def test_only_in_one_circuit_is_said_in_words():
    text = Page(render_comparison_html(pair(sample_report("recall"), sample_report("mixed")))).text
    assert "A only" in text
    assert "B only" in text
    assert "A and B" in text


def test_it_fetches_nothing_and_runs_only_the_script_of_every_page():
    text = render_comparison_html(pair(sample_report("recall"), sample_report("memory")))
    page = Page(text)
    assert page.count("link") == page.count("img") == page.count("iframe") == 0
    assert len(page.scripts) == 1
    assert set(re.findall(r"https?://[^\s\"'<>)]*", text)) == {"http://www.w3.org/2000/svg"}
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    assert policy == policy_of(page.scripts)


def test_every_string_is_escaped(hostile):
    text = render_comparison_html(hostile)
    page = Page(text)
    assert (page.count("script"), page.count("img")) == (1, 0)
    assert page.count("style") == 1
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert HOSTILE not in text
    assert BREAKOUT not in text
    assert page.text.count(HOSTILE) > 10
    assert HOSTILE not in re.sub(r"`[^`\n]*`", "", render_comparison_markdown(hostile))
    card = Page(Comparison(hostile)._repr_html_())
    assert card.count("script") == card.count("img") == 0


def test_tables_have_headers_figures_have_names_and_ids_are_unique():
    page = Page(render_comparison_html(pair(sample_report("recall"), sample_report("deep"))))
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    assert page.count("caption") == page.count("table")
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    named = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("role") == "img"]
    assert named
    for attributes in named:
        assert set(attributes["aria-labelledby"].split()) <= set(identifiers)
    for tag, attributes in page.elements:
        if attributes.get("tabindex") == "0":
            assert "aria-label" in attributes, tag


def test_both_graphs_are_drawn_at_one_scale_and_the_thickest_line_is_the_costliest_of_both():
    first, second = sample_report("recall"), sample_report("mixed")
    drawing = compare(Report(first), Report(second)).figure("circuits").drawing
    above, below = drawing.split('<g class="circuit" transform="translate(0 ')[1:]
    assert "scale(" not in drawing
    thickest = [
        max(map(float, re.findall(r'class="edge r-\w+" stroke-width="([\d.]+)"', part))) for part in (above, below)
    ]
    effects = [
        max(u["loss_if_removed"]["model"] for u in data["circuit"]["units"]) - data["evaluation"]["model"]["loss"]
        for data in (first, second)
    ]
    assert thickest[0] == 8
    assert thickest[1] == pytest.approx(1.6 + 6.4 * (effects[1] / effects[0]) ** 0.5, abs=0.06)


def test_marks_of_the_scatter_stand_where_their_values_are():
    data = pair(sample_report("recall"), {**sample_report("recall"), "seed": 1})
    drawing = compare(Report(sample_report("recall")), Report({**sample_report("recall"), "seed": 1}))
    circles = re.findall(
        r'<circle class="fill (\S+)"[^>]*cx="([\d.]+)" cy="([\d.]+)" r="5.5"', drawing.figure("coordinates").drawing
    )
    assert len(circles) == len(data["units"]) == 4
    # Equal values: all on the diagonal of a square frame.
    assert len({round(float(x) + float(y), 0) for _, x, y in circles}) == 1
    assert {colour for colour, _, _ in circles} == {"r-alpha", "r-beta", "r-gamma", "r-auxiliary"}
