import re
import xml.etree.ElementTree as ET

from sample_report import example

from imir_lens.figures.attention import LEVELS, attention_figure

SVG = "{http://www.w3.org/2000/svg}"


def draw(context):
    return ET.fromstring(attention_figure(context))


def said(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def cells(root):
    """Area painted per shade, in cells."""
    size = float(next(root.iter(f"{SVG}rect")).get("width")) / 14
    out = {}
    for path in root.iter(f"{SVG}path"):
        widths = [float(w) for w in re.findall(r"h([\d.]+)v", path.get("d"))]
        out[float(path.get("fill-opacity"))] = round(sum(widths) / size)
    return out


def test_each_head_has_its_map_with_the_query_outlined():
    root = draw(example(["L0H0", "L1H0"]))
    outlined = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "query"]
    frames = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "frame"]
    assert len(outlined) == 2
    assert {"L0H0", "L1H0", "query: 96% on v2 at 5"} <= set(said(root))
    cell = float(frames[0].get("width")) / 14
    assert abs(float(outlined[0].get("y")) - float(frames[0].get("y")) - 13 * cell) < 1.5


def test_cells_show_the_pattern():
    context = example(["L0H0"])
    pattern = [[0.0] * 14 for _ in range(14)]
    pattern[3][0:3] = [1.0, 1.0, 0.5]
    context["attention"] = {"L0H0": pattern}
    assert cells(draw(context)) == {1.0: 2, 0.5: 1}
    assert LEVELS == 12


def test_tokens_stand_on_both_sides_blanks_included():
    context = example(["L0H0"])
    context["tokens"][1:3] = ["\n", "<bos>"]
    shown = said(draw(context))
    assert shown.count("↵") == shown.count("<bos>") == 2


def test_long_contexts_keep_readable_labels_and_the_query():
    n = 200
    pattern = [[1 / (i + 1) if j <= i else 0.0 for j in range(n)] for i in range(n)]
    context = {**example(["L0H0"]), "tokens": [f"w{i}" for i in range(n)], "query": 101, "attention": {"L0H0": pattern}}
    root = draw(context)
    labels = [text for text in root.iter(f"{SVG}text") if (text.text or "").startswith("w")]
    assert 40 < len(labels) < 120
    assert min(float(text.get("font-size")) for text in labels) >= 7
    assert "w101" in said(root)


def test_many_heads_wrap():
    root = draw(example([f"L{k}H0" for k in range(5)]))
    assert len([rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "query"]) == 5
    _, _, width, height = map(float, root.get("viewBox").split())
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x")) + float(rect.get("width")) <= width
        assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_it_says_what_it_shows():
    root = draw(example(["L0H0"]))
    assert root.find(f"{SVG}desc").text.endswith("the query, k7 at position 13; the answer is v2.")
