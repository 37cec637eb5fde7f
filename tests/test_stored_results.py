"""What the stored benchmark results claim still holds of the files, and the page shows exactly these files."""

import json
from statistics import mean

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.document import DOCUMENT, document
from benchmarks.measure import RESULTS


def stored(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def planted() -> list[dict]:
    return stored("planted")["rows"]


def of(rows: list[dict], detector: str, part: str = "design") -> list[dict]:
    return [row for row in rows if row["detector"] == detector and row["part"] == part]


def test_the_page_is_what_the_results_give() -> None:
    assert document() == DOCUMENT.read_text(encoding="utf-8")


def test_every_benchmark_has_its_result_with_command_and_seed() -> None:
    for name in BENCHMARKS:
        result = stored(name)
        assert result["command"] == f"OMP_NUM_THREADS=1 python -m benchmarks {name}"
        assert isinstance(result["seed"], int)
        assert result["rows"]


def test_ours_finds_planted_circuits(planted: list[dict]) -> None:
    ours = of(planted, "ours")
    assert len(ours) >= 150
    assert mean(row["f1"] for row in ours) >= 0.98
    assert all(row["f1"] == 1 for row in ours if row["noise"] <= 0.1)
    assert mean(row["head_auc"] for row in ours if row["head_auc"] is not None) >= 0.99
    assert mean(row["edge_auc"] for row in ours) >= 0.98


def test_chance_is_chance_and_peers_stand_beside(planted: list[dict]) -> None:
    models = {row["seed"] for row in of(planted, "ours")}
    drawn = of(planted, "random")
    for field in ("head_auc", "edge_auc"):
        assert mean(row[field] for row in drawn if row[field] is not None) == pytest.approx(0.5, abs=0.05)
    for peer in ("EAP (TransformerLens)", "EAP-IG (our implementation)", "ACDC (AutoCircuit)"):
        assert {row["seed"] for row in of(planted, peer)} == models


def test_what_ours_costs_does_not_grow_with_width_and_stays_far_below_acdc(planted: list[dict]) -> None:
    sizes = {
        (row["n_layers"], row["n_heads"], row["d_model"]): row["seconds"] for row in of(planted, "ours", part="sizes")
    }
    assert sizes[3, 2, 512] < 2 * sizes[3, 2, 64]
    acdc = {row["seed"]: row["seconds"] for row in of(planted, "ACDC (AutoCircuit)")}
    assert mean(acdc.values()) > 5 * mean(row["seconds"] for row in of(planted, "ours"))


def test_circuits_are_stable() -> None:
    tables = stored("stability")["tables"]
    for row in tables["bootstraps"]:
        assert row["bootstraps"] == 100
        assert row["mean Jaccard"] >= 0.9


def test_the_readme_quotes_the_planted_benchmark() -> None:
    table = next(iter(stored("planted")["tables"].values()))
    rows = {row["detector"]: row for row in table}
    readme = (DOCUMENT.parents[1] / "README.md").read_text(encoding="utf-8")
    names = {
        "imir_lens": "ours",
        "EAP-IG": "EAP-IG (our implementation)",
        "ACDC (AutoCircuit)": "ACDC (AutoCircuit)",
        "EAP (TransformerLens)": "EAP (TransformerLens)",
        "largest coordinates, as many as planted": "magnitude (true k)",
        "random": "random",
    }
    for name, detector in names.items():
        row = rows[detector]
        f1 = " " if row["f1"] is None else f" {row['f1']:.3f} "
        ratio = f"{row['seconds / ours (median)']:.3g}"
        assert f"| {name} |{f1}| {row['head_auc']:.3f} | {row['edge_auc']:.3f} | {ratio} |" in readme
