import xml.etree.ElementTree as ET

from sample_report import sample_report

from imir_lens.figures.attribution import attribution_chart

SVG = "{http://www.w3.org/2000/svg}"


def bars(report):
    root = ET.fromstring(attribution_chart(report))
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("rx") == "2"]
    return root, found


def said(root):
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_coloured_bars_are_the_circuit():
    _, found = bars(sample_report())
    coloured = [rect.get("class") for rect in found if "fill" in rect.get("class").split()]
    assert coloured == ["fill r-beta", "fill r-gamma", "fill r-alpha", "fill r-auxiliary"]
    assert sum(rect.get("class") == "bar-out" for rect in found) == 16


def test_lengths_are_proportional_and_signs_point_apart():
    report = sample_report()
    _, found = bars(report)
    rows = report["coordinates"]
    ratio = float(found[0].get("width")) / float(found[2].get("width"))
    assert abs(ratio - rows[0]["attribution"] / rows[2]["attribution"]) < 0.01
    zero = float(found[0].get("x"))
    negative = next(k for k, c in enumerate(rows) if c["attribution"] < 0)
    assert float(found[negative].get("x")) < zero


def test_the_cut_stands_below_the_last_of_the_circuit():
    root, _ = bars(sample_report())
    assert "the cut: 4 in the circuit, all above" in said(root)
    report = sample_report("mixed")
    assert "the cut: 5 in the circuit, coloured" in said(bars(report)[0])


def test_a_late_coordinate_of_the_circuit_is_drawn_and_the_gap_named():
    report = sample_report()
    report["coordinates"][30]["in_circuit"] = True
    root, found = bars(report)
    assert len(found) == 21
    assert "… 10 coordinates not drawn …" in said(root)


def test_what_is_not_listed_is_counted():
    root, _ = bars(sample_report())
    assert "… 266 more, smaller …" in said(root)


def test_no_coordinates_and_all_zero_are_drawn_too():
    report = sample_report()
    for c in report["coordinates"]:
        c["attribution"] = 0.0
    assert len(bars(report)[1]) == 20
    report["coordinates"] = []
    assert "No coordinates were listed." in said(bars(report)[0])
