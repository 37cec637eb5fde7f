"""What results show in a notebook: a card that stands anywhere, and text for where there is no HTML."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from helpers_report import HOSTILE, Page, hostile_report
from page_checks import contrast, figures, traffic
from planted_series import TASK, grown, write_series
from sample_report import sample_report

import imir_lens
from imir_lens.causal.construction import construct
from imir_lens.figures import style
from imir_lens.report.cards import Card
from imir_lens.report.document import Report
from imir_lens.report.html import render_html
from imir_lens.report.markdown import render_markdown
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table
from imir_lens.tasks.causal_tree import CausalTree


@pytest.fixture(scope="module")
def circuit():
    model, task = imir_lens.open_model("tests/data/recall_2l.pt"), imir_lens.make_task("recall")
    coordinates = imir_lens.ImirProjector.for_task(task).fit(model.weights).coordinates_
    return imir_lens.detect(coordinates, task.sample(64, torch.Generator().manual_seed(0)))


def is_a_card(text: str) -> Page:
    """It fetches nothing, runs nothing, and its rules touch nothing outside it."""
    page = Page(text)
    assert page.count("script") == page.count("img") == page.count("link") == page.count("iframe") == 0
    assert "url(" not in text and "@import" not in text
    rules = re.sub(r":is\([^)]*\)", "", text[text.index("<style>") + 7 : text.index("</style>")]).split("\n")
    rules = [rule for rule in map(str.strip, rules) if rule]
    assert len(rules) > 30
    for rule in rules:
        assert all(part.strip().startswith(".imir-card") for part in rule.partition("{")[0].split(",")), rule
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    return page


def test_a_circuit_shows_its_graph_and_units(circuit):
    page = is_a_card(circuit._repr_html_())
    assert page.count("svg") == 1 and "of 197 coordinates carry the behaviour" in page.text
    for unit in circuit.units:
        assert str(unit.id) in page.text
        assert f"{unit.value:+.1f}" in page.text.replace("−", "-")
    assert "1 alpha, 1 beta, 1 gamma" in page.text
    assert repr(circuit).startswith("Circuit of ")


def test_a_circuits_graph_is_thicker_where_attribution_is_larger(circuit):
    drawing = circuit.figure("circuit").drawing
    assert "Thicker: a larger attribution, in nats." in drawing
    first, last = circuit.units[0], circuit.units[-1]
    assert abs(circuit.attribution[first.place]) > abs(circuit.attribution[last.place])
    for unit in circuit.units:
        assert f"{unit.id} ({unit.role}, value " in drawing


def test_nothing_detected_is_said_without_a_picture(circuit):
    batch = imir_lens.make_task("recall").sample(64, torch.Generator().manual_seed(0))
    found = imir_lens.detect(circuit.coordinates * 0.0, batch)
    page = is_a_card(found._repr_html_())
    assert "Nothing was detected." in page.text and page.count("svg") == page.count("table") == 0
    assert "No unit survived" in found.figure("circuit").drawing


def test_coordinates_show_the_largest_and_where_they_are(circuit):
    page = is_a_card(circuit.coordinates._repr_html_())
    for name, _ in circuit.coordinates.largest(12):
        assert str(name) in page.text
    assert page.count("svg") == 2 and page.count("tr") == 13
    assert "Drawn: head L1H0 and the readout." in page.text


def test_heads_and_readout_are_figures_with_the_circuit_outlined(circuit):
    assert circuit.figures == ("circuit", "attribution", "L0H0", "L1H0", "readout")
    assert circuit.coordinates.figures == ("L0H0", "L1H0", "readout")
    for name in ("L0H0", "L1H0", "readout"):
        with_roles, without = circuit.figure(name).drawing, circuit.coordinates.figure(name).drawing
        assert "outlined: the circuit" in with_roles and "outlined" not in without
    with pytest.raises(imir_lens.ImirError, match=r"no figure 'L2H0' here; did you mean 'L[01]H0'"):
        circuit.figure("L2H0")


def test_where_nothing_is_attributed_no_attribution_is_drawn_or_linked():
    data = sample_report("not_detected")
    for row in data["coordinates"]:
        row["attribution"] = 0.0
    assert "attribution" not in Report(data).figures
    assert "ttribution" not in render_markdown(data)
    assert "together they hardly lower" in Page(render_html(data)).text


@pytest.mark.parametrize("make", [sample_report, hostile_report])
def test_a_reports_figures_have_titles_units_and_sample_sizes(make):
    report = Report(make())
    assert report.figures[:3] == ("circuit", "attribution", "attention")
    for name in report.figures:
        figure = report.figure(name)
        assert figure.title and ("nats" in figure.caption or "context" in figure.caption)
        assert "<script" not in figure.svg()
    assert "512" in report.figure("circuit").caption


def test_every_context_of_a_report_has_its_figure():
    data = sample_report()
    data["examples"] = [data["examples"][0], {**data["examples"][0], "target": "another"}]
    report = Report(data)
    assert report.figures[2:4] == ("attention", "attention_2")
    assert "another" in report.figure("attention_2").caption and "another" not in report.figure("attention").caption


def test_a_dark_notebook_gets_a_dark_card(circuit):
    text = circuit._repr_html_()
    dark = [line for line in text.splitlines() if line.startswith(".imir-card:is([data-jp-theme-light=false] *")]
    assert any(f"background:{style.THEMES['dark']['page']}" in line for line in dark)
    assert sum(".imir-svg" in line for line in dark) == len(style.svg_css("dark").splitlines())


@pytest.fixture(scope="module")
def results(circuit, tmp_path_factory):
    """A result of each kind that shows itself."""
    series = write_series(tmp_path_factory.mktemp("series"), grown, steps=(0, 40, 80))
    tree = CausalTree(d=4, positions=6, examples=2)
    first, second = Report(sample_report("recall")), Report(sample_report("mixed"))
    return {
        "circuit": circuit,
        "coordinates": circuit.coordinates,
        "report": first,
        "trajectory": imir_lens.trajectory(series, TASK, contexts=64),
        "verification": imir_lens.verify(construct(tree), tree, contexts=32),
        "atlas": imir_lens.heads_atlas("tests/data/recall_rotary_ln.pt", data=True, contexts=4, length=12),
        "comparison": imir_lens.compare(first, second),
    }


LABEL = {"source": "patterns"}
KINDS = ("circuit", "coordinates", "report", "trajectory", "verification", "atlas", "comparison")


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_shows_a_card_its_figures_and_text(kind, results):
    result = results[kind]
    page = is_a_card(result._repr_html_())
    assert page.count("svg") >= 1 and page.count("table") >= 1
    assert len(repr(result)) > 40 and "object at 0x" not in repr(result)
    assert result.figures
    for name in result.figures:
        figure = result.figure(name)
        assert figure.title and figure.caption
        assert ET.fromstring(figure.svg().partition("\n")[2]).get("role") == "img"


def test_no_two_cards_share_element_ids(results):
    texts = [result._repr_html_() for result in results.values()]
    found = [name for text in texts for name in {a["id"] for _, a in Page(text).elements if "id" in a}]
    assert len(found) > 10 and len(found) == len(set(found))


@pytest.mark.parametrize("light", ["true", "false"])
def test_cards_can_be_read_in_light_and_dark_notebooks(light, results, web, tmp_path):
    ground = {"true": "#ffffff", "false": "#111111"}[light]
    cards = "".join(result._repr_html_() for result in results.values())
    cards += results["circuit"].figure("L1H0")._repr_html_()
    path = tmp_path / "notebook.html"
    body = f'<body data-jp-theme-light="{light}" style="background:{ground}"><main><h1 style="color:#808080">Cards</h1>'
    path.write_text(f'<!DOCTYPE html><html lang="en"><title>Cards</title>{body}{cards}</main></body></html>')
    page = web.open(path, width=1100)
    assert contrast(page) == figures(page) == traffic(page) == []
    shown = page.evaluate("getComputedStyle(document.querySelector('.imir-card')).backgroundColor")
    colour = style.THEMES["light" if light == "true" else "dark"]["page"]
    assert shown == f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"
    shown = page.evaluate("getComputedStyle(document.querySelector('body > main > .imir-svg .page')).fill")
    assert shown == f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"
    page.close()


def test_sinks_do_not_crowd_out_what_else_an_atlas_found(results):
    atlas = imir_lens.Atlas(json.loads(json.dumps(results["atlas"].data)))
    for head in atlas.data["heads"]:
        head["labels"] = [{**LABEL, "name": "sink" if head["head"] != "L1H0" else "copying"}]
    listed = atlas._repr_html_().partition("sinks left out")[2]
    assert re.findall(r"<tr><td[^>]*>(L\dH\d)<", listed) == ["L1H0"]


def test_a_card_escapes_what_others_wrote():
    table = Table(HOSTILE, (Column(HOSTILE), Column("c", "code")), [[HOSTILE, HOSTILE]])
    card = Card(HOSTILE, HOSTILE, [KeyNumber(HOSTILE, HOSTILE, HOSTILE)], [], [table], HOSTILE)
    page = is_a_card(card.html())
    assert page.text.count(HOSTILE) >= 8


def test_a_report_read_back_draws_its_coordinates(circuit, tmp_path):
    Report(sample_report(), circuit.coordinates).save(tmp_path / "report")
    again = Report.load(tmp_path / "report")
    assert again.coordinates.figures == ("L0H0", "L1H0", "readout")
    assert again.coordinates.figure("L1H0") == circuit.coordinates.figure("L1H0")
    assert again.figures[-3:] == ("L0H0", "L1H0", "readout")
    outlined = again.figure("L1H0").drawing
    assert outlined == circuit.figure("L1H0").drawing != circuit.coordinates.figure("L1H0").drawing
    assert "L1H0" not in Report(sample_report()).figures


@pytest.mark.parametrize("name", ["circuit", "coordinates_L1H0"])
def test_the_documents_pictures_are_what_is_drawn(name, analysed):
    stored = (Path("docs/images") / f"{name}.svg").read_text(encoding="utf-8")
    assert texts(stored) == texts(analysed.figure(name.partition("_")[2] or name).svg())


def texts(drawing: str) -> list[str]:
    return [
        "".join(part.itertext())
        for part in ET.fromstring(drawing.partition("\n")[2]).iter()
        if part.tag.endswith(("}text", "}title"))
    ]


@pytest.fixture(scope="module")
def analysed():
    """As docs/howto/figures.md analyses it."""
    return imir_lens.analyze("tests/data/recall_2l.pt", "recall", contexts=256, bootstraps=2)
