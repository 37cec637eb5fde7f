import json

from sample_report import example

from imir_lens.report.attention_view import as_data, attention_props, fitting, read_bundle


def test_the_installed_bundle_can_stand_in_a_script_element():
    bundle = read_bundle()
    assert bundle.startswith('"use strict";var CircuitsVis=')
    assert "</script" not in bundle.lower()
    assert "<!--" not in bundle
    assert "AttentionHeads:" in bundle


def test_data_cannot_close_its_element_and_reads_back():
    value = {"a": ["</script><script>alert(1)</script>", "<!--", "\u2028"]}
    assert "<" not in as_data(value)
    assert json.loads(as_data(value)) == value


def test_props_are_what_the_view_draws():
    context = example(["L0H0", "L1H0"])
    context["tokens"][0] = "\n"
    props = attention_props(context)
    assert props["tokens"][0] == "↵"
    assert props["attentionHeadNames"] == ["L0H0", "L1H0"]
    assert props["attention"][1][13][5] == context["attention"]["L1H0"][13][5] > 0.9
    assert props["maskUpperTri"] is True
    context["attention"]["L0H0"][0][3] = 0.5
    assert attention_props(context)["maskUpperTri"] is False


def test_numbers_are_short():
    context = example(["L0H0"])
    context["attention"]["L0H0"][1][0] = 0.123456
    assert "0.123," in as_data(attention_props(context))
    assert "0.0," not in as_data(attention_props(context))


def test_blocks_are_taken_while_they_fit():
    assert fitting(["aaa", "bbbbb", "cc"], 5) == ["aaa", None, "cc"]
    assert fitting([], 5) == []
