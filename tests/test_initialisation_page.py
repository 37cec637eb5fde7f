"""The section "Which initialisation wins" of docs/dynamics.md says what the benchmark stored; a small version runs."""

import json

import pytest

from benchmarks import initialisation
from benchmarks.dynamics_document import DOCUMENT
from benchmarks.initialisation.figures import IMAGES, figures
from benchmarks.measure import RESULTS

TEXT = DOCUMENT.read_text(encoding="utf-8")
SECTION = TEXT[TEXT.index("## Which initialisation wins") :]


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads((RESULTS / "initialisation.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tables(stored) -> dict[str, list[dict]]:
    return stored["tables"]


def test_the_figures_are_drawn_from_what_is_stored(stored) -> None:
    for name, drawing in figures(stored).items():
        assert (IMAGES / name).read_text(encoding="utf-8") == drawing
        assert f"images/{name}" in SECTION


def test_the_maps_have_their_cells_within_the_time(stored, tables) -> None:
    assert stored["command"] in SECTION
    assert [row["cells"] for row in tables["maps"]] == [40 * 40] * 3
    assert sum(row["CPU seconds"] for row in tables["maps"]) < 15 * 60
    betas, alphas, gammas = tables["maps"]
    for row in (betas, gammas):
        assert min(row["A"], row["B"], row["C"]) > 0.1
    assert alphas["A"] == alphas["B"] == 0


def test_some_boundaries_are_sharp_and_some_are_not(tables) -> None:
    betas, alphas, gammas = tables["boundaries"]
    assert f"{gammas['width, median']:.2f}" == "0.03"
    assert f"{betas['width, least']:.3f}" == "0.016"
    assert 0.45 < betas["width, largest"] / 4 < 0.5
    assert max(row["spread over seeds, median"] for row in (betas, alphas, gammas)) < 0.03
    assert f"{max(row['spread over seeds, largest'] for row in (betas, alphas, gammas)):.1f}" == "0.3"


def test_own_size_says_nothing_with_both_signs_and_something_where_all_is_positive(tables) -> None:
    found = {(row["box"], row["question"], row["from"]): row for row in tables["predictions"]}
    for name in "ABC":
        size, own, everything = (
            found["signed", f"does {name} win", source]
            for source in ("its size", "its own coordinates", "all coordinates")
        )
        assert size["accuracy"] == pytest.approx(size["commonest class"], abs=0.001)
        assert 0.01 < own["accuracy"] - own["commonest class"] < 0.045
        assert 0.925 <= everything["accuracy"] < 0.965
        assert everything["95 % from"] > own["to"]
        alone = found["positive", f"is {name} the costliest", "its size"]
        assert 0.05 < alone["accuracy"] - alone["commonest class"] < 0.11
    three = found["signed", "which circuit wins", "all three sizes"]
    assert three["95 % from"] < three["commonest class"] < three["to"]
    quoted = [found["signed", "which circuit wins", "all coordinates"]]
    quoted += [
        found["positive", "which circuit costs most", source]
        for source in ("the largest of the sizes", "all three sizes", "all coordinates")
    ]
    assert [f"{100 * row['accuracy']:.0f}" for row in quoted] == ["95", "79", "82", "90"]


def test_the_outcome_hangs_on_how_long_a_run_is_trained_and_on_little_else(tables) -> None:
    *others, longer = tables["training"]
    assert min(row["same outcome"] for row in others) >= 0.98
    assert longer["same outcome"] < 0.9
    assert longer["shared"] > longer["shared before"] + 0.1
    assert longer["same costliest circuit"] >= 0.98


def test_what_the_page_says_of_real_models(tables) -> None:
    circuits, everything = tables["real"]
    figures_of = ("same outcome", "predicted winners", "of which the same wins", "another wins")
    assert [circuits[name] for name in (*figures_of, "same costliest circuit", "models")] == [14, 25, 10, 5, 17, 30]
    assert [everything[name] for name in (*figures_of, "same costliest circuit")] == [22, 21, 14, 0, 23]
    assert circuits["by chance"] == pytest.approx(11.0)


def test_the_small_version_has_every_part() -> None:
    rows = initialisation.run(small=True)
    assert {row["part"] for row in rows} == {"map", "random", "training", "real", "boundary"}
    found = initialisation.tables(rows)
    assert set(found) == {"maps", "boundaries", "predictions", "training", "real"}
    for row in found["maps"]:
        assert row["cells"] == 16
        assert sum(row[name] for name in ("A", "B", "C", "shared", "none")) == pytest.approx(1)
