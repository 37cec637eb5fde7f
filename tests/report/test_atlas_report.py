"""The atlas as files: schema, page, Markdown, CSV; what it refuses; and that foreign text stays text."""

import copy
import csv
import io
import json
import re

import pytest
from calling import DATA, call
from helpers_report import BREAKOUT, HOSTILE, Page

from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.errors import OptionError
from imir_lens.report.atlas_document import Atlas, validate_atlas
from imir_lens.report.atlas_render import render_atlas_html, render_atlas_markdown
from imir_lens.report.validation import ReportError


@pytest.fixture(scope="module")
def full() -> Atlas:
    return heads_atlas(DATA / "recall_rotary_ln.pt", data=True, check=2, relation=[(1, 2)], contexts=4, length=12)


@pytest.fixture(scope="module")
def plain() -> Atlas:
    return heads_atlas(DATA / "recall_rotary_ln.pt")


def test_a_head_is_found_by_its_name(plain):
    assert plain.head("L1H0") is plain.data["heads"][2]
    with pytest.raises(OptionError, match="no head 'L2H0': the model has 2 layers of 2 heads"):
        plain.head("L2H0")


def test_all_modes_follow_the_schema_and_come_back_from_a_directory(full, plain, tmp_path):
    for name, atlas in (("full", full), ("plain", plain)):
        validate_atlas(atlas.data)
        place = atlas.save(tmp_path / name)
        assert {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()} == {
            "atlas.json",
            "heads.html",
            "heads.md",
            "heads.csv",
            "figures/heads.svg",
        }
        assert Atlas.load(place).data == Atlas.load(place / "atlas.json").data == atlas.data
        with pytest.raises(OptionError, match="--force"):
            atlas.save(tmp_path / name)
        atlas.save(tmp_path / name, force=True)


def test_weights_only_has_no_patterns_and_says_so(plain):
    assert plain.data["data"] is None and plain.data["check"] is None
    assert all(head["patterns"] is None and head["removed"] is None for head in plain.heads)
    page = Page(render_atlas_html(plain.data))
    assert "by its weights" in page.text
    assert "Removals" not in page.text
    assert "Weights against patterns" not in page.text


def test_the_page_shows_every_head_its_labels_and_the_thresholds(full):
    page = Page(render_atlas_html(full.data))
    for head in full.heads:
        assert head["head"] in page.text
    for word in ("previous token", "induction", "z ≥ 2", "Bonferroni", "Looked through all 4 pairs"):
        assert word in page.text
    assert page.count("svg") == 1
    assert full.data["command"] in page.text
    for row in full.data["check"]["gains"][1:]:
        assert row["removed"] in page.text


def test_the_page_fetches_nothing_and_runs_only_its_own_scripts(full):
    text = render_atlas_html(full.data)
    page = Page(text)
    assert len(page.scripts) == 2
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'") and "sha256-" in policy
    fetching = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "background"}
    found = [(tag, name, value) for tag, a in page.elements for name, value in a.items() if name in fetching]
    assert not [(tag, name, value) for tag, name, value in found if tag != "a" or not value.startswith("#")]
    assert set(re.findall(r"https?://[^\s\"'<>)]*", text)) == {"http://www.w3.org/2000/svg"}


def test_foreign_text_stays_text(full):
    data = copy.deepcopy(full.data)
    attack = f"{HOSTILE}{BREAKOUT}"
    data["command"] = data["model"]["source"] = data["model"]["family"] = attack
    data["created_with"] = dict.fromkeys(data["created_with"], attack)
    data["heads"][0]["head"] = data["heads"][0]["labels"][0]["evidence"] = attack
    validate_atlas(data)
    page = Page(render_atlas_html(data))
    assert len(page.scripts) == 2
    assert page.count("img") == 0
    assert "<script>" not in render_atlas_markdown(data).replace("\\<script\\>", "").replace(f"`{attack}`", "")


def test_the_csv_holds_every_number(full):
    from imir_lens.report.atlas_tables import csv_rows

    text = io.StringIO()
    csv.writer(text).writerows(csv_rows(full.data))
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert [row["head"] for row in rows] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    for row, head in zip(rows, full.heads, strict=True):
        assert float(row["same_copied.z"]) == head["same_copied"]["z"]
        assert float(row["patterns.induction"]) == head["patterns"]["induction"]
        assert row["labels"] == " ".join(dict.fromkeys(label["name"] for label in head["labels"]))
    assert rows[0]["removed.head"] == "" and float(rows[2]["removed.head"]) == full.heads[2]["removed"]["head"]


def test_top_and_labelled_name_heads(full):
    assert full.top("induction", 2) == ["L1H0", "L1H1"]
    assert full.top("same_copied", 1) == ["L1H0"]
    assert full.labelled("induction", source="patterns") == ["L1H0", "L1H1"]
    assert "induction        L1H0 L1H1" in repr(full)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data.pop("paths"), "paths"),
        (lambda data: data["heads"].pop(), "4 heads"),
        (lambda data: data["heads"].reverse(), "in order"),
        (lambda data: data["heads"][0]["same"].update(z=float("nan")), "finite"),
        (
            lambda data: data["heads"][0]["labels"].append({"name": "wizard", "source": "weights", "evidence": ""}),
            "wizard",
        ),
        (lambda data: data.update(schema="imir-lens/atlas/9"), "imir-lens/atlas/1"),
    ],
)
def test_an_atlas_that_breaks_its_schema_is_refused(full, change, told, tmp_path):
    data = json.loads(json.dumps(full.data))
    change(data)
    with pytest.raises(ReportError, match=told) as caught:
        Atlas(data).save(tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "atlas.json").exists()


def test_the_command_report_makes_an_atlas_again(plain, tmp_path) -> None:
    place = tmp_path / "atlas"
    plain.save(place)
    before = {path.name: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    (place / "heads.html").unlink()
    (place / "heads.csv").write_text("old")
    result = call("report", place)
    assert result.exit_code == 0, result.stderr
    assert {path.name: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert "atlas     " in result.stdout
