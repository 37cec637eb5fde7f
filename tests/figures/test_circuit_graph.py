import re
import xml.etree.ElementTree as ET

import pytest
from sample_report import KINDS, sample_report

from imir_lens.figures.circuit_graph import circuit_graph
from imir_lens.figures.figure import standalone
from imir_lens.figures.graph_layout import Edge, edges_of, parse_units
from imir_lens.ids import Head

SVG = "{http://www.w3.org/2000/svg}"


def draw(report):
    return ET.fromstring(circuit_graph(report))


def boxes(root, name):
    return [
        tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if name in rect.get("class").split()
    ]


def apart(a, b):
    return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]


def texts(root):
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def thickness(root, role):
    found = [float(p.get("stroke-width")) for p in root.iter(f"{SVG}path") if f"r-{role}" in p.get("class", "").split()]
    return max(found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_unit_is_labelled_once_and_no_label_covers_a_head_or_another(kind):
    report = sample_report(kind)
    root = draw(report)
    pills = boxes(root, "pill")
    labelled = [unit for unit in report["circuit"]["units"]]
    assert len(pills) == len(labelled)
    heads = boxes(root, "node") + boxes(root, "idle")
    assert len(heads) == report["model"]["n_layers"] * report["model"]["n_heads"] + 2
    for k, pill in enumerate(pills):
        assert all(apart(pill, head) for head in heads)
        assert all(apart(pill, other) for other in pills[:k])


@pytest.mark.parametrize("kind", KINDS)
def test_everything_lies_inside_the_picture(kind):
    root = draw(sample_report(kind))
    _, _, width, height = map(float, root.get("viewBox").split())
    dx, dy = map(float, re.findall(r"-?[\d.]+", root.find(f"{SVG}g").get("transform")))
    found = boxes(root, "pill") + boxes(root, "node") + boxes(root, "idle")
    assert all(x + dx >= 0 and x + dx + w <= width and y + dy >= 0 and y + dy + h <= height for x, y, w, h in found)
    assert all(0 < float(text.get("y")) + dy < height for text in root.iter(f"{SVG}text"))


def test_columns_are_layers():
    said = texts(draw(sample_report("hop")))
    for title in ("input", "layer 0", "layer 1", "layer 2", "prediction", "L0H0", "L1H0", "L2H0"):
        assert title in said


def test_alpha_is_a_loop_beta_an_edge_gamma_a_readout():
    parsed, strange = parse_units(sample_report("recall")["circuit"]["units"])
    assert strange == []
    sides = [(edge.start, edge.end, edge.side, edge.labelled) for edge in edges_of(parsed)]
    first, second = Head(0, 0), Head(1, 0)
    assert sides == [
        (None, first, "value", False),
        (None, second, "value", False),
        (first, second, "key", True),
        (None, second, "query", False),
        (second, None, "readout", True),
    ]
    label = next(text for text in texts(draw(sample_report("recall"))) if "offset+1" in text)
    assert label.endswith("+6.71")


def test_a_deep_path_is_a_chain():
    unit = sample_report("memory")["circuit"]["units"][0]
    parsed, _ = parse_units([unit])
    assert Edge(Head(0, 0), Head(1, 0), "chain", unit, False) in edges_of(parsed)


def test_thickness_grows_with_the_loss_when_removed():
    report = sample_report("recall")
    before = draw(report)
    assert thickness(before, "beta") > thickness(before, "alpha") > thickness(before, "auxiliary") > 0
    for unit in report["circuit"]["units"]:
        unit["loss_if_removed"]["model"] = 20.0 if unit["role"] == "alpha" else 1.0
    after = draw(report)
    assert thickness(after, "alpha") > 2 * thickness(after, "beta")


def test_edges_with_both_ends_in_common_stand_apart():
    report = sample_report("memory")
    twin = {**report["circuit"]["units"][0], "id": "readout/via:L1H0/assoc"}
    report["circuit"]["units"].append(twin)
    starts = [
        path.get("d").split("C")[0]
        for path in draw(report).iter(f"{SVG}path")
        if twin["id"] in (path.findtext(f"{SVG}title") or "") or "via:L0H0.L1H0" in (path.findtext(f"{SVG}title") or "")
    ]
    assert len(starts) == len(set(starts)) == 3


def test_each_of_them_carries_its_own_label():
    report = sample_report("memory")
    twin = {**report["circuit"]["units"][0], "id": "readout/via:L1H0/assoc"}
    report["circuit"]["units"].append(twin)
    root = draw(report)
    for name in ("readout/via:L0H0.L1H0/assoc", twin["id"]):
        title = f"{SVG}title"
        paths = [p for p in root.iter(f"{SVG}path") if (p.findtext(title) or "").startswith(name)]
        x0, y0, x1, y1, x2, y2, x3, y3 = map(float, re.findall(r"[-\d.]+", paths[-1].get("d")))
        pill = next(g for g in root.iter(f"{SVG}g") if (g.findtext(title) or "").startswith(name)).find(f"{SVG}rect")
        x, y, width, height = (float(pill.get(key)) for key in ("x", "y", "width", "height"))
        away = []
        for t in (k / 100 for k in range(101)):
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            along = sum(w * v for w, v in zip(weights, (x0, x1, x2, x3), strict=True))
            down = sum(w * v for w, v in zip(weights, (y0, y1, y2, y3), strict=True))
            away.append(abs(along - x - width / 2) + abs(down - y - height / 2))
        assert min(away) < 6, name


def test_many_units_on_one_head_are_counted_not_piled_up():
    report = sample_report("recall")
    unit = report["circuit"]["units"][2]
    report["circuit"]["units"] = [{**unit, "id": f"L0H0/score/q:res/k:res/offset+{k}"} for k in range(1, 10)]
    assert "+6 more in the table" in texts(draw(report))


def test_wide_models_count_their_idle_heads():
    report = sample_report("recall")
    report["model"]["n_heads"] = 12
    root = draw(report)
    assert any("(+11 idle heads)" in text for text in texts(root))
    assert len(boxes(root, "idle")) == 0


def test_a_head_beyond_the_stated_size_is_drawn_all_the_same():
    report = sample_report("recall")
    report["model"] |= {"n_layers": 1, "n_heads": 1}
    assert "L1H0" in texts(draw(report))


def test_an_unreadable_id_is_named_not_drawn():
    report = sample_report("recall")
    report["circuit"]["units"][0]["id"] = "<script>alert(1)</script>"
    picture = circuit_graph(report)
    assert "<script>" not in picture
    assert any("Not drawn, unreadable id: <script>" in text for text in texts(ET.fromstring(picture)))


def test_nothing_found_is_said():
    root = draw(sample_report("not_detected"))
    assert boxes(root, "pill") == []
    assert any("No unit survived" in text for text in texts(root))


def test_the_file_is_well_formed_and_described():
    root = ET.fromstring(standalone(circuit_graph(sample_report("mixed"))).split("\n", 1)[1])
    assert root.find(f"{SVG}title").text == "The circuit"
    assert "5 units: gamma: The token attended by L1H0" in root.find(f"{SVG}desc").text
