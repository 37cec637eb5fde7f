"""docs/dynamics.md shows what the benchmarks stored, and what its sections on confinement and competition say holds."""

import json

import pytest

from benchmarks.dynamics_document import DOCUMENT, filled
from benchmarks.measure import RESULTS

TEXT = DOCUMENT.read_text(encoding="utf-8")


def tables(name: str) -> dict[str, list[dict]]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["tables"]


@pytest.fixture(scope="module")
def competing() -> dict[str, list[dict]]:
    return tables("competition")


def test_the_tables_are_those_stored() -> None:
    assert filled(TEXT) == TEXT
    assert TEXT.count("<!-- ") >= 9


@pytest.mark.parametrize("name", ["confinement", "competition"])
def test_the_commands_are_on_the_page(name) -> None:
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert stored["command"] in TEXT
    assert stored["seed"] == 0


def test_the_gradient_is_confined_where_the_page_says_and_nowhere_else() -> None:
    exact = {row["setting"]: row for row in tables("confinement")["exact"]}
    for setting, row in exact.items():
        most = max(row["scores, most"], row["readout, most"])
        if setting in (
            "centred, concatenated",
            "centred, block-shifted",
            "uncentred, class constants too",
            "causal mask, all pairs of positions",
        ):
            assert most < 1e-12
        else:
            assert row["scores, least"] > 0.15
        assert row["runs"] == 15


def test_the_short_set_falls_in_sparse_contexts_and_not_in_full_ones() -> None:
    for row in tables("confinement")["short set of shifts"]:
        if row["words at"] == "all positions":
            assert row["slope, low"] > 0
        else:
            assert row["slope"] < -1.4


def test_samples_have_a_floor_of_one_over_the_root_of_their_size() -> None:
    rows = tables("confinement")["by batch size"]
    assert all(row["slope"] == pytest.approx(-0.5, abs=0.02) for row in rows)
    assert all(row["times sqrt(contexts)"] == pytest.approx(7.5, abs=0.8) for row in rows)
    assert "7.5 / √contexts" in TEXT


def test_the_order_over_the_shares_needs_memory(competing) -> None:
    rows = competing["order over f_r and f_v"]
    for row in rows:
        if row["delta"] == "0":
            assert row["largest / smallest"] < 1 + 1e-6
        elif row["delta"] == "6" and (row["coordinate"] != "gamma" or row["vocab"] > 41):
            assert row["Spearman"] > 0.98
            assert row["low"] > 0.95
        elif row["delta"] == "settled":
            assert round(row["with errors of a settled memory"], 3) >= 0.976
            assert 0.892 <= round(row["Spearman"], 3) <= 0.959
    quoted = {(row["vocab"], row["delta"]): row["Spearman"] for row in rows if row["coordinate"] == "gamma"}
    assert [f"{quoted[vocab, '6']:.3f}" for vocab in (41, 129, 513)] == ["0.934", "0.988", "0.997"]
    assert all(abs(row["cells shuffled"]) < 0.2 for row in rows if row["cells shuffled"] is not None)


def test_the_gradient_is_linear_in_copies_with_many_blocks_before_the_head_has_formed(competing) -> None:
    rows = competing["linear in burstiness"]
    many = [row for row in rows if row["blocks"] == 32]
    early = [row for row in many if row["point"] != "formed (4)"]
    assert len(early) == 6
    assert min(row["low"] for row in early) > 0.99
    assert min(row["R²"] for row in early) >= 0.9975
    assert all(0.915 <= row["log-log slope"] <= 1.005 for row in early)
    assert max(row["R²"] for row in many if row["point"] == "formed (4)") < 0.98
    (few,) = (row for row in rows if (row["blocks"], row["point"], row["coordinate"]) == (4, "start (0.1)", "beta"))
    assert f"{few['R²']:.2f}" == "0.48"


def test_what_the_page_says_of_the_maps(competing) -> None:
    first, second = competing["phase maps"]
    assert first["cells"] == second["cells"] == 21 * 21
    shown = [100 * first[name] for name in ("cells on the right side", "by the larger class alone")]
    shown += [100 * second[name] for name in ("cells on the right side", "by the larger class alone")]
    assert [f"{value:.1f}" for value in shown] == ["97.7", "60.8", "88.4", "84.8"]
    assert [f"{row['AUC of the scale']:.3f}" for row in (first, second)] == ["0.998", "0.993"]
    assert [f"{100 * row['memory came and went']:.1f}" for row in (first, second)] == ["0.0", "21.5"]
    slopes = [row["log-log slope"] for row in competing["emergence time over the predicted scale"]]
    assert [f"{slope:.2f}" for slope in slopes] == ["-0.92", "-0.99", "-0.95", "-0.53"]
    along_f_r, along_b = competing["boundaries"]
    assert [f"{row['width']:.2f}" for row in (along_f_r, along_b)] == ["0.06", "0.11"]
    assert all(row["spread of 50 % over seeds"] < row["cell"] for row in (along_f_r, along_b))
