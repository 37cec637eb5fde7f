"""The benchmarks of confinement and competition at a small size: they run, and what they claim holds in kind."""

import re

import pytest

from benchmarks import competition, competition_figures, confinement
from imir_lens.figures.figure import standalone


@pytest.fixture(scope="module")
def competing() -> list[dict]:
    return competition.run(small=True)


def test_confinement_is_exact_where_the_theorem_holds_and_only_there() -> None:
    rows = confinement.run(small=True)
    found = confinement.tables(rows)
    exact = {row["setting"]: row for row in found["exact"]}
    for name in ("centred, concatenated", "centred, block-shifted", "causal mask, all pairs of positions"):
        assert max(exact[name]["scores, most"], exact[name]["readout, most"]) < 1e-12
    for name in ("uncentred", "centred, dense OV", "causal mask, shifts", "start off the span"):
        assert exact[name]["scores, least"] > 0.05
    slopes = {(row["words at"], row["matrix"]): row["slope"] for row in found["short set of shifts"]}
    assert slopes["one pair", "L0H0"] < -0.8
    assert slopes["all positions", "L0H0"] > -0.3
    few, many = found["by batch size"]
    assert few["residual"] > many["residual"]
    assert all(0 < row["not projected"] < 1 for row in found["ordinary models"])


def test_competition_follows_the_shares_and_the_copies(competing) -> None:
    found = competition.tables(competing)
    order = {(row["delta"], row["coordinate"]): row for row in found["order over f_r and f_v"]}
    assert order["6", "alpha"]["Spearman"] > 0.95
    assert order["0", "alpha"]["largest / smallest"] < 1.01
    linear = {(row["blocks"], row["coordinate"]): row["R²"] for row in found["linear in burstiness"]}
    assert linear[8, "alpha"] > linear[8, "beta"] > linear[4, "beta"]
    assert all(-1.3 < row["log-log slope"] < -0.3 for row in found["emergence time over the predicted scale"])
    for row in found["phase maps"]:
        assert row["cells"] == 9
        assert row["AUC of the scale"] > 0.85
        assert row["cells on the right side"] > 0.6


def test_the_maps_are_drawn_with_every_cell_and_the_predicted_boundary(competing) -> None:
    maps = [row for row in competing if row["part"] == "map"]
    scans = [row for row in competing if row["part"] == "scan"]
    for name in competition.MAPS:
        drawing = standalone(competition_figures._map(name, maps, competition.emergence_factor(scans)))
        boxes = re.findall(r'class="fill r-\w+" fill-opacity="[\d.]+" d="([^"]+)"', drawing)
        area = sum(float(w) * float(h) for d in boxes for w, h in re.findall(r"h([\d.]+)v([\d.]+)h-", d))
        assert area == pytest.approx(400 * 400, rel=0.01)
        assert "predicted for in context" in drawing
        assert 'class="ink"' in drawing
