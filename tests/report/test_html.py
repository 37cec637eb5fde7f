import base64
import hashlib
import json
import re

import pytest
from helpers_report import BREAKOUT, HOSTILE, Page, hostile_report
from sample_report import KINDS, sample_report

from imir_lens.report import attention_view
from imir_lens.report.html import render_html
from imir_lens.report.report_figures import report_card


@pytest.fixture(scope="module")
def recall() -> str:
    return render_html(sample_report("recall"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_report_shows_its_verdict_units_and_losses(kind):
    report = sample_report(kind)
    page = Page(render_html(report))
    assert report["verdict"]["text"] in page.text
    assert report["command"] in page.text
    for unit in report["circuit"]["units"]:
        assert unit["id"] in page.text
        assert unit["words"] in page.text
    for caveat in report["verdict"]["caveats"]:
        assert caveat in page.text
    assert page.count("svg") >= 2
    assert "nats" in page.text


@pytest.mark.parametrize("count, said", [(0, None), (1, "1 caveat"), (3, "3 caveats")])
def test_the_evidence_says_how_many_caveats_there_are_and_leads_to_them(count, said):
    report = sample_report("recall")
    report["verdict"]["caveats"] = ["It may be otherwise."] * count
    text = render_html(report)
    assert (said is None) == ('#caveats">' not in text.partition("<main")[2])
    assert said is None or f'<a href="#caveats">{said}</a>' in text


def test_it_is_one_small_file_that_fetches_nothing(recall):
    assert len(recall.encode()) < 4_000_000
    page = Page(recall)
    fetching = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "background"}
    found = [(tag, name, value) for tag, attributes in page.elements for name, value in attributes.items()]
    found = [(tag, name, value) for tag, name, value in found if name in fetching]
    # Links lead into the page itself.
    assert {(tag, name) for tag, name, _ in found} == {("a", "href")}
    assert all(value.startswith("#") for *_, value in found)
    assert page.count("link") == page.count("iframe") == page.count("img") == 0
    # Outside the bundled script, the only address is the name of the SVG language.
    bundle = max(page.scripts, key=len)
    assert len(bundle) > 1_000_000
    rest = recall.replace(bundle, "")
    assert set(re.findall(r"https?://[^\s\"'<>)]*", rest)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in rest
    assert "@import" not in rest
    assert "sourceMappingURL" not in recall


def test_the_policy_lets_only_the_pages_own_scripts_run(recall):
    page = Page(recall)
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    running = [
        script
        for script, attributes in zip(page.scripts, (a for t, a in page.elements if t == "script"), strict=True)
        if attributes.get("type") != "application/json"
    ]
    assert len(running) == 3
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in running]
    assert re.search(r"script-src ([^;]*);", policy)[1] == " ".join(f"'sha256-{value}'" for value in hashes)


def test_every_string_is_escaped():
    text = render_html(hostile_report())
    page = Page(text)
    clean = Page(render_html(sample_report("recall")))
    for tag in ("script", "img", "style"):
        assert page.count(tag) == clean.count(tag)
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert HOSTILE not in text
    assert BREAKOUT not in text
    # They are all there, as text: in tables, figures, headings and the command.
    assert page.text.count(HOSTILE) > 15


def test_tokens_reach_the_view_as_data_and_unharmed():
    page = Page(render_html(hostile_report()))
    kinds = [attributes.get("type") for tag, attributes in page.elements if tag == "script"]
    blocks = [script for script, kind in zip(page.scripts, kinds, strict=True) if kind == "application/json"]
    assert len(blocks) == 2
    for block in blocks:
        assert "<" not in block
        assert json.loads(block)["tokens"][:3] == [HOSTILE, BREAKOUT.replace(" ", "·"), "<bos>"]


def test_control_characters_and_broken_unicode_are_shown_not_written():
    report = sample_report()
    report["verdict"]["text"] = "a\x00b\x1bc\ud800d"
    report["examples"][0]["tokens"][:2] = ["\x00", "\ud800"]
    text = render_html(report)
    assert "a\\u0000b\\u001bc\\ud800d" in text
    assert "\x00" not in text
    text.encode("utf-8")


def test_without_circuitsvis_the_figures_remain_and_it_says_so(monkeypatch):
    monkeypatch.setattr(attention_view, "find_spec", lambda name: None)
    text = render_html(sample_report())
    page = Page(text)
    assert "CircuitsVis is not installed" in page.text
    assert page.count("script") == 1
    assert page.count("svg") == 4
    assert len(text) < 200_000


def test_long_contexts_leave_views_out_rather_than_grow_the_page(monkeypatch):
    monkeypatch.setattr(attention_view, "MOST_DATA", 2_500)
    monkeypatch.setattr(attention_view, "MOST_FIGURES", 20_000)
    report = sample_report()
    report["examples"] *= 2
    text = render_html(report)
    assert text.count("data-attention role") < 4
    assert "interactive view of this context was left out" in text
    assert "fixed figure of this context was left out" in text


def test_the_bundles_licences_are_named_in_the_page(recall):
    comment = recall[recall.index("<!--") : recall.index("-->")]
    for name in ("CircuitsVis (MIT", "React", "Chart.js", "TensorFlow.js (Apache-2.0"):
        assert name in comment


def test_not_detected_says_what_was_looked_for_found_and_lost():
    page = Page(render_html(sample_report("not_detected")))
    assert "Looked for" in page.text
    assert "no unit was kept" in page.text
    assert "model 4.61, surrogate 4.58, chance 4.14, Bayes 0 nats" in page.text
    assert "is it the right task?" in page.text


def test_the_same_report_gives_the_same_page():
    assert render_html(sample_report("hop")) == render_html(sample_report("hop"))


def test_tables_have_headers_and_figures_names(recall):
    page = Page(recall)
    headers = [attributes for tag, attributes in page.elements if tag == "th"]
    assert len(headers) > 30
    assert all("scope" in attributes for attributes in headers)
    assert page.count("caption") == page.count("table")
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert set(attributes["aria-labelledby"].split()) <= set(identifiers)


def test_the_notebook_card_is_small_and_has_no_script():
    card = report_card(hostile_report()).html()
    page = Page(card)
    assert page.count("script") == page.count("img") == page.count("link") == 0
    assert len(card) < 40_000
    assert page.count("svg") == 1
    assert HOSTILE in page.text


def test_two_cards_do_not_share_element_ids():
    first, second = (Page(report_card(sample_report(kind)).html()) for kind in ("recall", "memory"))
    ids = [{a["id"] for _, a in page.elements if "id" in a} for page in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
