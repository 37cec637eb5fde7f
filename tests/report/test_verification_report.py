"""The report of a verification: its data, its page, its figures, its Markdown."""

import copy
import json
import re
import xml.etree.ElementTree as ET

import pytest
from helpers_report import HOSTILE, Page
from jsonschema import Draft202012Validator

import imir_lens
from imir_lens.causal.construction import construct
from imir_lens.causal.flat_construction import construct_flat
from imir_lens.figures.axes import Axes, ticks
from imir_lens.figures.figure import standalone
from imir_lens.figures.signed_map import signed_map
from imir_lens.report.validation import ReportError, load_schema
from imir_lens.report.verification_document import SCHEMA_NAME, VerificationReport, validate_verification
from imir_lens.report.verification_figures import figure_makers
from imir_lens.report.verification_render import (
    render_verification_html,
    render_verification_markdown,
)
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.linear_dynamics import LinearDynamics

SIZES = {"d": 4, "positions": 6, "examples": 2}
TASK, VECTORS = CausalTree(**SIZES), LinearDynamics(**SIZES, unit_norm=True)


@pytest.fixture(scope="module")
def reports():
    """Of a causal transformer, one of vectors, and an ordinary transformer."""
    return {
        "tokens": imir_lens.verify(construct(TASK), TASK, contexts=48).data,
        "vectors": imir_lens.verify(construct(VECTORS), VECTORS, contexts=48).data,
        "ordinary": imir_lens.verify(construct_flat(TASK), TASK, contexts=48).data,
        "another kernel": imir_lens.verify(construct(CausalTree(**SIZES, kernel_seed=7)), TASK, contexts=48).data,
    }


KINDS = ("tokens", "vectors", "ordinary", "another kernel")


@pytest.fixture
def report(reports):
    return copy.deepcopy(reports["tokens"])


@pytest.mark.parametrize("kind", KINDS)
def test_data_follow_the_schema_and_survive_json(reports, kind, tmp_path):
    Draft202012Validator.check_schema(load_schema(SCHEMA_NAME))
    validate_verification(reports[kind])
    VerificationReport(reports[kind]).save(tmp_path / "out")
    again = VerificationReport.load(tmp_path / "out")
    assert again.data == json.loads(json.dumps(reports[kind]))
    assert again.verdict["mechanism"] == ("not_detected" if kind == "another kernel" else "causal_bma")
    assert max(len(line) for line in (tmp_path / "out" / "report.json").read_text().splitlines()) > 200


def test_every_field_of_the_data_is_described(reports):
    """No field that the schema does not know, down to the tables."""

    def unknown(value, schema, place):
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
        if "oneOf" in schema:
            schema = next(one for one in schema["oneOf"] if one.get("type") != "null")
            schema = root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        if isinstance(value, dict) and "properties" in schema:
            for key, item in value.items():
                if key not in schema["properties"]:
                    yield f"{place}.{key}"
                else:
                    yield from unknown(item, schema["properties"][key], f"{place}.{key}")
        if isinstance(value, list) and value and "items" in schema:
            yield from unknown(value[0], schema["items"], f"{place}[0]")

    root = load_schema(SCHEMA_NAME)
    for data in reports.values():
        assert list(unknown(data, root, "report")) == []
    assert list(unknown({"surprise": 1}, root, "report")) == ["report.surprise"]


SPOILED = {
    "schema": lambda r: r.update(schema="imir-lens/report/1"),
    "missing": lambda r: r["behaviour"].pop("curve"),
    "infinite": lambda r: r["behaviour"]["losses"].update(model=float("inf")),
    "ragged attention": lambda r: r["examples"][0]["attention"][1].pop(),
    "ragged kernel": lambda r: r["drawn"]["kernel"]["effective"]["matrix"][0].pop(),
    "lists of two lengths": lambda r: r["drawn"]["cells"]["posterior"].append(0.5),
    "mechanism": lambda r: r["verdict"].update(mechanism="in_context"),
    "one kind of error": lambda r: r["parameters"].update(row=None),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_data_that_do_not_follow_the_schema_are_refused_and_nothing_is_written(report, spoil, tmp_path):
    spoil(report)
    with pytest.raises(ReportError) as error:
        VerificationReport(report).save(tmp_path / "out")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_stands_alone_and_says_the_verdict_first(reports, kind):
    data = reports[kind]
    page = Page(render_verification_html(data))
    assert page.count("script") == 1 and page.count("img") == 0 and page.count("link") == 0
    assert page.text.index(data["verdict"]["text"]) < page.text.index("Tier 1")
    assert page.count("svg") == len(figure_makers(data))
    identifiers = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(identifiers) == len(set(identifiers))
    for check in data["verdict"]["checks"]:
        assert check["asked"] in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_whole_and_described(reports, kind):
    for name, make in figure_makers(reports[kind]).items():
        drawing = make().drawing
        tree = ET.fromstring(standalone(drawing).partition("\n")[2])
        title, description = (tree.find(f"{{http://www.w3.org/2000/svg}}{tag}").text for tag in ("title", "desc"))
        assert title and description, name
        assert not re.search(r"\b(nan|inf|None)\b", drawing), name
        width, height = map(float, tree.attrib["viewBox"].split()[2:])
        for text in tree.iter("{http://www.w3.org/2000/svg}text"):
            if "x" in text.attrib:
                assert 0 <= float(text.attrib["x"]) <= width and 0 <= float(text.attrib["y"]) <= height, name


def test_axes_have_titles_with_units(report):
    figures = {name: make().drawing for name, make in figure_makers(report).items()}
    for name, wanted in {
        "examples": ("in nats", "examples before the query"),
        "ablations": ("predicted change of L_pa, in nats", "measured change, in nats"),
        "copyers": ("in positions", "bias, in nats"),
        "posterior": ("posterior", "probability", "in positions"),
        "attention": ("candidate h", "position h"),
    }.items():
        assert all(words in figures[name] for words in wanted), name


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_links_the_figures_that_are_saved(reports, kind, tmp_path):
    VerificationReport(reports[kind]).save(tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    linked = set(re.findall(r"\(figures/(\w+)\.svg\)", text))
    assert linked == {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert reports[kind]["verdict"]["evidence_level"] in text
    assert "figures/" not in render_verification_markdown(reports[kind], figures=False)


def test_what_others_wrote_stays_text(report):
    report["command"] = report["verdict"]["text"] = HOSTILE
    report["model"]["source"] = report["model"]["family"] = HOSTILE
    report["verdict"]["caveats"] = [HOSTILE]
    report["behaviour"]["reader"] = HOSTILE
    report["drawn"]["copyers"]["heads"][0] = HOSTILE
    report["mechanism"]["ablations"][0]["what"] = HOSTILE
    page = Page(render_verification_html(report))
    assert page.count("script") == 1 and HOSTILE in page.text
    markdown = render_verification_markdown(report).replace(f"`{HOSTILE}`", "")  # a code span shows it as it is
    assert "<script" not in markdown.replace("\\<", "")
    for make in figure_makers(report).values():
        assert "<script" not in make().svg()


def test_a_figure_shows_what_the_data_say(report):
    before = figure_makers(report)["examples"]().drawing
    report["behaviour"]["curve"][0]["model"] += 0.1
    assert figure_makers(report)["examples"]().drawing != before
    validate_verification(report)


def test_ticks_are_round_and_inside():
    assert ticks(0, 1.1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(-3.2, 4.1) == [-2, 0, 2, 4]
    axes = Axes(10.0, 20.0, 100.0, 50.0, (1, 100), (0, 2), log_x=True)
    assert axes.x(10) == pytest.approx(60) and axes.y(0) == 70 and axes.y(3) == 20


def test_a_signed_map_paints_signs_apart_and_leaves_zero_blank():
    drawing = signed_map([[1.0, 0.0], [0.0, -1.0]], 0, 0, 10)
    assert drawing.count('class="cell"') == 1 and drawing.count("r-beta") == 1
    assert signed_map([[0.0]], 0, 0, 10).count("<path") == 0


def test_figures_say_on_how_many_contexts_or_that_they_are_weights(reports):
    for kind, data in reports.items():
        report = VerificationReport(data)
        for name in report.figures:
            caption = report.figure(name).caption
            ordinary = kind == "ordinary"
            weights = name in ("kernel", "errors") or (name == "copyers" and not ordinary)
            assert ("from the weights" in caption) == weights, (kind, name)
            assert ("contexts" in caption) != weights, (kind, name)
