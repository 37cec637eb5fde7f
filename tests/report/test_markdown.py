import re

import pytest
from helpers_report import HOSTILE, hostile_report
from sample_report import KINDS, sample_report

from imir_lens.report.markdown import code, render_markdown, text


@pytest.mark.parametrize("kind", KINDS)
def test_it_holds_what_the_page_holds(kind):
    report = sample_report(kind)
    out = render_markdown(report)
    assert text(report["verdict"]["text"]) in out
    for unit in report["circuit"]["units"]:
        assert code(unit["id"]) in out
        assert text(unit["words"]) in out
    for heading in ("The circuit", "Which coordinates matter", "How well it does", "The heads", "Caveats"):
        assert f"\n## {heading}\n" in out
    assert code(report["command"]) in out
    assert ("What was looked for" in out) == (kind == "not_detected")


@pytest.mark.parametrize("make", [sample_report, hostile_report])
def test_every_row_of_a_table_has_as_many_cells_as_its_heading(make):
    tables = re.findall(r"(?:^\|.*\n)+", render_markdown(make()), flags=re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1


def test_markup_in_strings_stays_text():
    outside_code = re.sub(r"(`+).*?\1", "", render_markdown(hostile_report()), flags=re.DOTALL)
    assert "\\<script\\>" in outside_code
    assert not re.search(r"(?<!\\)<(?!br>)", outside_code)


def test_code_spans_hold_backticks_and_bars():
    assert code("a`b``c") == "``` a`b``c ```"
    assert code(HOSTILE) == f"`{HOSTILE}`"
    assert code("") == "` `"


def test_attention_is_told_in_words():
    assert "- L1H0: `v2` at 5: 96%" in render_markdown(sample_report())


def test_without_figures_nothing_is_linked():
    assert "](figures/" in render_markdown(sample_report())
    assert "](figures/" not in render_markdown(sample_report(), figures=False)
